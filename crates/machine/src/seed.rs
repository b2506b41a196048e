//! Copies of directories from the image: complete or only what is missing, with modes, owners and links.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use base::files::{self, Attributes, Directory, EntryKind, Owner};

/// Copies what of `from` is missing in `to`; never changes what is there. An interrupted copy is completed by the next one. Both
/// must be directories; a missing `from` means nothing to copy.
pub fn copy_missing(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let to = Directory::open(to).with_context(|| format!("opening {}", to.display()))?;
    copy_children(from, &to, None)
}

/// Makes `to` a copy of the directory `from`, with `mode` for the directory itself and, if given, one owner for all; a missing
/// `from` is an empty one. It appears under its name only when it is complete. Only root may be able to change the directory that
/// it appears in.
pub fn copy_whole(from: &Path, to: &Path, owner: Option<Owner>, mode: u32) -> Result<()> {
    let (copy, temporary) = begin(to)?;
    let what = || format!("making {}", to.display());
    let mut image = None;
    if from.is_dir() {
        copy_children(from, &copy, owner)?;
        let metadata = fs::metadata(from).with_context(|| format!("reading {}", from.display()))?;
        image = Some(Owner { user: metadata.uid(), group: metadata.gid() });
    }
    copy.set(&Attributes { mode: mode & 0o7777, owner: owner.or(image) }).with_context(what)?;
    fs::rename(&temporary, to).with_context(|| format!("naming {}", to.display()))
}

/// Makes `to` a directory with copies of these files and directories of `from`, under the paths that they have there, and with one
/// file beside them: its name and its content. It appears under its name only when all of it is on the disk.
pub fn copy_selection(from: &Path, to: &Path, paths: &[String], beside: (&str, &[u8])) -> Result<()> {
    let (copied, temporary) = begin(to)?;
    let what = || format!("making {}", to.display());
    for path in paths {
        let path = Path::new(path);
        let mut above = None;
        for name in files::parent(path).iter().filter(|name| *name != ".") {
            let directory: &Directory = above.as_ref().unwrap_or(&copied);
            if directory.entry(name).with_context(what)?.is_none() {
                directory.make(name, 0o755).with_context(what)?;
            }
            above = Some(directory.child(name).with_context(what)?);
        }
        let name = path.file_name().with_context(what)?;
        copy(&from.join(path), above.as_ref().unwrap_or(&copied), name, None)?;
    }
    let (name, bytes) = beside;
    let attributes = Attributes { mode: 0o644, owner: None };
    copied.replace(OsStr::new(name), &attributes, |file| file.write_all(bytes)).with_context(what)?;
    let whole = File::open(&temporary).with_context(what)?;
    nix::unistd::syncfs(&whole).with_context(what)?;
    fs::rename(&temporary, to).with_context(|| format!("naming {}", to.display()))?;
    File::open(files::parent(to)).and_then(|above| above.sync_all()).with_context(what)
}

/// An empty directory beside `to`, and its path, in place of what an interrupted copy left.
fn begin(to: &Path) -> Result<(Directory, PathBuf)> {
    // The name is always the same, so that the leftovers of an interrupted copy are found.
    let temporary = sibling(to);
    let above = to.parent().unwrap_or(Path::new("/"));
    files::make_directory(above, 0o755)?;
    match fs::remove_dir_all(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", temporary.display()));
        }
        _ => {}
    }
    let what = || format!("making {}", to.display());
    let above = Directory::open(above).with_context(what)?;
    let name = temporary.file_name().with_context(what)?;
    above.make(name, 0o700).with_context(what)?;
    let copy = above.child(name).with_context(what)?;
    Ok((copy, temporary))
}

/// A name beside `path` for an incomplete copy.
fn sibling(path: &Path) -> PathBuf {
    let mut name = OsStr::new(".").to_owned();
    name.push(path.file_name().unwrap_or_default());
    name.push(".seed");
    path.with_file_name(name)
}

fn copy_children(from: &Path, to: &Directory, owner: Option<Owner>) -> Result<()> {
    let what = || format!("reading {}", from.display());
    let mut names: Vec<_> = fs::read_dir(from)
        .with_context(what)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<_>>()
        .with_context(what)?;
    names.sort();
    for name in names {
        copy(&from.join(&name), to, &name, owner)?;
    }
    to.sync().with_context(|| format!("copying {}", from.display()))
}

