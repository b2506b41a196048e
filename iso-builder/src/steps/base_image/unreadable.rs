//! The failure of reading an archive or a layout that the user named.

use std::path::Path;

use base::failure::{Class, Failure};

/// The failure of reading what the user named. If the disk is full, the input is not to blame.
pub(super) fn unreadable(path: &Path, what: &str, error: anyhow::Error) -> anyhow::Error {
    if format!("{error:#}").contains("No space left on device") {
        return error.context(format!("unpacking {}", path.display()));
    }
    Failure::new(Class::Invalid, format!("{} is not a readable {what}", path.display())).because(error).into()
}
