//! Blobs kept between builds, by digest. A file with a digest as its name was complete and right when it got the name;
//! a blob that is still being downloaded has the name `DIGEST.part` and is continued by the next build.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure, class_of};
use base::files::{make_directory, read_at_most};
use medium::payload_sources::fetch_again;
use nix::fcntl::{Flock, FlockArg};

use super::super::blob::Blob;
use crate::files::CachedFile;

/// The hint if the cache's disk is full.
const FULL_DISK_HINT: &str = "Free some space, or name another directory with --cache-dir or --downloads, and start again; the data received so far is kept.";

#[derive(Clone, Debug)]
pub struct BlobCache {
    directory: PathBuf,
}

pub(super) type BlobOpener<'a> = dyn Fn(u64) -> Result<Box<dyn Read + Send>> + 'a;

impl BlobCache {
    /// The blobs in `downloads`, which several caches may share.
    pub fn open(downloads: &Path) -> Result<Self> {
        let directory = downloads.join("blobs");
        make_directory(&directory, 0o755)?;
        Ok(Self { directory })
    }

    /// The path of the blob, whether or not it is there.
    #[must_use]
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.directory.join(digest.to_string())
    }

    /// True if the cache has the blob. It is read, and removed if it is damaged.
    pub fn holds(&self, blob: Blob) -> Result<bool> {
        let path = self.path(blob.digest);
        match CachedFile::of(&path, blob.digest, Some(blob.size))? {
            CachedFile::Sound => return Ok(true),
            CachedFile::Absent => return Ok(false),
            CachedFile::Damaged => {}
        }
        fs::remove_file(&path).class(Class::DiskIo, || format!("removing {}", path.display()))?;
        Ok(false)
    }

    /// A document of at most `limit` bytes, if the cache has it undamaged.
    #[must_use]
    pub(super) fn document(&self, digest: Digest, limit: u64) -> Option<Vec<u8>> {
        let bytes = read_at_most(&self.path(digest), limit).ok()?;
        (Digest::of(&bytes) == digest).then_some(bytes)
    }

    pub(super) fn keep(&self, bytes: &[u8]) -> Result<Blob> {
        let blob = Blob { digest: Digest::of(bytes), size: bytes.len() as u64 };
        let held = bytes.to_vec();
        let open = move |offset| -> Result<Box<dyn Read + Send>> {
            Ok(Box::new(io::Cursor::new(held.get(usize::try_from(offset)?..).unwrap_or_default().to_vec())))
        };
        self.fill(blob, &open, &mut |_| ())?;
        Ok(blob)
    }

    /// Downloads a blob: the rest of what an earlier build began, hashed as it arrives, and named only when it is
    /// complete and right. `advance` is called with the number of bytes as they arrive.
    pub(super) fn fill(&self, blob: Blob, open: &BlobOpener<'_>, advance: &mut dyn FnMut(u64)) -> Result<()> {
        let path = self.path(blob.digest);
        let part = path.with_extension("part");
        let writing = || format!("writing {}", part.display());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        // Another build that shares the directory may be downloading the same blob.
        let mut part_file = Flock::lock(file.map_err(full(&part))?, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .class(Class::DiskIo, writing)?;
        if path.exists() && self.holds(blob)? {
            return Ok(());
        }
        let mut counted = false;
        let receive = || {
            let mut silent = |_| ();
            let advance: &mut dyn FnMut(u64) =
                if std::mem::replace(&mut counted, true) { &mut silent } else { &mut *advance };
            let found = receive(&mut part_file, &part, blob, open, advance)?;
            if found == blob.digest {
                return Ok(());
            }
            // The part that an earlier build kept may be damaged: start again.
            part_file.set_len(0).class(Class::DiskIo, writing)?;
            let what = format!("the downloaded blob {} is damaged", blob.digest.oci());
            Err(Failure::new(Class::Verification, what)
                .because(anyhow::anyhow!("its SHA-256 is {found}"))
                .hint("The registry, or a proxy in front of it, damages data; try another mirror.")
                .into())
        };
        fetch_again(receive, |_| ()).inspect_err(|error| {
            if class_of(error) == Class::Verification {
                let _ = fs::remove_file(&part);
            }
        })?;
        part_file.set_permissions(Permissions::from_mode(0o444)).class(Class::DiskIo, writing)?;
        part_file.sync_data().map_err(full(&part))?;
        fs::rename(&part, &path).class(Class::DiskIo, || format!("naming {}", path.display()))
    }
}

/// Completes `file`, hashing what it has first; returns the digest of the whole.
fn receive(
    file: &mut File,
    part: &Path,
    blob: Blob,
    open: &BlobOpener<'_>,
    advance: &mut dyn FnMut(u64),
) -> Result<Digest> {
    let reading = || format!("reading {}", part.display());
    let mut length = file.metadata().class(Class::DiskIo, reading)?.len();
    if length > blob.size {
        file.set_len(0).class(Class::DiskIo, reading)?;
        length = 0;
    }
    file.seek(SeekFrom::Start(0)).class(Class::DiskIo, reading)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 256 << 10];
    let mut kept = Read::by_ref(file).take(length);
    loop {
        let count = kept.read(&mut buffer).class(Class::DiskIo, reading)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        advance(count as u64);
    }
    let mut position = length;
    let mut source = if position < blob.size { Some(open(position)?) } else { None };
    while position < blob.size {
        let receiving = || format!("receiving the blob {}", blob.digest.oci());
        let Some(source) = &mut source else { break };
        let count = source.read(&mut buffer).class(Class::Network, receiving)?;
        let left = usize::try_from(blob.size - position).unwrap_or(usize::MAX);
        if count == 0 {
            let what =
                format!("the blob {} ended after {position} of {} bytes", blob.digest.oci(), blob.size);
            return Err(Failure::new(Class::Network, what)
                .hint("Start again; the data received so far is kept.")
                .into());
        }
        let bytes = &buffer[..count.min(left)];
        file.write_all(bytes).map_err(full(part))?;
        hasher.update(bytes);
        advance(bytes.len() as u64);
        position += bytes.len() as u64;
    }
    Ok(hasher.finish())
}

/// The failure of a write, with a hint if the disk is full.
fn full(path: &Path) -> impl Fn(io::Error) -> anyhow::Error + '_ {
    move |error| {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let failure = Failure::new(Class::DiskIo, format!("writing {}", path.display())).because(error);
        if is_full { failure.hint(FULL_DISK_HINT).into() } else { failure.into() }
    }
}
