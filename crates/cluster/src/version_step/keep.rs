//! What an update of the OS does for Kubernetes: it keeps the version that runs, which the other OS image does not bring.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::kept_version::image;
use crate::kept_version::kept::{KeptVersions, SPARE_ROOM, VERSIONS};
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::paths::below;

/// Keeps the programs that run on the node at `root`, and lets them run under every OS from now on. Does nothing where they are kept.
///
/// # Errors
/// [`Class::Verification`] if they are kept and damaged; [`Class::DiskIo`] if they cannot be kept.
pub fn keep_running(root: &Path, say: &mut dyn FnMut(String)) -> Result<()> {
    let Some(runs) = image::read(root)? else { return Ok(()) };
    let kept = KeptVersions::of(root);
    if kept.current().as_ref() == Some(&runs.version) {
        // They may be what lies over the image's files: a copy of those would not be better.
        return kept.verify(&runs.version).map(drop).map_err(|error| {
            Failure::new(Class::Verification, "Kubernetes could not go on under another OS")
                .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
                .hint(format!(
                    "Start the OS that brings {}: with that the node goes on, and keeps it anew.",
                    runs.version
                ))
                .into()
        });
    }
    if kept.keep(root, &runs)? {
        say(format!("Kubernetes {} is kept on this node", runs.version));
    }
    kept.choose(&runs.version)
}

/// What [`keep_running`] would store on the node at `root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionToKeep {
    pub directory: PathBuf,
    pub size: ByteSize,
    /// Stays free beside it.
    pub spare: ByteSize,
}

impl VersionToKeep {
    /// None where nothing is to be kept.
    ///
    /// # Errors
    /// What the OS image says of its Kubernetes cannot be read.
    pub fn of(root: &Path) -> Result<Option<Self>> {
        let Some(runs) = image::read(root)? else { return Ok(None) };
        let kept = KeptVersions::of(root);
        let size = kept.missing(root, &runs);
        let directory = below(root, VERSIONS);
        Ok((size > ByteSize::bytes(0)).then_some(Self { directory, size, spare: SPARE_ROOM }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_version::kept::tests::image as make_image;
    use base::failure::class_of;
    use std::fs;

    #[test]
    fn what_runs_is_kept_and_chosen_once_and_damage_is_not_passed_on() {
        let root = tempfile::tempdir().unwrap();
        keep_running(root.path(), &mut |_| panic!()).unwrap();
        let release = make_image(root.path(), "v1.33.1+rke2r1");
        let missing = VersionToKeep::of(root.path()).unwrap().unwrap();
        assert!(missing.directory.ends_with("versions") && missing.size > ByteSize::bytes(0), "{missing:?}");
        let mut said = Vec::new();
        for _ in 0..2 {
            keep_running(root.path(), &mut |line| said.push(line)).unwrap();
        }
        assert_eq!(said, ["Kubernetes v1.33.1+rke2r1 is kept on this node"]);
        assert_eq!(VersionToKeep::of(root.path()).unwrap(), None);
        let kept = KeptVersions::of(root.path());
        assert_eq!(kept.current().as_ref(), Some(&release.version));
        fs::write(kept.directory(&release.version).join("usr/local/bin/rke2"), "x").unwrap();
        let error = keep_running(root.path(), &mut |_| panic!()).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
    }

    #[test]
    fn an_image_that_runs_in_place_of_a_lost_version_is_chosen() {
        let root = tempfile::tempdir().unwrap();
        let release = make_image(root.path(), "v1.33.2+rke2r1");
        KeptVersions::of(root.path()).choose(&"v1.33.1+rke2r1".parse().unwrap()).unwrap();
        keep_running(root.path(), &mut |_| ()).unwrap();
        assert_eq!(KeptVersions::of(root.path()).current(), Some(release.version));
    }
}
