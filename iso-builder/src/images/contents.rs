//! The entries of a tar file, without its contents: metadata of every entry, and a digest and an offset for every file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use tar::EntryType;

use super::keep::keeps;

/// The entries of a tar file that belong in a layer, by path: relative, without a trailing slash.
#[derive(Clone, Debug, Default)]
pub struct LayerContents {
    pub(super) entries: BTreeMap<Vec<u8>, LayerEntry>,
}

/// One entry. Two entries are equal if a container cannot tell them apart.
#[derive(Clone, Debug)]
pub(super) struct LayerEntry {
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) kind: LayerEntryKind,
}

#[derive(Clone, Debug)]
pub(super) enum LayerEntryKind {
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// Hard links to one file have the same `offset`, the place of its content in the tar file.
    File {
        digest: Digest,
        size: u64,
        offset: u64,
    },
}

impl PartialEq for LayerEntry {
    fn eq(&self, other: &Self) -> bool {
        let kinds = match (&self.kind, &other.kind) {
            (LayerEntryKind::Directory, LayerEntryKind::Directory) => true,
            (LayerEntryKind::Symlink { target: one }, LayerEntryKind::Symlink { target: two }) => one == two,
            (LayerEntryKind::File { digest: one, .. }, LayerEntryKind::File { digest: two, .. }) => {
                one == two
            }
            _ => false,
        };
        kinds && (self.mode, self.uid, self.gid) == (other.mode, other.uid, other.gid)
    }
}

impl LayerContents {
    /// Reads through the uncompressed tar file at `path` once.
    ///
    /// Devices and pipes are left out, and so is what [`keep`](super::keep) drops. A path with `..`, a hard link
    /// without a target and a sparse file are errors.
    pub fn scan(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        Self::read(file).with_context(|| format!("reading the tar file {}", path.display()))
    }

    fn read(file: impl Read) -> Result<Self> {
        // Hard links may name files that are dropped, so files are dropped last.
        let mut all = Self::default();
        for entry in tar::Archive::new(BufReader::with_capacity(1 << 20, file)).entries()? {
            let mut entry = entry?;
            let path = relative(&entry.path_bytes())?;
            if path.is_empty() {
                continue;
            }
            let context = || format!("entry {}", String::from_utf8_lossy(&path));
            if let Some(read) = all.entry(&mut entry).with_context(context)? {
                all.entries.insert(path, read);
            }
        }
        all.entries.retain(|path, entry| keeps(path, matches!(entry.kind, LayerEntryKind::File { .. })));
        Ok(all)
    }

    fn entry<R: Read>(&self, entry: &mut tar::Entry<'_, R>) -> Result<Option<LayerEntry>> {
        let offset = entry.raw_file_position();
        let kind = match entry.header().entry_type() {
            EntryType::Directory => LayerEntryKind::Directory,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().context("a link without a target")?.into_owned();
                LayerEntryKind::Symlink { target }
            }
            EntryType::Regular | EntryType::Continuous => {
                let (digest, size) = Digest::of_reader(&mut *entry)?;
                LayerEntryKind::File { digest, size, offset }
            }
            EntryType::Link => {
                let target = relative(&entry.link_name_bytes().context("a link without a target")?)?;
                let linked =
                    self.entries.get(&target).context("a hard link to something that is not there")?;
                return Ok(Some(linked.clone()));
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo | EntryType::XGlobalHeader => {
                return Ok(None);
            }
            other => bail!("entries of type {other:?} have no place in a layer"),
        };
        let header = entry.header();
        let mode = header.mode()? & 0o7777;
        Ok(Some(LayerEntry { mode, uid: header.uid()?, gid: header.gid()?, kind }))
    }

    /// The entries after `upper` is laid over these.
    #[must_use]
    pub fn under(mut self, upper: &Self) -> Self {
        self.entries.extend(upper.entries.iter().map(|(path, entry)| (path.clone(), entry.clone())));
        self
    }
}

/// `./a/b/` as `a/b`.
fn relative(path: &[u8]) -> Result<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<&[u8]> = parts.collect();
    if parts.contains(&b"..".as_slice()) {
        bail!("the path {} leaves the tar file", String::from_utf8_lossy(path));
    }
    Ok(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            if kind.is_hard_link() || kind.is_symlink() {
                header.set_size(0);
                builder.append_link(&mut header, path, content).unwrap();
            } else {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn devices_are_left_out_and_hard_links_share_their_place() {
        let bytes = tar_of(&[
            ("./bin/one", EntryType::Regular, "content"),
            ("./bin/two", EntryType::Link, "./bin/one"),
            ("./nodes/null", EntryType::Char, ""),
        ]);
        let contents = LayerContents::read(bytes.as_slice()).unwrap();
        let offsets: Vec<_> = contents
            .entries
            .values()
            .filter_map(|entry| match entry.kind {
                LayerEntryKind::File { offset, .. } => Some(offset),
                _ => None,
            })
            .collect();
        assert_eq!(contents.entries.len(), 2);
        assert_eq!(offsets[0], offsets[1]);
        assert_eq!(&bytes[offsets[0] as usize..][..7], b"content");
    }

    proptest::proptest! {
        #[test]
        fn damaged_tar_files_never_panic(at in 0..2048_usize, byte: u8) {
            let mut bytes = tar_of(&[("./bin/one", EntryType::Regular, "content"), ("two", EntryType::Symlink, "x")]);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let _ = LayerContents::read(bytes.as_slice());
        }
    }

    #[test]
    fn links_to_nothing_are_refused() {
        let bytes = tar_of(&[("bin/two", EntryType::Link, "bin/one")]);
        assert!(format!("{:#}", LayerContents::read(bytes.as_slice()).unwrap_err()).contains("bin/two"));
    }

    #[test]
    fn paths_are_made_plain_and_may_not_climb() {
        assert_eq!(relative(b"./a//b/").unwrap(), b"a/b");
        assert_eq!(relative(b"./").unwrap(), b"");
        assert!(relative(b"a/../../b").is_err());
    }
}
