//! The NQRust Hypervisor image builder as a library.
//!
//! An image definition goes in, media come out. `build` runs the steps; each step lives in the room that
//! carries its name: `base` and `rootfs` make the OS image, `images` the image store, `boot` the loaders and
//! menus, `media` the ISOs and the netboot set. `medium` inspects and verifies what is finished, and `iso9660`
//! reads it. Configuration types, the release manifest and the leaves (digests, files, commands, progress)
//! come from the `installer` library, so that both programs agree on them.

pub mod boot;
pub mod images;
pub mod iso9660;
pub mod media;
pub mod medium;
