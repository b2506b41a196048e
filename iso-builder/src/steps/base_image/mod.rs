//! `base.tar` from something that is a root file system already: an OCI image, an archive, a directory.
//!
//! Equal trees give equal bytes, whichever form they come in and whoever builds. For that, all times are the build's
//! own (the media keep no others), `/` itself is root's with mode 0755, and what belongs to a running system is left
//! out: device nodes, which an ordinary user could not unpack, and the content of /dev, /proc and /sys.

pub(super) mod archive;
mod directory;
mod layout;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use serde::{Deserialize, Serialize};

use super::Request;
use super::tree::Tree;

/// Where a base comes from. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An OCI layout (directory or tar archive), and which of its images.
    Oci(PathBuf, Option<String>),
    /// A tar archive.
    Archive(PathBuf),
    /// A directory.
    Directory(PathBuf),
}

/// The file that [`survey`] writes.
pub const SURVEY: &str = "digest";

/// Makes `base.tar`.
pub(super) fn import(request: &Request, source: &Source) -> Result<()> {
    let archive = request.out.join("base.tar");
    if let Source::Directory(path) = source {
        check_root(path, path)?;
        return directory::pack(path, &request.scratch, &archive, request.epoch);
    }
    let tree = Tree::empty(&request.scratch)?;
    match source {
        Source::Archive(path) => archive::unpack(path, &tree, &request.scratch, archive::Kind::Whole)?,
        Source::Oci(path, reference) => layout::unpack(request, path, reference.as_deref(), &tree)?,
        Source::Directory(_) => {}
    }
    check_root(tree.root(), source.path())?;
    fs::set_permissions(tree.root(), fs::Permissions::from_mode(0o755))?;
    lchown(tree.root(), Some(0), Some(0))?;
    directory::pack(tree.root(), &request.scratch, &archive, request.epoch)
}

/// Writes the digest of a directory: of everything that [`import`] would take from it. In the sandbox, since an
/// ordinary user's tree has files of the user's subordinate owners, which only root there can read.
pub(super) fn survey(request: &Request, path: &Path) -> Result<()> {
    let digest: Digest = directory::digest(path, &request.scratch)?;
    files::write_atomically(&request.out.join(SURVEY), digest.to_string().as_bytes(), 0o644)
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::Oci(path, _) | Self::Archive(path) | Self::Directory(path) => path,
        }
    }
}

fn check_root(tree: &Path, source: &Path) -> Result<()> {
    if tree.join("usr").is_dir() && tree.join("etc").is_dir() {
        return check_owner(&tree.join("usr"), source);
    }
    let names = fs::read_dir(tree)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.take(10).collect();
    names.sort();
    let top = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    Err(Failure::new(Class::Invalid, format!("{} holds no root file system", source.display()))
        .because(anyhow::anyhow!("at its top is: {top}"))
        .hint("A base has at least /usr and /etc at its top.")
        .into())
}

/// A tree that was unpacked without its owners would start, and let whoever has that number write to all of it.
/// One that another tool made in its own user namespace is seen so too: its root is not the root of ours.
fn check_owner(usr: &Path, source: &Path) -> Result<()> {
    let owner = fs::metadata(usr)?.uid();
    if owner == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Class::Invalid,
        format!("{} is not a tree with the owners of a system", source.display()),
    )
    .because(anyhow::anyhow!("its /usr belongs to the user {owner}"))
    .hint("Make it as root, or take an archive that root or the tool that made the tree has packed.")
    .into())
}

/// The failure of reading what the user named; a full disk is not the fault of what was read.
fn unreadable(path: &Path, what: &str, error: anyhow::Error) -> anyhow::Error {
    if format!("{error:#}").contains("No space left on device") {
        return error.context(format!("unpacking {}", path.display()));
    }
    Failure::new(Class::Invalid, format!("{} is not a readable {what}", path.display())).because(error).into()
}
