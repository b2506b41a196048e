//! What a directory tree has, in the order of an image.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::attributes::{Attribute, is_kept};
use super::error::TreeImageError;

/// All entries of a tree: names in the order of their bytes, each directory behind what is in it, the root at the end.
pub(super) struct Entries {
    root: PathBuf,
    entries: Vec<ImageEntry>,
}

/// A name in the tree and what it leads to.
pub(super) struct ImageEntry {
    /// Below the root; empty for the root itself.
    pub(super) path: PathBuf,
    pub(super) depth: usize,
    pub(super) kind: ImageEntryKind,
    /// Without the kind.
    pub(super) mode: u16,
    pub(super) user: u32,
    pub(super) group: u32,
    /// In the order of their names.
    pub(super) attributes: Vec<Attribute>,
    /// The number of the first entry that leads to the same file; its own number, if there is none before it.
    pub(super) first: usize,
    /// How many names lead to the file.
    pub(super) names: u32,
}

pub(super) enum ImageEntryKind {
    Directory,
    /// With its length in bytes.
    File(u64),
    /// With its target.
    Link(Vec<u8>),
    /// With its number, as the kernel encodes it in 32 bits.
    BlockDevice(u32),
    CharacterDevice(u32),
    Pipe,
    Socket,
}

impl ImageEntry {
    pub(super) fn name(&self) -> &[u8] {
        self.path.file_name().map_or(&[], |name| name.as_bytes())
    }

    /// The length of a file that is not empty.
    pub(super) fn file_length(&self) -> Option<u64> {
        match self.kind {
            ImageEntryKind::File(length) if length > 0 => Some(length),
            _ => None,
        }
    }
}

impl Entries {
    pub(super) fn read(root: &Path) -> Result<Self, TreeImageError> {
        let mut entries: Vec<ImageEntry> = Vec::new();
        let mut known = HashMap::new();
        for found in WalkDir::new(root).sort_by_file_name().contents_first(true) {
            let found = found.map_err(|error| {
                let path = error.path().map_or_else(PathBuf::new, |path| in_image(root, path));
                TreeImageError::Read { path, source: error.into() }
            })?;
            let failed = |source| TreeImageError::Read { path: in_image(root, found.path()), source };
            let metadata = found.path().symlink_metadata().map_err(failed)?;
            let number = entries.len();
            let node = (metadata.dev(), metadata.ino());
            let first = match metadata.nlink() > 1 && !metadata.is_dir() {
                true => *known.entry(node).or_insert(number),
                false => number,
            };
            let attributes =
                if first == number { attributes(found.path()).map_err(failed)? } else { Vec::new() };
            entries.push(ImageEntry {
                path: found.path().strip_prefix(root).unwrap_or(found.path()).to_owned(),
                depth: found.depth(),
                kind: kind(found.path(), &metadata).map_err(failed)?,
                mode: permissions(&metadata),
                user: metadata.uid(),
                group: metadata.gid(),
                attributes,
                first,
                names: 1,
            });
            if first != number {
                entries[first].names += 1;
            }
        }
        Ok(Self { root: root.to_owned(), entries })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ImageEntry> {
        self.entries.iter()
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Where the entry is on this host.
    pub(super) fn host_path(&self, entry: &ImageEntry) -> PathBuf {
        self.root.join(&entry.path)
    }
}

/// The path in the image of one on this host.
fn in_image(root: &Path, path: &Path) -> PathBuf {
    Path::new("/").join(path.strip_prefix(root).unwrap_or(path))
}

fn permissions(metadata: &Metadata) -> u16 {
    // At most 12 bits.
    #[allow(clippy::cast_possible_truncation)]
    let mode = (metadata.mode() & 0o7777) as u16;
    mode
}

fn kind(path: &Path, metadata: &Metadata) -> io::Result<ImageEntryKind> {
    let kind = metadata.file_type();
    Ok(if kind.is_dir() {
        ImageEntryKind::Directory
    } else if kind.is_symlink() {
        ImageEntryKind::Link(fs::read_link(path)?.into_os_string().into_vec())
    } else if kind.is_block_device() {
        ImageEntryKind::BlockDevice(device_number(metadata.rdev()))
    } else if kind.is_char_device() {
        ImageEntryKind::CharacterDevice(device_number(metadata.rdev()))
    } else if kind.is_fifo() {
        ImageEntryKind::Pipe
    } else if kind.is_socket() {
        ImageEntryKind::Socket
    } else {
        ImageEntryKind::File(metadata.len())
    })
}

/// In 32 bits: the lower 8 bits of the minor number, 12 of the major one, the other 12 of the minor one (`new_encode_dev` of the
/// kernel's `include/linux/kdev_t.h`). What stat(2) tells has these bits at the same places.
fn device_number(number: u64) -> u32 {
    // The kernel has no larger ones.
    #[allow(clippy::cast_possible_truncation)]
    let number = number as u32;
    number
}

fn attributes(path: &Path) -> io::Result<Vec<Attribute>> {
    let mut attributes = Vec::new();
    let names = match xattr::list(path) {
        // Not every file system has them.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(attributes),
        names => names?,
    };
    for name in names.filter(|name| is_kept(name.as_bytes())) {
        if let Some(value) = xattr::get(path, &name)? {
            attributes.push(Attribute { name: name.into_vec(), value });
        }
    }
    attributes.sort();
    Ok(attributes)
}
