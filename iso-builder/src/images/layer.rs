//! One OCI layer: the difference between a tar file and the layers below, the same bytes for the same content.
//!
//! Entries are sorted, carry one time, numeric owners and no extended attributes but capabilities. Layers are gzip, level 6: every
//! OCI tool reads it, while Debian 12's umoci and older registries know no zstd layers. The compressor is
//! pure Rust and gives the same bytes on every processor.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::{Digest, Hasher};
use flate2::{Compression, GzBuilder};
use formats::oci::media_types;
use tar::{EntryType, Header};

use super::blob::Blob;
use super::contents::{LayerContents, LayerEntry, LayerEntryKind};
use super::store::Store;

pub const LAYER_MEDIA_TYPE: &str = media_types::OCI_LAYER_GZIP;

/// The record of the extended header (pax(1), as GNU tar and the OCI image specification have it) with a file's capabilities.
const CAPABILITIES_RECORD: &str = "SCHILY.xattr.security.capability";

const GZIP_LEVEL: Compression = Compression::new(6);
/// The value `unknown` of RFC 1952, so that the bytes do not depend on the system that builds.
const GZIP_SYSTEM_UNKNOWN: u8 = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLayer {
    /// Digest of the uncompressed tar stream.
    pub diff_id: Digest,
    pub blob: Blob,
}

/// Writes the entries of `contents`, which are those of the tar file `source`, that `lower` does not have, into
/// `store`. Every entry gets the time `epoch` (seconds since 1970). File contents are streamed.
pub fn write(
    source: &Path,
    contents: &LayerContents,
    lower: &LayerContents,
    epoch: u64,
    store: &Store,
) -> Result<ImageLayer> {
    let reading = || format!("reading the tar file {}", source.display());
    let mut source = File::open(source).with_context(reading)?;
    let blob = store.blob_writer()?;
    let gzip = GzBuilder::new().mtime(0).operating_system(GZIP_SYSTEM_UNKNOWN).write(blob, GZIP_LEVEL);
    let mut archive =
        Writer { tar: tar::Builder::new(HashingWriter { inner: gzip, hasher: Hasher::default() }), epoch };
    let mut first_names: HashMap<u64, &[u8]> = HashMap::new();
    let new = contents.entries.iter().filter(|(path, entry)| lower.entries.get(*path) != Some(entry));
    for (path, entry) in new {
        let written = match &entry.kind {
            LayerEntryKind::File { offset, size, .. } => match first_names.get(offset) {
                Some(first) => archive.link(path, entry, EntryType::Link, first),
                None => {
                    first_names.insert(*offset, path);
                    source.seek(SeekFrom::Start(*offset)).with_context(reading)?;
                    archive.file(path, entry, *size, &mut source)
                }
            },
            LayerEntryKind::Symlink { target } => archive.link(path, entry, EntryType::Symlink, target),
            LayerEntryKind::Directory => archive.directory(path, entry),
        };
        written.with_context(|| format!("writing {} into a layer", String::from_utf8_lossy(path)))?;
    }
    let tee = archive.tar.into_inner().context("writing a layer")?;
    let blob = tee.inner.finish().context("writing a layer")?.finish()?;
    Ok(ImageLayer { diff_id: tee.hasher.finish(), blob })
}

struct Writer<W: Write> {
    tar: tar::Builder<W>,
    epoch: u64,
}