/// Copies `from` into the directory `to`, under `name`.
fn copy(from: &Path, to: &Directory, name: &OsStr, owner: Option<Owner>) -> Result<()> {
    let metadata = fs::symlink_metadata(from).with_context(|| format!("reading {}", from.display()))?;
    let what = || format!("copying {}", from.display());
    let existing = to.entry(name).with_context(what)?;
    let image = Owner { user: metadata.uid(), group: metadata.gid() };
    let owner_there = Some(owner.unwrap_or(image));
    let attributes = Attributes { mode: metadata.permissions().mode() & 0o7777, owner: owner_there };
    let kind = metadata.file_type();
    if kind.is_dir() {
        match existing {
            // A link or file in the place of a directory was put there on the node.
            Some(existing) if existing.kind != EntryKind::Directory => return Ok(()),
            Some(_) => {}
            None => {
                to.make(name, 0o700).with_context(what)?;
                to.child(name).and_then(|made| made.set(&attributes)).with_context(what)?;
            }
        }
        return copy_children(from, &to.child(name).with_context(what)?, owner);
    }
    if existing.is_some() {
        return Ok(());
    }
    if kind.is_symlink() {
        let target = fs::read_link(from).with_context(what)?;
        to.link(name, &target, attributes.owner).with_context(what)
    } else if kind.is_file() {
        // Opened before switching to the file's owner, who may not be able to read the image.
        let mut image = File::open(from).with_context(what)?;
        to.replace(name, &attributes, |file| io::copy(&mut image, file).map(drop)).with_context(what)
    } else {
        bail!("{} is neither a file, a directory nor a link", from.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

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
        copy_missing(&from, &to).unwrap();
        assert_eq!(fs::read_link(to.join("run")).unwrap(), Path::new("/run"));
        assert_eq!(mode(&to.join("lib/inner/file")), 0o640);
        fs::write(to.join("lib/inner/file"), "changed").unwrap();
        copy_missing(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("lib/inner/file")).unwrap(), b"changed");
        assert_eq!(fs::read(to.join("lib/inner/own")).unwrap(), b"node");
        copy_missing(&directory.path().join("absent"), &to).unwrap();
    }

    #[test]
    fn a_whole_copy_replaces_what_an_interrupted_one_left() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("root"), directory.path().join("kept"));
        tree(&from);
        fs::create_dir(sibling(&to)).unwrap();
        fs::write(sibling(&to).join("half"), "").unwrap();
        copy_whole(&from, &to, None, 0o700).unwrap();
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
        copy_missing(&from, &to).unwrap();
        assert_eq!(fs::read_link(to.join("lib")).unwrap(), Path::new("/elsewhere"));
    }

    #[test]
    fn a_copy_for_one_owner_is_that_owners_all_through() {
        if !testing::privileges::root_runs() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("skel"), directory.path().join("home"));
        tree(&from);
        fs::set_permissions(from.join("lib/inner/file"), Permissions::from_mode(0o600)).unwrap();
        copy_whole(&from, &to, Some(Owner { user: 1001, group: 1002 }), 0o700).unwrap();
        for name in ["", "lib", "lib/inner", "lib/inner/file", "run"] {
            let metadata = fs::symlink_metadata(to.join(name)).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (1001, 1002), "{name}");
        }
        assert_eq!(mode(&to.join("lib/inner/file")), 0o600);
    }

    #[test]
    fn what_is_in_the_place_of_the_unfinished_copy_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("factory"), directory.path().join("var"));
        tree(&from);
        fs::create_dir_all(to.join("lib/inner")).unwrap();
        fs::write(directory.path().join("victim"), "victim").unwrap();
        // The names that earlier versions copied to: a directory, which they could not remove, and a link.
        fs::create_dir(to.join("lib/inner/.file.seed")).unwrap();
        symlink(directory.path().join("victim"), to.join(".run.seed")).unwrap();
        copy_missing(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("lib/inner/file")).unwrap(), b"image");
        assert_eq!(fs::read(directory.path().join("victim")).unwrap(), b"victim");
    }

    #[test]
    fn a_fifo_is_named_and_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir(&from).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let to = directory.path().join("to");
        fs::create_dir(&to).unwrap();
        let error = copy_missing(&from, &to).unwrap_err();
        assert!(error.to_string().contains("pipe"));
    }
}
