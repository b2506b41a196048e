//! One pass over an archive: every member is hashed on its way into the store's directory, where it stays without a
//! name.
//!
//! The index often comes last in an archive, so everything has to be kept until then. Layers of Docker's form are
//! compressed on the way: nothing is stored twice, or larger than in the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base::digest::{Digest, Hasher, HashingReader};
use base::failure::{Class, Failure};
use formats::oci::{Descriptor, media_types};

use super::super::blob::Blob;
use super::super::blob_writer::LooseBlob;
use super::super::store::Store;
use super::blobs::{BlobSource, PIECE_BYTES, compare, copy, fill};
use super::source::MAX_DOCUMENT_BYTES;
use crate::archive::members::{inside, linked};
use crate::archive::{ArchiveMembers, Compression, MemberKind, compression};
use crate::files::ReportingReader;

/// More members than any archive of images has, and longer paths; each takes some memory.
const MAX_MEMBERS: usize = 50_000;
const MAX_PATH_BYTES: usize = 512;
/// How many links may be followed to reach a member.
const MAX_LINKS: usize = 16;
/// The compression level of layers.
const ZSTD_LEVEL: i32 = 3;

/// The members of an archive.
#[derive(Debug)]
pub(super) struct Spool<'a> {
    store: &'a Store,
    /// `index.json`.
    pub(super) index: Option<Vec<u8>>,
    /// `manifest.json`.
    pub(super) manifest: Option<Vec<u8>>,
    items: HashMap<Vec<u8>, SpooledMember>,
}

#[derive(Debug)]
enum SpooledMember {
    /// Unchanged.
    Plain(HeldFile),
    /// A layer that was an uncompressed tar stream with this digest, and is compressed now.
    Layer(Digest, HeldFile),
    Link(Vec<u8>),
    /// A link to a path outside the archive.
    Astray,
}

/// A file before and after it got its name.
#[derive(Debug)]
enum HeldFile {
    Loose(LooseBlob),
    Placed(Blob),
}

/// A layer that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpooledLayer {
    /// Digest of the uncompressed tar stream.
    pub(super) diff_id: Digest,
    pub(super) media_type: &'static str,
    pub(super) blob: Blob,
}

/// Reads the archive at `path`, and computes its digest.
pub(super) fn read<'a>(
    path: &Path,
    store: &'a Store,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(Spool<'a>, Digest)> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut file = HashingReader::new(ReportingReader::new(file, on_bytes));
    let mut spool = Spool { store, index: None, manifest: None, items: HashMap::new() };
    let plain = compression::plain(BufReader::with_capacity(PIECE_BYTES, &mut file))
        .map_err(|e| unreadable(path, e))?;
    let mut members = ArchiveMembers::new(plain);
    while let Some(member) = members.advance().map_err(|error| unreadable(path, error))? {
        let name: String = String::from_utf8_lossy(&member.path).chars().take(MAX_PATH_BYTES).collect();
        let content = MemberContent { members: &mut members, path };
        let spooled = spool.member(&member.path, member.kind, content);
        spooled.with_context(|| format!("reading {name:?} in {}", path.display()))?;
    }
    drop(members.finish().map_err(|error| unreadable(path, error))?);
    // Bytes behind the last frame of a compressed archive are part of the digest as well.
    io::copy(&mut file, &mut io::sink()).map_err(|error| unreadable(path, error))?;
    Ok((spool, file.digest()))
}

/// The failure of reading an archive: the archive's own fault, or the disk's.
fn unreadable(path: &Path, error: io::Error) -> Failure {
    let class = if error.raw_os_error().is_some() { Class::DiskIo } else { Class::Invalid };
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow!("it is truncated"),
        _ => error.into(),
    };
    let failure = Failure::new(class, format!("{} is not a readable archive of images", path.display()));
    failure.because(why).hint("Copy or download the archive again.")
}

fn refuse(why: &str) -> anyhow::Error {
    Failure::new(Class::Invalid, why).hint("Make the archive again, for instance with `skopeo copy`.").into()
}

