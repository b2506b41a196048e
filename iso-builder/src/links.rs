//! A second name for a file.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

/// Gives `source` the name `output` too, in place of what has that name; or copies it where the file systems differ or have
/// no second names. The output is there whole or not at all.
pub fn link_or_copy(source: &Path, output: &Path) -> Result<()> {
    let unfinished = output.with_extension("new");
    for path in [&unfinished, output] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    if fs::hard_link(source, output).is_ok() {
        return Ok(());
    }
    let what = || format!("copying {} to {}", source.display(), output.display());
    fs::copy(source, &unfinished).with_context(what)?;
    fs::rename(&unfinished, output).with_context(what)
}
