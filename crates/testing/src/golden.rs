//! Golden files: texts that users read, kept in the repository.

use std::fs;
use std::path::Path;

/// Compares `text` with the file at `path`; with `UPDATE_GOLDEN` set, writes it.
pub fn compare(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "UPDATE_GOLDEN=1 writes {} anew", path.display());
}
