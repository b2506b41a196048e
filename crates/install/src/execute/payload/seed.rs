//! Seeding: container images go from their source straight into containerd's store, each blob once.
//!
//! A blob is hashed while it is written and gets its name when it is complete and right, so a name in the store can be trusted,
//! however this process ends. Blobs on this machine are read one after the other, in the order of the release manifest, which is
//! that on the disc: one thread reads and hashes while another writes, past the kernel's cache. Blobs on servers are downloaded
//! several at a time, the largest first. The file system is flushed once, at the end: nothing counts before the commit of the
//! install, and a flush for each of hundreds of small files costs more than all of their bytes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

use super::image::{fill, in_flight};
use super::readback::{self, WrittenFile};
use super::store::{PARALLEL_FILES, Store, UnfinishedFile};
use crate::execute::disk::device::AlignedBuffer;
use crate::plan::images_of;
use base::cancel::Cancel;
use base::digest::{Digest, HashingReader};
use base::failure::{Class, Classify, Failure, class_of};
use base::parallel::{for_each_interruptible, locked};
use base::progress::{Progress, Step};
use medium::payload_sources::{PayloadPlace, PayloadSource, VerifyingReader, fetch_again};
use model::config::Role;
use model::release::{Payload, Release};

/// The number of chunks between the reader and the writer of what is on this machine.
const CHUNKS_IN_FLIGHT: usize = 6;
/// The bytes read and written at once from a server.
const PIECE_BYTES: usize = 1 << 20;

/// Puts the images that `role` needs into the store below `root`, which is the `/var` of a node.
pub fn seed_store(
    source: &dyn PayloadSource,
    release: &Release,
    role: Role,
    root: &Path,
    progress: &Progress,
) -> Result<()> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let (blobs, metadata) = images_of(release, role)?;
    let total = blobs.iter().chain(&metadata).map(|payload| payload.size).sum();
    let mut step = progress.step("images", "Storing the container images", Some(total));
    let cancel = Cancel::new(&NEVER);
    let seeding = Seeding { source, release, cancel: &cancel };
    seeding.seed(root, &blobs, metadata.as_ref(), &mut step)?;
    step.done();
    Ok(())
}

/// What seeding works with.
#[derive(Clone, Copy)]
pub(crate) struct Seeding<'a> {
    pub(crate) source: &'a dyn PayloadSource,
    /// Says where the store is, and which images need a blob.
    pub(crate) release: &'a Release,
    pub(crate) cancel: &'a Cancel,
}

impl Seeding<'_> {
    /// Writes blobs and metadata into the store on the partition mounted at `root`, and flushes its file system.
    pub(crate) fn seed(
        self,
        root: &Path,
        blobs: &[Payload],
        metadata: Option<&Payload>,
        step: &mut Step,
    ) -> Result<()> {
        // Opened before the first write: syncfs(2) reports write errors since then.
        let filesystem = File::open(root).class(Class::DiskIo, || format!("opening {}", root.display()))?;
        let store = Store::prepare(root, &self.release.containerd)?;
        let work = SeedingRun { seeding: self, store: &store, step: Mutex::new(step) };
        let (here, away): (Vec<_>, Vec<_>) =
            blobs.iter().partition(|blob| self.source.place(blob) == Some(PayloadPlace::Here));
        work.in_order(&here)?;
        work.at_once(away)?;
        if let Some(metadata) = metadata {
            let stored = work.fetch(metadata, &|| store.begin_metadata(), &|| Ok(()));
            stored.with_context(|| format!("storing containerd's metadata, {}", metadata.path))?;
        }
        store.clear()?;
        let flushed = nix::unistd::syncfs(&filesystem);
        flushed.class(Class::DiskIo, || format!("flushing the container images in {}", root.display()))
    }

    /// The bytes of `blobs` that an earlier run seems to have left below `root`: each blob is read before it is kept.
    pub(crate) fn there(self, root: &Path, blobs: &[Payload]) -> u64 {
        let store = Store::at(root, &self.release.containerd);
        let is_there = |blob: &&Payload| {
            fs::metadata(store.blob(&blob.sha256)).is_ok_and(|file| file.len() == blob.size)
        };
        blobs.iter().filter(is_there).map(|blob| blob.size).sum()
    }

    /// Reads blobs and metadata back from the partition, mounted again at `root`.
    pub(crate) fn read_back(
        self,
        root: &Path,
        blobs: &[Payload],
        metadata: Option<&Payload>,
        step: &mut Step,
    ) -> Result<()> {
        let store = Store::at(Path::new(""), &self.release.containerd);
        let blobs = blobs.iter().map(|blob| (blob, store.blob(&blob.sha256)));
        let all = blobs.chain(metadata.map(|metadata| (metadata, store.metadata())));
        let written = all.map(|(payload, path)| WrittenFile {
            path,
            name: self.release.describe(payload),
            size: payload.size,
            digest: payload.sha256,
            again: Box::new(|| Ok(self.source.open(payload)?)),
        });
        let written: Vec<_> = written.collect();
        readback::check(root, &written, &|| self.cancel.check(), &mut |bytes| step.advance(bytes))
    }

    fn open(&self, payload: &Payload) -> Result<VerifyingReader<Box<dyn Read + Send>>> {
        let reader = self.source.open(payload)?;
        Ok(VerifyingReader::new(reader, payload, self.source.describe_of(payload)))
    }

    fn name(&self, blob: &Payload) -> String {
        format!("storing {}", self.release.describe(blob))
    }
}

