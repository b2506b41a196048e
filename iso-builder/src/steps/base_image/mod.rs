//! `base.tar` from an existing root file system: an OCI image, an archive, a directory.
//!
//! Equal trees give equal bytes, whatever their form is and whoever builds. For that, all times are one time (the media keep no others):
//! that of the newest file, which archives and copies keep; `/` itself is root's with mode 0755, and what belongs to a running system is left out:
//! device nodes, which an ordinary user could not unpack, and the content of /dev, /proc and /sys.

pub(super) mod archive;
mod directory;
pub(crate) mod layout;
mod unreadable;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use serde::{Deserialize, Serialize};

pub(super) use directory::{TreeOwners, pack};

use super::request::{BaseSource, StepRequest};
use super::tree::Tree;

/// A [`SurveyedDirectory`] as JSON.
pub const SURVEY_OUTPUT: &str = "survey.json";
/// The time of all files of a base, in seconds since 1970, as decimal digits.
pub const EPOCH_OUTPUT: &str = "epoch";

/// Keeps the time of files, in seconds since 1970, beside the other outputs of a step.
pub fn keep_epoch(out: &Path, epoch: u64) -> Result<()> {
    files::write_atomically(&out.join(EPOCH_OUTPUT), epoch.to_string().as_bytes(), 0o644)
}

/// Makes `base.tar`, whose files have the time `epoch` or else that of the newest of them.
pub(super) fn import(request: &StepRequest, source: &BaseSource, epoch: Option<u64>) -> Result<()> {
    let pack = |tree: &Path, owners| {
        let epoch = epoch.map_or_else(|| directory::newest(tree), Ok)?;
        keep_epoch(&request.out, epoch)?;
        directory::pack(tree, owners, &request.scratch, &request.out.join("base.tar"), epoch)
    };
    if let BaseSource::Directory(path) = source {
        check_root(path, path)?;
        return pack(path, TreeOwners::Host);
    }
    let tree = Tree::empty(&request.scratch)?;
    match source {
        BaseSource::Archive(path) => {
            archive::unpack(path, &tree, &request.scratch, archive::ArchiveUse::Whole)?
        }
        BaseSource::Oci(path, reference) => layout::unpack(request, path, reference.as_deref(), &tree)?,
        BaseSource::Directory(_) => {}
    }
    check_root(tree.root(), source.path())?;
    fs::set_permissions(tree.root(), fs::Permissions::from_mode(0o755))?;
    lchown(tree.root(), Some(0), Some(0))?;
    pack(tree.root(), TreeOwners::Sandbox)
}

/// What a directory has that [`import`] would take from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyedDirectory {
    /// Of everything but times.
    pub digest: Digest,
    /// The time of the newest file, in seconds since 1970.
    pub newest: u64,
}

/// Writes what a directory has. It runs in the sandbox, since an ordinary user's tree has files of the user's subordinate owners, which
/// only root there can read.
pub(super) fn survey(request: &StepRequest, path: &Path) -> Result<()> {
    let digest = directory::digest(path, &request.scratch)?;
    let surveyed = SurveyedDirectory { digest, newest: directory::newest(path)? };
    files::write_atomically(&request.out.join(SURVEY_OUTPUT), &serde_json::to_vec(&surveyed)?, 0o644)
}

fn check_root(tree: &Path, source: &Path) -> Result<()> {
    if tree.join("usr").is_dir() && tree.join("etc").is_dir() {
        return check_owner(&tree.join("usr"), source);
    }
    let names = fs::read_dir(tree)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.take(10).collect();
    names.sort();
    let top = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    Err(Failure::new(Class::Invalid, format!("{} is not a root file system", source.display()))
        .because(anyhow::anyhow!("at its top is: {top}"))
        .hint("A base has at least /usr and /etc at its top level.")
        .into())
}

/// Fails unless root owns the tree. A tree that was unpacked without its owners would start, and let the user with that
/// number write to all of it. The same is found for a tree that another tool made in its own user namespace: its root
/// is not the root of ours.
fn check_owner(usr: &Path, source: &Path) -> Result<()> {
    let owner = fs::metadata(usr)?.uid();
    if owner == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Class::Invalid,
        format!("{} does not have the owners of a root file system", source.display()),
    )
    .because(anyhow::anyhow!("its /usr belongs to the user {owner}"))
    .hint(
        "Create it as root, or use an archive that was packed by root or by the tool that created the tree.",
    )
    .into())
}
