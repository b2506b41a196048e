//! Hard links, with a copy as the fallback.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base::files::fill_atomically;

/// Makes `output` a hard link to `source`, replacing what has that name; or a copy if the file systems differ or have
/// no hard links. The output is there completely or not at all.
pub fn link_or_copy(source: &Path, output: &Path) -> Result<()> {
    match fs::remove_file(output) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", output.display()));
        }
        _ => {}
    }
    if fs::hard_link(source, output).is_ok() {
        return Ok(());
    }
    let what = || format!("copying {} to {}", source.display(), output.display());
    let mut from = File::open(source).with_context(what)?;
    let mode = from.metadata().with_context(what)?.permissions().mode() & 0o7777;
    fill_atomically(output, mode, |file| io::copy(&mut from, file).map(drop)).with_context(what)
}
