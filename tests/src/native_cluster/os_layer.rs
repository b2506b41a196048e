//! The files that the image builder adds to Debian's packages: programs, units, containerd's configuration.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iso_builder::kubernetes::system::{self, SystemFileContent};
use iso_builder::kubernetes::upstream::{CRICTL, PROGRAMS};

use super::adapt;
use super::release::KubernetesRelease;
use crate::paths;

/// Programs that stand in for those of systemd.
const STAND_INS: [(&str, &str); 2] =
    [("systemctl", include_str!("systemctl.sh")), ("journalctl", include_str!("journalctl.sh"))];

/// A directory with these files.
#[derive(Clone, Debug)]
pub struct OsLayer(PathBuf);

impl OsLayer {
    /// Writes the files for `release` to `directory`, which is new.
    pub fn write(directory: &Path, release: &KubernetesRelease) -> Result<Self> {
        let layer = Self(directory.to_owned());
        for file in system::files(&release.version, Some(&release.images()?)) {
            let path = layer.place(&file.path)?;
            match file.content {
                SystemFileContent::Text(text) => fs::write(&path, adapt::system_file(&file.path, &text)?)?,
                SystemFileContent::Link(target) => symlink(target, &path)?,
            }
        }
        for name in PROGRAMS.into_iter().chain([CRICTL]) {
            copy(&release.program(name), &layer.place(&format!("usr/local/bin/{name}"))?)?;
        }
        copy(&paths::installer()?, &layer.place("usr/bin/installer")?)?;
        for (name, script) in STAND_INS {
            let path = layer.place(&format!("usr/local/bin/{name}"))?;
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(layer)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn place(&self, path: &str) -> Result<PathBuf> {
        let path = self.0.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        Ok(path)
    }
}

/// The programs are large: they are linked where that is possible.
fn copy(from: &Path, to: &Path) -> Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => fs::copy(from, to).map(drop),
        linked => linked,
    }
    .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
