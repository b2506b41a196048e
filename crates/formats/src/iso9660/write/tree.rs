//! The directories of an ISO, and the names that ISO 9660 gives them and their files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, ensure};

/// The longest name: a directory record still has room for everything else.
const MAX_NAME: usize = 100;
/// Levels of a path, the file's own included (ECMA-119, 6.8.2.1).
const MAX_DEPTH: usize = 8;
/// Characters of an identifier, without the separators of files (ECMA-119, 7.5.1; 10.3 for level 3).
const MAX_IDENTIFIER: usize = 30;
const MAX_EXTENSION: usize = 8;

/// The directories in the order of the path table: level by level, the root first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) directories: Vec<TreeDirectory>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeDirectory {
    /// Index of the directory above; the root is its own.
    pub(super) parent: usize,
    /// Path from the root, empty for the root itself.
    pub(super) path: String,
    /// The identifier in the path table; one zero byte for the root.
    pub(super) identifier: Vec<u8>,
    /// In the order of their identifiers.
    pub(super) children: Vec<TreeEntry>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    /// The name that people see.
    pub(super) name: String,
    /// The name in ISO 9660's own characters.
    pub(super) identifier: Vec<u8>,
    pub(super) target: EntryTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryTarget {
    /// Index of a directory of the tree.
    Directory(usize),
    /// Index of a file in the list that the tree was made of.
    File(usize),
}

impl TreeDirectory {
    pub(super) fn subdirectories(&self) -> usize {
        self.children.iter().filter(|child| matches!(child.target, EntryTarget::Directory(_))).count()
    }
}

/// A directory while the tree grows.
#[derive(Default)]
struct Node<'a> {
    directories: BTreeMap<&'a str, Node<'a>>,
    files: BTreeMap<&'a str, usize>,
}

impl Tree {
    /// The tree of files with the paths `paths`, parts joined by `/`.
    pub(super) fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut root = Node::default();
        for (index, path) in paths.into_iter().enumerate() {
            root.insert(path, index)?;
        }
        let mut directories = Vec::new();
        let mut waiting = VecDeque::from([(0, String::new(), vec![0], root)]);
        while let Some((parent, path, identifier, node)) = waiting.pop_front() {
            let own = directories.len();
            let mut children = node.name_children();
            for (child, below) in &mut children {
                if let Some(below) = below.take() {
                    child.target = EntryTarget::Directory(own + waiting.len() + 1);
                    let separator = if path.is_empty() { "" } else { "/" };
                    let path = format!("{path}{separator}{}", child.name);
                    waiting.push_back((own, path, child.identifier.clone(), below));
                }
            }
            let children = children.into_iter().map(|(child, _)| child).collect();
            directories.push(TreeDirectory { parent, path, identifier, children });
        }
        Ok(Self { directories })
    }
}

impl<'a> Node<'a> {
    fn insert(&mut self, path: &'a str, index: usize) -> Result<()> {
        ensure!(path.split('/').count() <= MAX_DEPTH, "{path:?} is nested too deeply for an ISO");
        let (above, name) = path.rsplit_once('/').map_or((None, path), |(above, name)| (Some(above), name));
        let mut node = self;
        for part in above.iter().flat_map(|above| above.split('/')) {
            check_name(part, path)?;
            ensure!(!node.files.contains_key(part), "{path:?} goes through a file of the ISO");
            node = node.directories.entry(part).or_default();
        }
        check_name(name, path)?;
        let taken = node.directories.contains_key(name) || node.files.insert(name, index).is_some();
        ensure!(!taken, "{path:?} is on the ISO twice");
        Ok(())
    }

