//! Media on a web server: an ISO, read by ranges, or a directory with the content of one.

mod directory;
mod image;

pub use directory::HttpDirectory;
pub use image::HttpImage;

/// True if a medium's name, as in `--medium` or `install.medium`, is the URL of a server.
#[must_use]
pub fn is_url(medium: &str) -> bool {
    medium.starts_with("http://") || medium.starts_with("https://")
}
