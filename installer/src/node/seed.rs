//! Copies of directories from the image: whole or only what is missing, with modes, owners and links.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use crate::files;

/// User and group id.
pub type Owner = (u32, u32);

/// Copies what of `from` is missing in `to`; never changes what is there. A copy that was cut short is
/// completed by the next one. Both must be directories; a missing `from` means nothing to copy.
pub fn missing(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    copy_children(from, to, None)
}

/// Makes `to` a copy of the directory `from`, with `mode` for the directory itself and, where given, one
/// owner for all. It appears under its name only when it is complete.
pub fn whole(from: &Path, to: &Path, owner: Option<Owner>, mode: u32) -> Result<()> {
    let temporary = sibling(to);
    if temporary.exists() {
        fs::remove_dir_all(&temporary).with_context(|| format!("removing {}", temporary.display()))?;
    }
    files::make_directory(&temporary, 0o700)?;
    copy_children(from, &temporary, owner)?;
    let metadata = fs::metadata(from).with_context(|| format!("reading {}", from.display()))?;
    finish(&temporary, &metadata, owner, mode)?;
    fs::rename(&temporary, to).with_context(|| format!("naming {}", to.display()))
}

/// Gives a file or link to `owner`.
pub fn own(path: &Path, (user, group): Owner) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(user), Some(group))
        .with_context(|| format!("giving {} to user {user}", path.display()))
}

/// A name beside `path` for what is not complete yet.
fn sibling(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.seed"))
}

fn copy_children(from: &Path, to: &Path, owner: Option<Owner>) -> Result<()> {
    let what = || format!("reading {}", from.display());
    let mut names: Vec<_> = fs::read_dir(from)
        .with_context(what)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<_>>()
        .with_context(what)?;
    names.sort();
    for name in names {
        copy(&from.join(&name), &to.join(&name), owner)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, owner: Option<Owner>) -> Result<()> {
    let metadata = fs::symlink_metadata(from).with_context(|| format!("reading {}", from.display()))?;
    let there = fs::symlink_metadata(to).ok();
    let kind = metadata.file_type();
    if kind.is_dir() {
        match there {
            // A link or file that took the place of a directory is the node's own doing.
            Some(there) if !there.is_dir() => return Ok(()),
            Some(_) => {}
            None => {
                fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
                finish(to, &metadata, owner, metadata.permissions().mode())?;
            }
        }
        return copy_children(from, to, owner);
    }
    if there.is_some() {
        return Ok(());
    }
    let temporary = sibling(to);
    let _ = fs::remove_file(&temporary);
    let what = || format!("copying {} to {}", from.display(), to.display());
    if kind.is_symlink() {
        symlink(fs::read_link(from).with_context(what)?, &temporary).with_context(what)?;
    } else if kind.is_file() {
        fs::copy(from, &temporary).with_context(what)?;
        File::open(&temporary).and_then(|file| file.sync_all()).with_context(what)?;
    } else {
        bail!("{} is neither a file, a directory nor a link", from.display());
    }
    finish(&temporary, &metadata, owner, metadata.permissions().mode())?;
    fs::rename(&temporary, to).with_context(what)
}

/// Owner first: changing it clears the set-user-id bits.
fn finish(path: &Path, metadata: &Metadata, owner: Option<Owner>, mode: u32) -> Result<()> {
    let kept = Uid::effective().is_root().then(|| (metadata.uid(), metadata.gid()));
    if let Some(owner) = owner.or(kept) {
        own(path, owner)?;
    }
    if !path.is_symlink() {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))
            .with_context(|| format!("setting the mode of {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("lib/inner")).unwrap();
        fs::write(root.join("lib/inner/file"), "image").unwrap();
        fs::set_permissions(root.join("lib/inner/file"), Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(root.join("lib"), Permissions::from_mode(0o2750)).unwrap();
        symlink("/run", root.join("run")).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn missing_entries_come_with_modes_and_links_and_nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("factory"), directory.path().join("var"));
        tree(&from);
        fs::create_dir_all(to.join("lib/inner")).unwrap();
        fs::write(to.join("lib/inner/own"), "node").unwrap();
        missing(&from, &to).unwrap();
        assert_eq!(fs::read_link(to.join("run")).unwrap(), Path::new("/run"));
        assert_eq!(mode(&to.join("lib/inner/file")), 0o640);
        fs::write(to.join("lib/inner/file"), "changed").unwrap();
        missing(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("lib/inner/file")).unwrap(), b"changed");
        assert_eq!(fs::read(to.join("lib/inner/own")).unwrap(), b"node");
        missing(&directory.path().join("absent"), &to).unwrap();
    }

    #[test]
    fn a_whole_copy_replaces_what_an_interrupted_one_left() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("root"), directory.path().join("kept"));
        tree(&from);
        fs::create_dir(sibling(&to)).unwrap();
        fs::write(sibling(&to).join("half"), "").unwrap();
        whole(&from, &to, None, 0o700).unwrap();
        assert_eq!((mode(&to), mode(&to.join("lib"))), (0o700, 0o2750));
        assert!(!to.join("half").exists() && !sibling(&to).exists());
    }

    #[test]
    fn a_node_that_replaced_a_directory_by_a_link_keeps_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("factory"), directory.path().join("var"));
        tree(&from);
        fs::create_dir(&to).unwrap();
        symlink("/elsewhere", to.join("lib")).unwrap();
        missing(&from, &to).unwrap();
        assert_eq!(fs::read_link(to.join("lib")).unwrap(), Path::new("/elsewhere"));
    }

    #[test]
    fn a_fifo_is_named_and_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir(&from).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = missing(&from, &directory.path().join("to")).unwrap_err();
        assert!(error.to_string().contains("pipe"));
    }
}
