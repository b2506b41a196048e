//! What differs between two OS images, and between two initial RAM file systems: path by path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use formats::initrd;
use walkdir::WalkDir;

use crate::files::digest_of_file;
use crate::namespaces::remove_tree;

/// Where `unsquashfs` says that files are.
const LISTED_ROOT: &str = "squashfs-root";
/// The fields before the path in a line of its list: mode, owner, length, day, hour.
const LISTED_FIELDS: usize = 5;
const LISTED_LENGTH: usize = 2;

/// The files of a tree by their paths.
type Tree = BTreeMap<String, TreeEntry>;

/// What is compared of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TreeEntry {
    /// Mode, and what else the archive says of it.
    attributes: String,
    /// None for a directory, a link, a device.
    content: Option<Digest>,
}

/// A path of two trees that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathDifference {
    Removed(String),
    Added(String),
    Content(String),
    Attributes { path: String, first: String, again: String },
}

impl fmt::Display for PathDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed(path) => write!(f, "{path}: only in the release"),
            Self::Added(path) => write!(f, "{path}: only in what was built now"),
            Self::Content(path) => write!(f, "{path}: another content"),
            Self::Attributes { path, first, again } => {
                write!(f, "{path}: {first} in the release, {again} now")
            }
        }
    }
}

/// Compares two OS images, squashfs images at these paths. They are unpacked below `scratch`.
///
/// # Errors
/// If one of them cannot be unpacked.
pub(super) fn of_os_images(first: &Path, again: &Path, scratch: &Path) -> Result<Vec<PathDifference>> {
    Ok(differences(&of_squashfs(first, scratch)?, &of_squashfs(again, scratch)?))
}

/// Compares two initial RAM file systems, as a boot loader reads them.
///
/// # Errors
/// If one of them cannot be unpacked.
pub(super) fn of_initrds(first: &Path, again: &Path, scratch: &Path) -> Result<Vec<PathDifference>> {
    Ok(differences(&of_initrd(first, scratch)?, &of_initrd(again, scratch)?))
}

/// Copies what `from` gives into a file below `scratch`, for [`of_os_images`] and [`of_initrds`].
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn copied(mut from: impl Read, scratch: &Path, name: &str) -> Result<PathBuf> {
    let path = scratch.join(name);
    let mut to = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    io::copy(&mut from, &mut to).with_context(|| format!("copying to {}", path.display()))?;
    Ok(path)
}

fn differences(first: &Tree, again: &Tree) -> Vec<PathDifference> {
    let paths: BTreeSet<_> = first.keys().chain(again.keys()).collect();
    let compared = |path: &&String| {
        let path = (*path).clone();
        match (first.get(&path), again.get(&path)) {
            (Some(_), None) => Some(PathDifference::Removed(path)),
            (None, Some(_)) => Some(PathDifference::Added(path)),
            (Some(one), Some(other)) if one.content != other.content => Some(PathDifference::Content(path)),
            (Some(one), Some(other)) if one != other => Some(PathDifference::Attributes {
                path,
                first: one.attributes.clone(),
                again: other.attributes.clone(),
            }),
            _ => None,
        }
    };
    paths.iter().filter_map(compared).collect()
}

fn of_initrd(initrd: &Path, scratch: &Path) -> Result<Tree> {
    let what = || format!("unpacking {}", initrd.display());
    let mut packed = File::open(initrd).with_context(what)?;
    let mut plain = tempfile::tempfile_in(scratch).with_context(what)?;
    initrd::unpack(&mut packed, &mut plain).with_context(what)?;
    let entries = initrd::entries(&mut plain).with_context(what)?;
    let entry = |(path, entry): (String, initrd::ArchiveEntry)| {
        let attributes = format!("mode {:o}", entry.mode);
        (path, TreeEntry { attributes, content: Some(entry.content) })
    };
    Ok(entries.into_iter().map(entry).collect())
}

fn of_squashfs(image: &Path, scratch: &Path) -> Result<Tree> {
    let list = Invocation::new("unsquashfs").arg("-lln").arg(image);
    let list = SystemRunner.run(&list).with_context(|| format!("listing {}", image.display()))?;
    let mut tree = listed(&String::from_utf8_lossy(&list));
    let root = scratch.join("unpacked");
    // Owners and capabilities are not given to files of this machine; the list has the owners.
    let unpack = Invocation::new("unsquashfs")
        .args(["-no-progress", "-no-xattrs", "-quiet", "-dest"])
        .arg(&root)
        .arg(image)
        .limit(std::time::Duration::from_secs(1800));
    SystemRunner.run(&unpack).with_context(|| format!("unpacking {}", image.display()))?;
    for entry in WalkDir::new(&root) {
        let entry = entry.context("reading an unpacked OS image")?;
        let path = entry.path().strip_prefix(&root)?.to_string_lossy().into_owned();
        if let Some(known) = tree.get_mut(&path).filter(|_| entry.file_type().is_file()) {
            known.content = Some(digest_of_file(entry.path())?.0);
        }
    }
    remove_tree(&root)?;
    Ok(tree)
}

