//! A slot on a disk: the OS image, dm-verity's hash tree behind it, and the boot volume. Installs and updates write it the same
//! way; whoever says that a slot is good reads it here first.

use std::io::{self, Read};

use anyhow::Result;

use super::image::{self, each_chunk};
use crate::execute::boot::fat_volume::{self, FatPlace};
use crate::execute::cancel::Cancel;
use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice, CHUNK_BYTES};
use crate::plan::{FatContent, Partition, SlotGeometry};
use base::digest::Digest;
use base::failure::{Class, Failure, class_of};
use base::progress::{Progress, Step};
use formats::verity::{VerityBuilder, VerityParameters, VerityTree};
use medium::sources::{PayloadPlace, PayloadSource, fetch_again};
use model::release::Payload;

/// What a slot has to hold.
#[derive(Clone, Copy)]
pub(in crate::execute) struct SlotContent<'a> {
    pub(in crate::execute) image: &'a Payload,
    pub(in crate::execute) root_hash: Digest,
    pub(in crate::execute) boot: &'a FatContent,
}

/// Writes the OS image and its hash tree. Does not flush. `known` is the tree, if it was made before.
pub(in crate::execute) fn write_image(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    known: Option<VerityTree>,
    reader: impl Read + Send,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<VerityTree> {
    let image = content.image;
    let tree = match known {
        Some(tree) => {
            image::write(device, partition, image, reader, step, cancel)?;
            tree
        }
        None => {
            let mut hashed = HashedReader { inner: reader, tree: builder(image) };
            image::write(device, partition, image, &mut hashed, step, cancel)?;
            hashed.tree.finish()
        }
    };
    if tree.root != content.root_hash {
        let what = format!("{} has the root hash {}, not {}", image.path, tree.root, content.root_hash);
        return Err(Failure::new(Class::Verification, what)
            .hint("The release manifest does not fit its OS image; build the medium again.")
            .into());
    }
    let place = SlotGeometry::of(partition).tree(image.size);
    for (piece, at) in tree.bytes.chunks(CHUNK_BYTES).zip((place..).step_by(CHUNK_BYTES)) {
        device::write(device, at, piece)?;
    }
    Ok(tree)
}

/// Makes `attempt`, which takes the OS image from `source`; again if it was damaged on its way over a network.
pub(in crate::execute) fn from_source<T>(
    source: &dyn PayloadSource,
    image: &Payload,
    progress: &Progress,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match source.place(image) {
        Some(PayloadPlace::Network) => fetch_again(attempt, |error| {
            progress.note("image", format!("Fetching the OS image again: {error:#}"));
        }),
        _ => attempt(),
    }
}

fn builder(image: &Payload) -> VerityBuilder {
    VerityBuilder::new(VerityParameters::of_image(image.sha256))
}

/// Passes an image through and hashes it, on the thread that reads.
struct HashedReader<R> {
    inner: R,
    tree: VerityBuilder,
}

impl<R: Read> Read for HashedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.tree.update(&buffer[..count]);
        Ok(count)
    }
}

/// The OS image in a slot that was written and read back, for another slot: so it is fetched only once.
pub(in crate::execute) struct ImageReader<'a> {
    device: &'a dyn BlockDevice,
    /// Where the next bytes of the image are on the disk.
    at: u64,
    left: u64,
    buffer: AlignedBuffer,
    /// What of the buffer was not given yet.
    ready: std::ops::Range<usize>,
}

impl<'a> ImageReader<'a> {
    pub(in crate::execute) fn new(
        device: &'a dyn BlockDevice,
        partition: &Partition,
        image: &Payload,
    ) -> Self {
        let (at, left) = (partition.start.get(), image.size);
        Self { device, at, left, buffer: AlignedBuffer::new(CHUNK_BYTES), ready: 0..0 }
    }

    fn refill(&mut self) -> io::Result<()> {
        let count = usize::try_from(self.left.min(CHUNK_BYTES as u64)).map_err(io::Error::other)?;
        let sector = usize::try_from(self.device.sector().bytes()).map_err(io::Error::other)?;
        let padded = count.next_multiple_of(sector);
        device::read(self.device, self.at, &mut self.buffer[..padded]).map_err(io::Error::other)?;
        self.at += count as u64;
        self.left -= count as u64;
        self.ready = 0..count;
        Ok(())
    }
}

impl Read for ImageReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() && self.left > 0 {
            self.refill()?;
        }
        let count = self.ready.len().min(buffer.len());
        let given = self.ready.start..self.ready.start + count;
        buffer[..count].copy_from_slice(&self.buffer[given]);
        self.ready.start += count;
        Ok(count)
    }
}

/// Reads the tree back.
pub(in crate::execute) fn check_tree(
    device: &dyn BlockDevice,
    partition: &Partition,
    image: &Payload,
    tree: &VerityTree,
) -> Result<()> {
    let place = SlotGeometry::of(partition).tree(image.size);
    match tree_difference(device, place, tree)? {
        None => Ok(()),
        Some(at) => Err(device::differs("the hash tree of the OS image", at, device).into()),
    }
}

/// The first byte of the disk that is not that of the tree at `place`.
fn tree_difference(device: &dyn BlockDevice, place: u64, tree: &VerityTree) -> Result<Option<u64>> {
    for (piece, at) in tree.bytes.chunks(CHUNK_BYTES).zip((place..).step_by(CHUNK_BYTES)) {
        let mut found = AlignedBuffer::new(piece.len());
        device::read(device, at, &mut found)?;
        if let Some(differs) = device::first_difference(&found, piece) {
            return Ok(Some(at + differs));
        }
    }
    Ok(None)
}

/// Writes the boot volume. Does not flush.
pub(in crate::execute) fn write_boot(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    source: &dyn PayloadSource,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let place = FatPlace::boot_volume(SlotGeometry::of(partition));
    fat_volume::write(device, place, content.boot, source, step, cancel)
}

/// Reads the boot volume back.
pub(in crate::execute) fn check_boot(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
) -> Result<()> {
    let place = FatPlace::boot_volume(SlotGeometry::of(partition));
    fat_volume::verify(device, place, &content.boot.files)
}

/// Reads the OS image and its tree in a slot, every byte; returns the tree if both are right. A read error counts as wrong.
pub(in crate::execute) fn read_through(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<Option<VerityTree>> {
    let geometry = SlotGeometry::of(partition);
    let image = content.image;
    let mut hashes = builder(image);
    let read = each_chunk(device, (geometry.start.get(), image.size), cancel, |_, bytes| {
        hashes.update(bytes);
        step.advance(bytes.len() as u64);
        Ok(())
    });
    let tree = hashes.finish();
    let right = read.and_then(|()| {
        Ok(tree.root == content.root_hash
            && tree_difference(device, geometry.tree(image.size), &tree)?.is_none())
    });
    match right {
        Ok(right) => Ok(right.then_some(tree)),
        Err(error) if class_of(&error) == Class::DiskIo => Ok(None),
        Err(error) => Err(error),
    }
}
