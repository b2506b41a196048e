//! What applying a node document writes: a set of files, made without looking at any machine.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;

use base::digest::Digest;
use base::files::{Attributes, Owner, Root};

/// The first line of every file that can hold a comment.
pub const NOTE: &str = "# Written by `installer apply` from /oem/node.yaml; changes here do not last.\n";

/// The characters with a meaning inside double quotes in an environment file of systemd.
const VALUE_ENDS: &[char] = &['"', '\\', '$', '`'];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    #[default]
    File,
    /// A symbolic link; the content is its target.
    Link,
}

/// One file, or one link, to be written below a root.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeFile {
    pub path: String,
    pub bytes: Vec<u8>,
    /// Permissions; links have none.
    pub mode: u32,
    pub kind: FileKind,
}

impl NodeFile {
    pub fn new(path: &str, mode: u32, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), bytes: text.into().into_bytes(), mode, kind: FileKind::File }
    }

    /// A symbolic link to `target`, which need not exist.
    #[must_use]
    pub fn link(path: &str, target: &str) -> Self {
        Self { path: path.to_owned(), bytes: target.as_bytes().to_vec(), mode: 0o777, kind: FileKind::Link }
    }
}

impl fmt::Debug for NodeFile {
    /// Content is shown as its digest only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:o} {}", self.path, self.mode, Digest::of(&self.bytes))
    }
}

/// A line of a file that a unit reads with `EnvironmentFile=`, where the value in double quotes is unquoted once
/// (systemd.exec(5)).
pub fn environment_line(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"\n", escaped(value, VALUE_ENDS))
}

/// `text` with a backslash before each of `special`.
pub fn escaped(text: &str, special: &[char]) -> String {
    let escape = |c: char| special.contains(&c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

/// Writes one file or link unless it is there already, and says whether it wrote.
pub fn write(root: &Root, file: &NodeFile) -> Result<bool> {
    if file.kind == FileKind::Link {
        return root.link(&file.path, Path::new(OsStr::from_bytes(&file.bytes)));
    }
    // Files of the node belong to root. The group is the image's: `shadow` has its own.
    let existing = root.status(&file.path)?.filter(|existing| existing.owner.user == 0);
    let owner = Owner { user: 0, group: existing.map_or(0, |existing| existing.owner.group) };
    root.write(&file.path, &file.bytes, Attributes { mode: file.mode, owner: Some(owner) })
}