/// The list of `unsquashfs -lln`: a line for each path, with mode, owner, length and time before it.
fn listed(list: &str) -> Tree {
    let entry = |line: &str| {
        let mut rest = line;
        for _ in 0..LISTED_FIELDS {
            rest = rest.trim_start().split_once(' ')?.1;
        }
        // A link has its target behind its path; it belongs to what is compared.
        let (path, target) = rest.split_once(" -> ").unwrap_or((rest, ""));
        let path = path.strip_prefix(LISTED_ROOT)?.trim_start_matches('/').to_owned();
        let mut fields: Vec<_> = line[..line.len() - rest.len()].split_whitespace().collect();
        // The length of a directory only says how long the names in it are.
        if line.starts_with('d') {
            fields.remove(LISTED_LENGTH);
        }
        fields.extend(Some(target).filter(|target| !target.is_empty()));
        Some((path, TreeEntry { attributes: fields.join(" "), content: None }))
    };
    list.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn image(directory: &Path, name: &str, change: impl FnOnce(&Path)) -> PathBuf {
        let (tree, image) = (directory.join(format!("{name}.tree")), directory.join(name));
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::write(tree.join("usr/bin/tool"), "the program").unwrap();
        fs::write(tree.join("usr/a file with spaces"), "text").unwrap();
        symlink("bin/tool", tree.join("usr/link")).unwrap();
        change(&tree);
        let pack = Invocation::new("mksquashfs").arg(&tree).arg(&image).args([
            "-all-root",
            "-all-time",
            "0",
            "-mkfs-time",
            "0",
            "-quiet",
            "-no-progress",
        ]);
        SystemRunner.run(&pack).unwrap();
        image
    }

    #[test]
    fn every_path_of_an_os_image_that_differs_is_told_and_how() {
        let directory = tempfile::tempdir().unwrap();
        let first = image(directory.path(), "first", |tree| {
            fs::write(tree.join("removed"), "x").unwrap();
        });
        let again = image(directory.path(), "again", |tree| {
            fs::write(tree.join("usr/bin/tool"), "the PROGRAM").unwrap();
            fs::write(tree.join("usr/added"), "x").unwrap();
            let file = tree.join("usr/a file with spaces");
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
            fs::remove_file(tree.join("usr/link")).unwrap();
            symlink("bin/other", tree.join("usr/link")).unwrap();
        });
        assert_eq!(of_os_images(&first, &first, directory.path()).unwrap(), []);
        let told = of_os_images(&first, &again, directory.path()).unwrap();
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        let day = "1970-01-01 00:00";
        assert_eq!(
            told,
            [
                "removed: only in the release".to_owned(),
                format!(
                    "usr/a file with spaces: -rw-r--r-- 0/0 4 {day} in the release, -rw------- 0/0 4 {day} now"
                ),
                "usr/added: only in what was built now".to_owned(),
                "usr/bin/tool: another content".to_owned(),
                format!(
                    "usr/link: lrwxrwxrwx 0/0 8 {day} bin/tool in the release, lrwxrwxrwx 0/0 9 {day} bin/other now"
                ),
            ]
        );
        assert!(of_os_images(&first, &directory.path().join("absent"), directory.path()).is_err());
    }

    #[test]
    fn every_path_of_an_initrd_that_differs_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let packed = |name: &str, files: &[(&str, &[u8], bool)]| {
            let files: Vec<_> = files
                .iter()
                .map(|&(path, content, executable)| initrd::ArchivedFile { path, content, executable })
                .collect();
            let path = directory.path().join(name);
            let mut out = File::create(&path).unwrap();
            initrd::pack(&mut io::Cursor::new(initrd::archive(&files)), &mut out).unwrap();
            path
        };
        let first = packed("first", &[("init", b"1", true), ("etc/a", b"a", false), ("old", b"", false)]);
        let again = packed("again", &[("init", b"2", true), ("etc/a", b"a", true)]);
        let told = of_initrds(&first, &again, directory.path()).unwrap();
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        let expected = [
            "etc/a: mode 100644 in the release, mode 100755 now",
            "init: another content",
            "old: only in the release",
        ];
        assert_eq!(told, expected);
        assert_eq!(of_initrds(&again, &again, directory.path()).unwrap(), []);
    }
}
