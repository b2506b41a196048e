//! The ISO of a release that was pulled.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files::{UnfinishedDirectory, parent, unusable};
use base::progress::Progress;
use medium::iso::recipe::{self, ELTORITO, Recipe};
use medium::payload_sources::OpenedArtifact;
use model::release::Payload;

use crate::media::assemble::assemble;

/// Checks that the ISO of a release can be made.
///
/// # Errors
/// [`Class::Invalid`], with what it lacks.
pub(super) fn check(artifact: &OpenedArtifact) -> Result<()> {
    let lacks = |why: String, hint: &str| {
        let what = format!("no ISO can be made of {}", artifact.name());
        Failure::new(Class::Invalid, what).because(anyhow::anyhow!(why)).hint(hint)
    };
    let release = artifact.release();
    let Some(iso) = &release.iso else {
        let why = "its release.json does not say how: an older builder wrote it".into();
        return Err(lacks(why, "Build the release again with this iso-builder and push it.").into());
    };
    if !recipe::is_followed(iso) {
        let why = format!("it is made by recipe {}, and this builder follows {}", iso.recipe, recipe::NUMBER);
        return Err(lacks(why, "Use the iso-builder of the release.").into());
    }
    if iso.bios.is_some() && artifact.boot_code().is_none() {
        let why = "GRUB's boot code for ISOs is not in it: it was not pushed from an ISO".into();
        return Err(lacks(why, "Push the release from its ISO, or from the directory of the build.").into());
    }
    match release.carried_payloads().find(|payload| !artifact.has(payload.sha256)) {
        None => Ok(()),
        Some(payload) => {
            let why = format!("it lacks {}", payload.path);
            Err(lacks(why, "Push the release again from a whole medium.").into())
        }
    }
}

/// Makes the ISO at `output` from the directory of the release at `tree`. It is the one that a build makes, without a
/// customization.
pub(super) fn make(
    artifact: &OpenedArtifact,
    signatures: Option<&[u8]>,
    (tree, output): (&Path, &Path),
    progress: &Progress,
) -> Result<u64> {
    let scratch = UnfinishedDirectory::begin(parent(output)).map_err(|error| unusable(output, error))?;
    let recipe = Recipe::new(artifact.release(), artifact.release_bytes());
    let source = |payload: &Payload| -> Result<PathBuf> { Ok(tree.join(&payload.path)) };
    let boot_code = tree.join(parent(Path::new(ELTORITO)));
    let file = scratch.path().join("iso");
    let parts = assemble(&recipe, signatures, &boot_code, &source, scratch.path())?;
    parts.write(&file, output, "iso", progress)?;
    let placing = || format!("placing {}", output.display());
    let made = File::open(&file).class(Class::DiskIo, placing)?;
    made.sync_all().class(Class::DiskIo, placing)?;
    fs::rename(&file, output).class(Class::DiskIo, placing)?;
    Ok(made.metadata().class(Class::DiskIo, placing)?.len())
}