struct SeedingRun<'a> {
    seeding: Seeding<'a>,
    store: &'a Store,
    step: Mutex<&'a mut Step>,
}

impl SeedingRun<'_> {
    fn advance(&self, bytes: u64) {
        locked(&self.step).advance(bytes);
    }

    /// Subtracts the progress of a payload that has to be copied again.
    fn take_back(&self, bytes: u64) {
        let mut step = locked(&self.step);
        let rest = step.bytes().saturating_sub(bytes);
        step.back_to(rest);
    }

    /// Whether the store has the blob already; one with wrong content is removed.
    fn has(&self, blob: &Payload) -> Result<bool> {
        let path = self.store.blob(&blob.sha256);
        let what = || format!("reading {}", path.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file.class(Class::DiskIo, what)?,
        };
        if file.metadata().class(Class::DiskIo, what)?.len() == blob.size {
            match digest(file, self.seeding.cancel) {
                Ok(found) if found == blob.sha256 => {
                    self.advance(blob.size);
                    return Ok(true);
                }
                Err(error) if class_of(&error) != Class::DiskIo => return Err(error).with_context(what),
                // It is damaged, or the disk cannot be read there.
                _ => {}
            }
        }
        fs::remove_file(&path).class(Class::DiskIo, || format!("removing {}", path.display()))?;
        Ok(false)
    }

    /// Copies one payload in this thread to a new file of `begin`, again if it arrives damaged over a network. `go_on` is called
    /// before each piece.
    fn fetch(
        &self,
        payload: &Payload,
        begin: &dyn Fn() -> Result<UnfinishedFile>,
        go_on: &dyn Fn() -> Result<(), Failure>,
    ) -> Result<()> {
        let copied = Cell::new(0);
        let copy = || self.copy(payload, begin()?, go_on, &copied);
        if self.seeding.source.place(payload) == Some(PayloadPlace::Here) {
            return copy();
        }
        fetch_again(copy, |_| self.take_back(copied.take()))
    }

    /// `copied` is the number of its bytes that were reported as done.
    fn copy(
        &self,
        payload: &Payload,
        mut file: UnfinishedFile,
        go_on: &dyn Fn() -> Result<(), Failure>,
        copied: &Cell<u64>,
    ) -> Result<()> {
        let mut reader = self.seeding.open(payload)?;
        let mut buffer = AlignedBuffer::new(PIECE_BYTES);
        loop {
            self.seeding.cancel.check()?;
            go_on()?;
            // A whole piece for the disk, not what one packet of the network brings.
            let filled = fill(&mut reader, &mut buffer)?;
            file.write(&buffer[..filled])?;
            self.advance(filled as u64);
            copied.set(copied.get() + filled as u64);
            if filled < buffer.len() {
                return file.finish();
            }
        }
    }

    /// Blobs of this machine: one reader, and this thread as the writer.
    fn in_order(&self, blobs: &[&Payload]) -> Result<()> {
        let mut missing = Vec::new();
        for blob in blobs {
            if !self.has(blob).with_context(|| self.seeding.name(blob))? {
                missing.push(*blob);
            }
        }
        let seeding = self.seeding;
        let (mut to_read, mut reading) = (missing.clone().into_iter(), None);
        let (mut to_write, mut writing) = (missing.into_iter(), None);
        // A buffer that is not full is the last of its blob.
        let read = move |buffer: &mut [u8]| {
            let (blob, mut reader) = match reading.take() {
                Some(reading) => reading,
                None => {
                    let Some(blob) = to_read.next() else { return Ok(None) };
                    (blob, seeding.open(blob).with_context(|| seeding.name(blob))?)
                }
            };
            let filled = fill(&mut reader, buffer).with_context(|| seeding.name(blob))?;
            reading = (filled == buffer.len()).then_some((blob, reader));
            Ok(Some(filled))
        };
        in_flight(CHUNKS_IN_FLIGHT, read, |buffer, filled| {
            seeding.cancel.check()?;
            let (blob, mut file) = match writing.take() {
                Some(writing) => writing,
                None => {
                    let blob = to_write.next().context("the reader has more blobs than there are")?;
                    (blob, self.store.begin_blob(&blob.sha256).with_context(|| seeding.name(blob))?)
                }
            };
            let stored = file.write(&buffer[..filled]).and_then(|()| {
                self.advance(filled as u64);
                if filled < buffer.len() {
                    return file.finish();
                }
                writing = Some((blob, file));
                Ok(())
            });
            stored.with_context(|| seeding.name(blob))
        })
    }

    /// Blobs of servers: several at a time. The first failure is the one that is reported; it stops the others.
    fn at_once(&self, mut blobs: Vec<&Payload>) -> Result<()> {
        blobs.sort_by_key(|blob| std::cmp::Reverse(blob.size));
        for_each_interruptible(&blobs, PARALLEL_FILES, |blob, go_on| {
            let stored = || {
                if self.has(blob)? {
                    return Ok(());
                }
                self.fetch(blob, &|| self.store.begin_blob(&blob.sha256), go_on)
            };
            stored().with_context(|| self.seeding.name(blob))
        })
    }
}

fn digest(file: File, cancel: &Cancel) -> Result<Digest> {
    let mut hashing = HashingReader::new(file);
    let mut buffer = vec![0; PIECE_BYTES];
    while hashing.read(&mut buffer).class(Class::DiskIo, || "reading what is stored".into())? > 0 {
        cancel.check()?;
    }
    Ok(hashing.digest())
}

#[cfg(test)]
mod tests;
