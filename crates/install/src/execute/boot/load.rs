//! Handing a kernel with its initrd to the one that runs.

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use crate::execute::kernel_calls::{self, LoadedFor};
use base::files::{make_directory, write_atomically};

/// A kernel as it is started.
#[derive(Clone, Copy, Debug)]
pub struct KernelToLoad<'a> {
    pub kernel: &'a [u8],
    pub initrd: &'a [u8],
    pub line: &'a CStr,
}

impl KernelToLoad<'_> {
    /// Loads it for the case that the running kernel crashes, in the memory that is reserved for that. It takes the place of one that
    /// was loaded before. The files are below `stage`, a directory in memory, until the kernel has them.
    ///
    /// # Errors
    /// Nothing is reserved, the reserved memory is too small, or Secure Boot is on and the kernel not signed.
    pub fn load_for_crash(&self, stage: &Path) -> Result<()> {
        self.load(stage, LoadedFor::Crash)
    }

    pub(super) fn load(&self, stage: &Path, reason: LoadedFor) -> Result<()> {
        make_directory(stage, 0o700)?;
        let staged = |name: &str, bytes: &[u8]| -> Result<File> {
            let path = stage.join(name);
            write_atomically(&path, bytes, 0o600)?;
            // Opened again: the kernel refuses a file that is still open for writing.
            File::open(&path).with_context(|| format!("opening {}", path.display()))
        };
        let loaded = staged("vmlinuz", self.kernel).and_then(|kernel| {
            let initrd = staged("initrd", self.initrd)?;
            kernel_calls::load_kernel(&kernel, &initrd, self.line, reason).context("loading the kernel")
        });
        let _ = fs::remove_dir_all(stage);
        loaded
    }
}