impl<W: Write> Writer<W> {
    fn header(&self, entry: &LayerEntry, kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.uid);
        header.set_gid(entry.gid);
        header.set_mtime(self.epoch);
        header.set_size(size);
        header
    }

    fn file(&mut self, path: &[u8], entry: &LayerEntry, size: u64, content: impl Read) -> io::Result<()> {
        if let Some(capabilities) = &entry.capabilities {
            self.tar.append_pax_extensions([(CAPABILITIES_RECORD, capabilities.as_slice())])?;
        }
        let mut header = self.header(entry, EntryType::Regular, size);
        let mut content = content.take(size);
        self.tar.append_data(&mut header, as_path(path), &mut content)?;
        // The tar builder trusts the length in the header.
        if content.limit() > 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn directory(&mut self, path: &[u8], entry: &LayerEntry) -> io::Result<()> {
        let mut header = self.header(entry, EntryType::Directory, 0);
        let path = [path, b"/"].concat();
        self.tar.append_data(&mut header, as_path(&path), io::empty())
    }

    fn link(&mut self, path: &[u8], entry: &LayerEntry, kind: EntryType, target: &[u8]) -> io::Result<()> {
        let mut header = self.header(entry, kind, 0);
        // A target that fits is kept literally; `append_link` would normalise it.
        match header.set_link_name_literal(target) {
            Ok(()) => self.tar.append_data(&mut header, as_path(path), io::empty()),
            Err(_) => self.tar.append_link(&mut header, as_path(path), as_path(target)),
        }
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Hashes the bytes that it passes on.
struct HashingWriter<W> {
    inner: W,
    hasher: Hasher,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn source(
        directory: &Path,
        name: &str,
        entries: &[(&str, EntryType, &str)],
        mtime: u64,
    ) -> (std::path::PathBuf, LayerContents) {
        let path = directory.join(name);
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        for (path, kind, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(mtime);
            header.set_username("somebody").unwrap();
            if kind.is_file() {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            } else {
                header.set_size(0);
                match header.set_link_name_literal(content) {
                    Ok(()) => builder.append_data(&mut header, path, io::empty()).unwrap(),
                    Err(_) => builder.append_link(&mut header, path, content).unwrap(),
                }
            }
        }
        builder.finish().unwrap();
        let contents = LayerContents::scan(&path).unwrap();
        (path, contents)
    }

    fn entries(store: &Store, layer: ImageLayer) -> Vec<(String, EntryType, String, String, u64)> {
        let file = BufReader::new(File::open(store.blob_path(layer.blob.digest)).unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
        let read = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let link = entry.link_name_bytes().unwrap_or_default().into_owned();
            let path = entry.path().unwrap().display().to_string();
            let kind = entry.header().entry_type();
            (path, kind, content, String::from_utf8(link).unwrap(), entry.header().mtime().unwrap())
        };
        archive.entries().unwrap().map(read).collect()
    }

    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn order_and_time_of_the_source_do_not_matter() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let one = [("b", FILE, "2"), ("a", FILE, "1"), ("s", EntryType::Symlink, "./x//y")];
        let two = [one[2], one[1], one[0]];
        let layers = [(one, 5), (two, 9)].map(|(entries, mtime)| {
            let (path, contents) = source(directory.path(), "t.tar", &entries, mtime);
            write(&path, &contents, &LayerContents::default(), 7, &store).unwrap()
        });
        assert_eq!(layers[0], layers[1]);
        let names: Vec<_> =
            entries(&store, layers[0]).into_iter().map(|(path, .., mtime)| (path, mtime)).collect();
        assert_eq!(names, [("a".to_owned(), 7), ("b".to_owned(), 7), ("s".to_owned(), 7)]);
        assert_eq!(entries(&store, layers[0])[2].3, "./x//y", "a target is kept to the letter");
    }

    #[test]
    fn a_layer_is_what_the_layers_below_do_not_have() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let (_, lower) = source(directory.path(), "l.tar", &[("same", FILE, "1"), ("changed", FILE, "1")], 1);
        let upper = [("same", FILE, "1"), ("changed", FILE, "2"), ("new", FILE, "3")];
        let (path, contents) = source(directory.path(), "u.tar", &upper, 2);
        let layer = write(&path, &contents, &lower, 0, &store).unwrap();
        let names: Vec<_> = entries(&store, layer).into_iter().map(|(path, ..)| path).collect();
        assert_eq!(names, ["changed", "new"]);
    }

    #[test]
    fn hard_links_stay_links_to_the_first_name_in_the_layer() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let (_, lower) = source(directory.path(), "l.tar", &[("a", FILE, "x")], 1);
        let names = [("c", FILE, "x"), ("b", EntryType::Link, "c"), ("a", EntryType::Link, "c")];
        let (path, contents) = source(directory.path(), "u.tar", &names, 1);
        let layer = write(&path, &contents, &lower, 0, &store).unwrap();
        let read: Vec<_> = entries(&store, layer).into_iter().map(|(p, k, c, l, _)| (p, k, c, l)).collect();
        assert_eq!(read[0], ("b".into(), FILE, "x".into(), String::new()));
        assert_eq!(read[1], ("c".into(), EntryType::Link, String::new(), "b".into()));
    }

    #[test]
    fn long_names_survive() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let (name, target) = ("n/".repeat(120) + "x", "t/".repeat(100) + "y");
        let (path, contents) = source(directory.path(), "u.tar", &[(&name, EntryType::Symlink, &target)], 1);
        let layer = write(&path, &contents, &LayerContents::default(), 0, &store).unwrap();
        let read = entries(&store, layer);
        assert_eq!((&read[0].0, &read[0].3), (&name, &target));
    }

    #[test]
    fn a_source_that_shrank_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let (path, contents) = source(directory.path(), "u.tar", &[("a", FILE, "content")], 1);
        File::options().write(true).open(&path).unwrap().set_len(514).unwrap();
        assert!(write(&path, &contents, &LayerContents::default(), 0, &store).is_err());
    }
}
