//! The Kubernetes of the OS image.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use base::files;
use machine::paths::below;
use model::kubernetes::{KUBERNETES_RELEASE, KubernetesRelease};

/// In bytes; the file has some lines.
const RELEASE_BYTES_MAX: u64 = 1 << 16;
/// A temporary mount of the OS image without the mounts over its files.
const UNCOVERED: &str = "/run/nqrust/image";

/// The Kubernetes whose programs are below `root`: on a running node the running version, in an image its own.
pub fn read(root: &Path) -> Result<Option<KubernetesRelease>> {
    let path = below(root, KUBERNETES_RELEASE);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = files::read_at_most(&path, RELEASE_BYTES_MAX)?;
    let release: KubernetesRelease =
        serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))?;
    // They become targets of mounts.
    let plain = |file: &String| file.split('/').all(|name| !matches!(name, "" | "." | ".."));
    match release.files.iter().find(|file| !plain(file)) {
        None => Ok(Some(release)),
        Some(odd) => {
            let what = format!("{} names {odd:?}, which is no plain path", path.display());
            Err(Failure::new(Class::Verification, what).into())
        }
    }
}

/// The OS image of a running node without the mounts over its files. It is unmounted when this is dropped.
#[allow(missing_debug_implementations)]
pub struct UncoveredImage<'a> {
    at: PathBuf,
    runner: &'a dyn Runner,
}

impl<'a> UncoveredImage<'a> {
    /// A mount of the root file system alone: what is mounted below it does not come along (mount(8), `--bind`).
    pub fn show(root: &Path, runner: &'a dyn Runner) -> Result<Self> {
        let at = below(root, UNCOVERED);
        files::make_directory(&at, 0o700)?;
        // What a run that was cut off left.
        let _ = runner.run(&Invocation::new("umount").arg("--lazy").arg(&at));
        let mount = Invocation::new("mount").args(["--bind"]).arg(root).arg(&at);
        runner.run(&mount).context("looking at the OS image beneath what is mounted over it")?;
        Ok(Self { at, runner })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for UncoveredImage<'_> {
    fn drop(&mut self) {
        // It shows a read-only file system to root; the next one that looks removes it.
        let _ = self.runner.run(&Invocation::new("umount").arg("--lazy").arg(&self.at));
    }
}
