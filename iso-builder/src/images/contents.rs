//! The entries of a tar file, without its contents: metadata of every entry, and a digest and an offset for every file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use tar::EntryType;

use super::keep::{keeps, keeps_installed};

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
    /// The value of the extended attribute `security.capability`.
    pub(super) capabilities: Option<[u8; 20]>,
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
        let facts = |entry: &Self| (entry.mode, entry.uid, entry.gid, entry.capabilities);
        kinds && facts(self) == facts(other)
    }
}

impl LayerContents {
    /// Reads through the uncompressed tar file at `path` once.
    ///
    /// Devices and pipes are left out, and so is what [`keep`](super::keep) drops. A path with `..`, a hard link
    /// without a target and a sparse file are errors.
    pub fn scan(path: &Path) -> Result<Self> {
        Self::scan_kept(path, keeps)
    }

    /// As [`scan`](Self::scan), for a system that is installed: it keeps the records of its package manager.
    pub fn scan_installed(path: &Path) -> Result<Self> {
        Self::scan_kept(path, keeps_installed)
    }

    fn scan_kept(path: &Path, keeps: fn(&[u8], bool) -> bool) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        Self::read(file, keeps).with_context(|| format!("reading the tar file {}", path.display()))
    }

    /// True if there is something at `path`.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path.as_bytes())
    }

    /// Gives the program at `path` a capability, by its number in capabilities(7), in place of the rights of its owner.
    ///
    /// # Errors
    /// There is no file at `path`.
    pub fn grant(&mut self, path: &str, capability: u32) -> Result<()> {
        let entry = self.entries.get_mut(path.as_bytes());
        let entry = entry.filter(|entry| matches!(entry.kind, LayerEntryKind::File { .. }));
        let entry = entry.with_context(|| format!("finding the program {path}"))?;
        entry.mode &= 0o777;
        entry.capabilities = Some(file_capability(capability));
        Ok(())
    }

    fn read(file: impl Read, keeps: fn(&[u8], bool) -> bool) -> Result<Self> {
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
                let linked = self.entries.get(&target).context("a hard link to a missing file")?;
                return Ok(Some(linked.clone()));
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo | EntryType::XGlobalHeader => {
                return Ok(None);
            }
            other => bail!("a layer cannot have entries of type {other:?}"),
        };
        let header = entry.header();
        let mode = header.mode()? & 0o7777;
        Ok(Some(LayerEntry { mode, uid: header.uid()?, gid: header.gid()?, capabilities: None, kind }))
    }

    /// The entries after `upper` is laid over these.
    #[must_use]
    pub fn under(mut self, upper: &Self) -> Self {
        self.entries.extend(upper.entries.iter().map(|(path, entry)| (path.clone(), entry.clone())));
        self
    }
}

/// One capability, permitted and effective: `struct vfs_cap_data` of `linux/capability.h`, revision 2.
fn file_capability(capability: u32) -> [u8; 20] {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    let permitted = 1_u64 << capability;
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&REVISION_2_EFFECTIVE.to_le_bytes());
    // Both halves are followed by those of the inheritable set, which is empty.
    let (low, high) = (permitted as u32, (permitted >> 32) as u32);
    bytes[4..8].copy_from_slice(&low.to_le_bytes());
    bytes[12..16].copy_from_slice(&high.to_le_bytes());
    bytes
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
        let contents = LayerContents::read(bytes.as_slice(), keeps).unwrap();
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
            let _ = LayerContents::read(bytes.as_slice(), keeps);
        }
    }

    #[test]
    fn a_capability_takes_the_place_of_the_owners_rights() {
        let mut contents =
            LayerContents::read(tar_of(&[("bin/map", EntryType::Regular, "x")]).as_slice(), keeps).unwrap();
        let before = contents.clone();
        contents.grant("bin/map", 7).unwrap();
        let (path, entry) = contents.entries.first_key_value().unwrap();
        assert_eq!(hex::encode(entry.capabilities.unwrap()), "0100000280000000000000000000000000000000");
        assert_ne!(before.entries.get(path), Some(entry), "layers above have to bring it");
        assert!(contents.grant("bin/other", 7).is_err());
        assert_eq!(hex::encode(file_capability(33)), "0100000200000000000000000200000000000000");
    }

    #[test]
    fn links_to_nothing_are_refused() {
        let bytes = tar_of(&[("bin/two", EntryType::Link, "bin/one")]);
        assert!(
            format!("{:#}", LayerContents::read(bytes.as_slice(), keeps).unwrap_err()).contains("bin/two")
        );
    }

    #[test]
    fn paths_are_made_plain_and_may_not_climb() {
        assert_eq!(relative(b"./a//b/").unwrap(), b"a/b");
        assert_eq!(relative(b"./").unwrap(), b"");
        assert!(relative(b"a/../../b").is_err());
    }
}