impl Spool<'_> {
    fn member(&mut self, path: &[u8], kind: MemberKind, mut content: impl Read) -> Result<()> {
        let Some(path) = inside(path) else {
            return Err(refuse("a path leads out of the archive"));
        };
        if path.len() > MAX_PATH_BYTES || self.items.len() >= MAX_MEMBERS {
            return Err(refuse("it has more members, or longer paths, than any archive of images"));
        }
        let item = match kind {
            MemberKind::File(_) if path == b"index.json" => return keep(&mut self.index, content),
            MemberKind::File(_) if path == b"manifest.json" => return keep(&mut self.manifest, content),
            MemberKind::File(_) => self.file(&path, &mut content)?,
            MemberKind::Symlink(target) => {
                linked(&path, &target).map_or(SpooledMember::Astray, SpooledMember::Link)
            }
            MemberKind::HardLink(target) => {
                inside(&target).map_or(SpooledMember::Astray, SpooledMember::Link)
            }
            MemberKind::Directory | MemberKind::Other => return Ok(()),
        };
        match self.items.entry(path) {
            Entry::Vacant(new) => drop(new.insert(item)),
            Entry::Occupied(old) if same(old.get(), &item) => {}
            Entry::Occupied(_) => return Err(refuse("the archive has it twice, with different content")),
        }
        Ok(())
    }

    fn file(&self, path: &[u8], content: &mut impl Read) -> Result<SpooledMember> {
        let mut head = vec![0; 512];
        let length = fill(content, &mut head)?;
        head.truncate(length);
        let content = head.chain(content);
        // A blob is named by its digest, so it is kept unchanged.
        if !path.starts_with(b"blobs/") && (path.ends_with(b".tar") || is_tar(&head)) && is_bare(&head) {
            let (diff_id, loose) = compress(content, self.store)?;
            return Ok(SpooledMember::Layer(diff_id, HeldFile::Loose(loose)));
        }
        Ok(SpooledMember::Plain(HeldFile::Loose(copy(content, self.store)?)))
    }

    /// The member at `path`, with links followed.
    fn item(&mut self, path: &[u8]) -> Result<&mut SpooledMember> {
        let mut path = inside(path).ok_or_else(|| refuse("a path leads out of the archive"))?;
        for _ in 0..MAX_LINKS {
            match self.items.get(&path) {
                Some(SpooledMember::Link(target)) => path.clone_from(target),
                Some(SpooledMember::Astray) => return Err(refuse("a link leads out of the archive")),
                _ => {
                    let missing = || format!("{} is not in the archive", String::from_utf8_lossy(&path));
                    let failure = || Failure::new(Class::Verification, missing());
                    return Ok(self.items.get_mut(&path).ok_or_else(failure)?);
                }
            }
        }
        Err(refuse("links of the archive form a loop"))
    }

    /// Puts the member at `path` into the store, unchanged.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<Blob> {
        let store = self.store;
        match self.item(path)? {
            SpooledMember::Plain(held) => held.place(store),
            _ => Err(refuse("a document of an image is a tar archive")),
        }
    }

    pub(super) fn digest(&mut self, path: &[u8]) -> Result<Digest> {
        match self.item(path)? {
            SpooledMember::Plain(held) => Ok(held.blob().digest),
            _ => Err(refuse("a document of an image is a tar archive")),
        }
    }

    /// Puts the layer at `path` into the store, compressed.
    pub(super) fn place_layer(&mut self, path: &[u8]) -> Result<SpooledLayer> {
        let store = self.store;
        let item = self.item(path)?;
        if let SpooledMember::Plain(held) = item {
            let file = match held {
                HeldFile::Loose(loose) => loose.path().to_owned(),
                HeldFile::Placed(blob) => store.blob_path(blob.digest),
            };
            let reading = || "reading a layer".to_owned();
            let mut file = BufReader::with_capacity(PIECE_BYTES, File::open(file).with_context(reading)?);
            let compression =
                Compression::of(io::BufRead::fill_buf(&mut file)?).map_err(|e| refuse(&e.to_string()))?;
            let media_type = match compression {
                Compression::Gzip => media_types::OCI_LAYER_GZIP,
                Compression::Zstd => media_types::OCI_LAYER_ZSTD,
                Compression::None => {
                    let (diff_id, loose) = compress(file, store)?;
                    *item = SpooledMember::Layer(diff_id, HeldFile::Loose(loose));
                    return item.layer(store);
                }
            };
            let (diff_id, _) = Digest::of_reader(compression.undo(file)?).map_err(|error| {
                Failure::new(Class::Verification, "a layer cannot be decompressed").because(error)
            })?;
            return Ok(SpooledLayer { diff_id, media_type, blob: held.place(store)? });
        }
        item.layer(store)
    }
}

