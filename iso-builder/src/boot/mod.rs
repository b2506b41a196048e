//! Boot loaders and boot menus of the media.
