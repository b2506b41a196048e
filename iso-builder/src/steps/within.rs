//! Paths of a tree as the tree's own system would resolve them. A link of an untrusted tree may be absolute or climb,
//! as `/var/run -> /run` does in Debian; followed from outside it would lead to files of the host.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The kernel's limit of links in one path.
const MAX_LINKS: u32 = 40;

/// The result of resolving a path of a tree.
#[derive(Debug, PartialEq, Eq)]
struct ResolvedPath {
    /// Without any link, relative to the tree's root.
    path: PathBuf,
    /// The first link on the way that would lead out of the tree if it were followed from outside.
    leaves_by: Option<PathBuf>,
}

/// The host's path of `path` inside the tree at `root`; links are followed as if `root` was `/`.
pub(super) fn within(root: &Path, path: &Path) -> Result<PathBuf> {
    Ok(root.join(place(root, path)?.path))
}

/// [`within`] without following a link in the last component.
pub(super) fn link_within(root: &Path, path: &Path) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("{} names nothing", path.display()))?;
    Ok(within(root, path.parent().unwrap_or(Path::new("")))?.join(name))
}

fn place(root: &Path, path: &Path) -> Result<ResolvedPath> {
    let mut place = ResolvedPath { path: PathBuf::new(), leaves_by: None };
    // Each component with the path of the link that it comes from.
    let mut pending: Vec<(OsString, PathBuf)> = parts(path, Path::new(""));
    let mut links = 0;
    while let Some((part, of)) = pending.pop() {
        if part == ".." {
            if !place.path.pop() {
                place.leaves_by.get_or_insert(of);
            }
            continue;
        }
        let next = place.path.join(&part);
        let Ok(link) = fs::read_link(root.join(&next)) else {
            place.path = next;
            continue;
        };
        links += 1;
        ensure!(links <= MAX_LINKS, "{} leads through more than {MAX_LINKS} links", path.display());
        if link.is_absolute() {
            place.path = PathBuf::new();
            place.leaves_by.get_or_insert_with(|| next.clone());
        }
        pending.extend(parts(&link, &next));
    }
    Ok(place)
}

/// The components of a path that matter, last first.
fn parts(path: &Path, of: &Path) -> Vec<(OsString, PathBuf)> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some((name.to_owned(), of.to_owned())),
        Component::ParentDir => Some(("..".into(), of.to_owned())),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// Links of a tree that are replaced for the time in which a program works on the tree that would follow them out of
/// it.
#[derive(Debug)]
pub(super) struct RedirectedLinks<'a> {
    root: &'a Path,
    links: Vec<RedirectedLink>,
}

#[derive(Debug)]
struct RedirectedLink {
    place: PathBuf,
    original: PathBuf,
    turned: PathBuf,
}

impl<'a> RedirectedLinks<'a> {
    /// No links yet, of the tree at `root`.
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root, links: Vec::new() }
    }

    /// Makes sure that `directory`, resolved from outside, is where the tree's own system sees it.
    pub(super) fn make_safe(&mut self, directory: &Path) -> Result<()> {
        while let Some(link) = place(self.root, directory)?.leaves_by {
            // Callers never pass a path with `..`, which would be an endless loop.
            ensure!(!link.as_os_str().is_empty(), "{} leads out of the tree", directory.display());
            let up = link.components().skip(1).map(|_| "..").collect::<PathBuf>();
            let turned = up.join(".").join(place(self.root, &link)?.path);
            let original = fs::read_link(self.root.join(&link))?;
            replace(&self.root.join(&link), &turned)?;
            self.links.push(RedirectedLink { place: link, original, turned });
        }
        Ok(())
    }

    /// Restores the replaced links that are still there.
    pub(super) fn restore(self) -> Result<()> {
        for link in self.links.into_iter().rev() {
            let path = self.root.join(&link.place);
            if fs::read_link(&path).is_ok_and(|now| now == link.turned) {
                replace(&path, &link.original)?;
            }
        }
        Ok(())
    }
}

/// Gives a link another target; its owner stays.
fn replace(path: &Path, target: &Path) -> Result<()> {
    let turn = || {
        let owner = fs::symlink_metadata(path)?;
        fs::remove_file(path)?;
        symlink(target, path)?;
        lchown(path, Some(owner.uid()), Some(owner.gid()))
    };
    turn().with_context(|| format!("replacing the link {}", path.display()))
}

/// True if `name` is one directory entry, so that joining it to a directory stays in that directory.
pub(super) fn is_plain_name(name: &OsStr) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(links: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in ["run", "var", "usr/lib", "data"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for (link, target) in links {
            symlink(target, directory.path().join(link)).unwrap();
        }
        directory
    }

    #[test]
    fn links_lead_where_the_trees_own_system_sees_them() {
        let tree = tree(&[
            ("var/run", "/run"),
            ("lib", "usr/lib"),
            ("var/up", "../../../../data"),
            ("run/a", "/lib"),
        ]);
        let root = tree.path();
        for (path, found) in [
            ("var/run/x", "run/x"),
            ("lib/x", "usr/lib/x"),
            ("var/up/x", "data/x"),
            ("var/run/a/x", "usr/lib/x"),
            ("no/such", "no/such"),
        ] {
            assert_eq!(within(root, Path::new(path)).unwrap(), root.join(found), "{path}");
        }
        assert_eq!(link_within(root, Path::new("var/run/a")).unwrap(), root.join("run/a"));
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let tree = tree(&[("a", "/b"), ("b", "/a")]);
        assert!(within(tree.path(), Path::new("a/x")).is_err());
    }

    #[test]
    fn turned_links_stay_inside_and_come_back() {
        let tree = tree(&[("var/run", "/run"), ("run/up", "../var/../../../data"), ("lib", "usr/lib")]);
        let root = tree.path();
        let mut turned = RedirectedLinks::new(root);
        for directory in ["var/run/up", "lib", "var/run"] {
            turned.make_safe(Path::new(directory)).unwrap();
        }
        assert_eq!(turned.links.len(), 2);
        fs::write(root.join("var/run/up/file"), "x").unwrap();
        assert!(root.join("data/file").is_file());
        turned.restore().unwrap();
        assert_eq!(fs::read_link(root.join("var/run")).unwrap(), Path::new("/run"));
        assert_eq!(fs::read_link(root.join("run/up")).unwrap(), Path::new("../var/../../../data"));
    }

    #[test]
    fn names_that_are_no_entry_of_a_directory_are_known() {
        assert!(is_plain_name(OsStr::new("file")) && is_plain_name(OsStr::new("...")));
        for name in ["", ".", "..", "a/b", "/"] {
            assert!(!is_plain_name(OsStr::new(name)), "{name}");
        }
    }
}