impl SpooledMember {
    fn layer(&mut self, store: &Store) -> Result<SpooledLayer> {
        let Self::Layer(diff_id, held) = self else { bail!("a member of an archive is no layer") };
        Ok(SpooledLayer {
            diff_id: *diff_id,
            media_type: media_types::OCI_LAYER_ZSTD,
            blob: held.place(store)?,
        })
    }
}

impl HeldFile {
    fn blob(&self) -> Blob {
        match self {
            Self::Loose(loose) => loose.blob(),
            Self::Placed(blob) => *blob,
        }
    }

    fn place(&mut self, store: &Store) -> Result<Blob> {
        let blob = self.blob();
        if let Self::Loose(loose) = std::mem::replace(self, Self::Placed(blob)) {
            loose.place(store)?;
        }
        Ok(blob)
    }
}

impl BlobSource for Spool<'_> {
    fn place(&mut self, descriptor: &Descriptor) -> Result<Blob> {
        let path = format!("blobs/sha256/{}", descriptor.digest);
        let store = self.store;
        let SpooledMember::Plain(held) = self.item(path.as_bytes())? else { bail!("a blob is compressed") };
        compare(descriptor, held.blob())?;
        held.place(store)
    }
}

fn same(one: &SpooledMember, other: &SpooledMember) -> bool {
    match (one, other) {
        (SpooledMember::Plain(one), SpooledMember::Plain(other))
        | (SpooledMember::Layer(_, one), SpooledMember::Layer(_, other)) => one.blob() == other.blob(),
        (SpooledMember::Link(one), SpooledMember::Link(other)) => one == other,
        _ => false,
    }
}

/// Keeps a document in memory.
fn keep(place: &mut Option<Vec<u8>>, content: impl Read) -> Result<()> {
    let mut bytes = Vec::new();
    content.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(refuse(&format!("it is larger than {MAX_DOCUMENT_BYTES} bytes")));
    }
    if place.as_ref().is_some_and(|before| *before != bytes) {
        return Err(refuse("the archive has it twice, with different content"));
    }
    *place = Some(bytes);
    Ok(())
}

/// True if a file begins like a tar archive: with a header or, if the archive is empty, with zeros.
fn is_tar(head: &[u8]) -> bool {
    head.len() == 512 && (head[257..].starts_with(b"ustar") || head.iter().all(|byte| *byte == 0))
}

fn is_bare(head: &[u8]) -> bool {
    Compression::of(head).is_ok_and(|compression| compression == Compression::None)
}

/// Compresses a layer to a file beside the blobs of `store`: the same bytes for the same content, with one thread and
/// pieces of one size. The content's length, which zstd does not always know, is left out.
fn compress(mut content: impl Read, store: &Store) -> Result<(Digest, LooseBlob)> {
    let mut encoder = zstd::Encoder::new(store.blob_writer()?, ZSTD_LEVEL)?;
    encoder.include_contentsize(false)?;
    encoder.include_checksum(false)?;
    let mut diff_id = Hasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = fill(&mut content, &mut piece)?;
        if count == 0 {
            break;
        }
        diff_id.update(&piece[..count]);
        encoder.write_all(&piece[..count]).context("writing a layer")?;
    }
    Ok((diff_id.finish(), encoder.finish().context("writing a layer")?.loose()?))
}

/// A member's content, with errors that name the archive.
struct MemberContent<'a, R> {
    members: &'a mut ArchiveMembers<R>,
    path: &'a Path,
}

impl<R: Read> Read for MemberContent<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.members.read(buffer).map_err(|error| io::Error::other(unreadable(self.path, error)))
    }
}