    /// The direct children, in the order of the identifiers, with the nodes of directories.
    fn name_children(self) -> Vec<(TreeEntry, Option<Node<'a>>)> {
        let mut taken = BTreeSet::new();
        let mut children = Vec::new();
        for (name, node) in self.directories {
            let identifier = unique(&mut taken, name, false);
            // The caller knows the number.
            let child = TreeEntry { name: name.to_owned(), identifier, target: EntryTarget::Directory(0) };
            children.push((child, Some(node)));
        }
        for (name, index) in self.files {
            let identifier = unique(&mut taken, name, true);
            children.push((
                TreeEntry { name: name.to_owned(), identifier, target: EntryTarget::File(index) },
                None,
            ));
        }
        children.sort_by(|(a, _), (b, _)| a.identifier.cmp(&b.identifier));
        children
    }
}

fn check_name(name: &str, path: &str) -> Result<()> {
    let plain = !name.is_empty() && !matches!(name, "." | "..") && !name.contains('\0');
    ensure!(plain && name.len() <= MAX_NAME, "{path:?} cannot be the name of a file on an ISO");
    Ok(())
}

/// An identifier for `name` that is not in `taken` yet, where it is put.
fn unique(taken: &mut BTreeSet<Vec<u8>>, name: &str, is_file: bool) -> Vec<u8> {
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if is_file => (restrict(stem), restrict(extension)),
        _ => (restrict(name), String::new()),
    };
    let extension = &extension[..extension.len().min(MAX_EXTENSION)];
    let room = MAX_IDENTIFIER - extension.len();
    let mut number = 0_u32;
    loop {
        let suffix = if number == 0 { String::new() } else { format!("_{number}") };
        let stem = &stem[..stem.len().min(room - suffix.len())];
        let identifier =
            if is_file { format!("{stem}{suffix}.{extension};1") } else { format!("{stem}{suffix}") };
        if taken.insert(identifier.clone().into_bytes()) {
            return identifier.into_bytes();
        }
        number += 1;
    }
}

/// `text` in capital letters, digits and `_` (ECMA-119, 7.4.1).
fn restrict(text: &str) -> String {
    let upper = text.chars().map(|c| c.to_ascii_uppercase());
    upper.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_level_by_level_and_names_in_order() {
        let tree = Tree::new(["b/deep/file", "a/x", "top.txt", "b/y"]).unwrap();
        let seen: Vec<_> = tree
            .directories
            .iter()
            .map(|directory| (directory.parent, String::from_utf8_lossy(&directory.identifier).into_owned()))
            .collect();
        assert_eq!(seen, [(0, "\0".into()), (0, "A".into()), (0, "B".into()), (2, "DEEP".into())]);
        let root: Vec<_> = tree.directories[0].children.iter().map(|child| child.target).collect();
        assert_eq!(root, [EntryTarget::Directory(1), EntryTarget::Directory(2), EntryTarget::File(2)]);
        assert_eq!(tree.directories[2].children[0].target, EntryTarget::Directory(3));
        let paths: Vec<_> = tree.directories.iter().map(|directory| directory.path.as_str()).collect();
        assert_eq!(paths, ["", "a", "b", "b/deep"]);
    }

    #[test]
    fn identifiers_are_short_plain_and_different() {
        let long = "0123456789abcdef".repeat(4);
        let other = format!("{}x", &long[..63]);
        let tree = Tree::new([&*long, &other, "release.json", "Größe"]).unwrap();
        let names: Vec<_> = tree.directories[0]
            .children
            .iter()
            .map(|child| String::from_utf8_lossy(&child.identifier).into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "0123456789ABCDEF0123456789ABCD.;1",
                "0123456789ABCDEF0123456789AB_1.;1",
                "GR__E.;1",
                "RELEASE.JSON;1"
            ]
            .map(String::from)
        );
    }

    #[test]
    fn impossible_paths_are_refused() {
        for paths in [
            &["a", "a"][..],
            &["a/b", "a"],
            &["a", "a/b"],
            &["a//b"],
            &["../a"],
            &["1/2/3/4/5/6/7/8/9"],
            &[&"n".repeat(101)],
        ] {
            assert!(Tree::new(paths.iter().copied()).is_err(), "{paths:?}");
        }
    }
}
