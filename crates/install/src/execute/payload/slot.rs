//! A slot on a disk: the OS image, dm-verity's hash tree behind it, and the boot volume. Installs and updates write it the same
//! way; whoever says that a slot is good reads it here first.

use std::io::{self, Read, Write};

use anyhow::Result;

use super::expand::{self, DeviceRegion};
use super::image::{self, each_chunk};
use crate::execute::boot::fat_volume::{self, FatPlace};
use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice, CHUNK_BYTES};
use crate::plan::{FatContent, Partition, SlotGeometry};
use base::cancel::Cancel;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Failure, class_of};
use base::progress::{Progress, Step};
use formats::verity::{BLOCK_BYTES, VerityBuilder, VerityParameters, VerityTree, tree_bytes};
use medium::payload_sources::{PayloadPlace, PayloadSource, fetch_again};
use model::release::{ExpandedImage, Payload};

const OTHER_IMAGE: &str = "The release manifest does not fit its OS image; build the medium again.";

/// What a slot has to hold.
#[derive(Clone, Copy)]
pub(crate) struct SlotContent<'a> {
    /// The OS image in the form that media carry.
    pub(crate) image: &'a Payload,
    pub(crate) expanded: ExpandedImage,
    pub(crate) boot: &'a FatContent,
}

pub(crate) type WriteExpanded<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + Send + 'a>;

/// Where an OS image comes from.
pub(crate) enum ImageInput<'a> {
    /// The form of media, from a reader that checks it.
    Compressed(Box<dyn Read + Send + 'a>),
    /// The form of slots, from whoever writes it to a writer.
    Expanded(WriteExpanded<'a>),
}

/// Writes the OS image in its expanded form, and its hash tree. Does not flush. `known` is the tree, if it was made before.
pub(crate) fn write_image(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    (input, known): (ImageInput<'_>, Option<VerityTree>),
    step: &mut Step,
    cancel: &Cancel,
) -> Result<VerityTree> {
    let (geometry, image) = (SlotGeometry::of(partition), content.image);
    let tree = match input {
        ImageInput::Expanded(produce) => {
            let tree = write_expanded(device, partition, (content, known), produce, step, cancel)?;
            agree(tree, content)?
        }
        ImageInput::Compressed(reader) => {
            let stored = geometry.stored(content.expanded.size);
            image::write(device, stored, reader, step, cancel)?;
            let region = DeviceRegion::new(device, stored, image.size);
            let produce = |out: &mut dyn Write| expand::expand(image, &region, out);
            let tree = write_expanded(device, partition, (content, known), produce, step, cancel)
                .and_then(|tree| agree(tree, content))
                .map_err(|error| blame(error, (device, stored), image, cancel))?;
            let forgotten = device.forget(stored, image.size);
            forgotten.map_err(|error| device::cannot_write(device, stored, CHUNK_BYTES, error))?;
            tree
        }
    };
    write_tree(device, geometry.tree(content.expanded.size), &tree)?;
    Ok(tree)
}

/// Writes the hash tree to `place`. Does not flush.
pub(crate) fn write_tree(device: &dyn BlockDevice, place: u64, tree: &VerityTree) -> Result<()> {
    for (piece, at) in tree.bytes.chunks(CHUNK_BYTES).zip((place..).step_by(CHUNK_BYTES)) {
        device::write(device, at, piece)?;
    }
    Ok(())
}

/// Writes what `produce` writes to the start of the slot, as far as the image reaches, and returns its hash tree.
fn write_expanded(
    device: &dyn BlockDevice,
    partition: &Partition,
    (content, known): (&SlotContent<'_>, Option<VerityTree>),
    produce: impl FnOnce(&mut dyn Write) -> Result<()> + Send,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<VerityTree> {
    expand::piped(produce, |reader| {
        let wanted = content.expanded.size;
        let mut image = reader.take(wanted);
        let tree = match known {
            Some(tree) => {
                image::write(device, partition.start.get(), &mut image, step, cancel)?;
                tree
            }
            None => {
                let mut hashed = HashedReader { inner: &mut image, tree: builder(content.image) };
                image::write(device, partition.start.get(), &mut hashed, step, cancel)?;
                hashed.tree.finish()
            }
        };
        let found = wanted - image.limit();
        // What is longer is not written: the hash tree is behind the image.
        if found == wanted && image.into_inner().read(&mut [0])? > 0 {
            return Err(other_length(content, "more"));
        }
        Ok((tree, found))
    })
    .and_then(|(tree, found)| match found == content.expanded.size {
        true => Ok(tree),
        false => Err(other_length(content, &format!("{found}"))),
    })
}

/// The error of an image that is shorter or longer than its release says.
fn other_length(content: &SlotContent<'_>, found: &str) -> anyhow::Error {
    let (path, wanted) = (&content.image.path, content.expanded.size);
    let what = format!("{path}, expanded, has {found} bytes, not {wanted} as the release manifest says");
    Failure::new(Class::Verification, what).hint(OTHER_IMAGE).into()
}

fn agree(tree: VerityTree, content: &SlotContent<'_>) -> Result<VerityTree> {
    let (image, wanted) = (content.image, content.expanded.root_hash);
    if tree.root == wanted {
        return Ok(tree);
    }
    let what = format!("{}, expanded, has the root hash {}, not {wanted}", image.path, tree.root);
    Err(Failure::new(Class::Verification, what).hint(OTHER_IMAGE).into())
}

/// The error of an image that was right when it was stored: the disk's own, if it gives back other bytes.
fn blame(
    error: anyhow::Error,
    (device, stored): (&dyn BlockDevice, u64),
    image: &Payload,
    cancel: &Cancel,
) -> anyhow::Error {
    if class_of(&error) != Class::Verification {
        return error;
    }
    let mut hasher = Hasher::default();
    let read = each_chunk(device, (stored, image.size), cancel, |_, bytes| {
        hasher.update(bytes);
        Ok(())
    });
    match read {
        Ok(()) if hasher.finish() == image.sha256 => error,
        Ok(()) => device::differs(&image.path, stored, device).into(),
        Err(error) => error,
    }
}

/// Makes `attempt`, which takes the OS image from `source`; again if it was damaged on its way over a network.
pub(crate) fn from_source<T>(
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
    VerityBuilder::new(parameters(image))
}

/// Those of the hash tree of an OS image in its expanded form.
pub(crate) fn parameters(image: &Payload) -> VerityParameters {
    VerityParameters::of_image(image.sha256)
}

/// Whether a slot in this partition can hold an expanded image of this length.
pub(crate) fn holds_image(partition: &Partition, length: u64) -> bool {
    let geometry = SlotGeometry::of(partition);
    geometry.tree(length) + tree_bytes(length) <= geometry.boot.get()
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

/// The OS image of a slot that was written and read back, for another slot: so it is fetched only once.
pub(crate) fn copy_image(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    cancel: &Cancel,
    out: &mut dyn Write,
) -> Result<()> {
    each_chunk(device, (partition.start.get(), content.expanded.size), cancel, |_, bytes| {
        Ok(out.write_all(bytes)?)
    })
}

/// The first byte of the disk that is not that of the tree at `place`.
pub(crate) fn tree_difference(
    device: &dyn BlockDevice,
    place: u64,
    tree: &VerityTree,
) -> Result<Option<u64>> {
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
pub(crate) fn write_boot(
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

pub(crate) fn check_boot(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
) -> Result<()> {
    let place = FatPlace::boot_volume(SlotGeometry::of(partition));
    fat_volume::verify(device, place, &content.boot.files)
}

/// Reads the OS image and its tree in a slot, every byte; returns the tree if both are right. A read error counts as wrong.
pub(crate) fn read_through(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<Option<VerityTree>> {
    let place = SlotGeometry::of(partition).tree(content.expanded.size);
    let right = hash_image(device, partition, content, step, cancel).and_then(|tree| {
        Ok((tree.root == content.expanded.root_hash && tree_difference(device, place, &tree)?.is_none())
            .then_some(tree))
    });
    match right {
        Err(error) if class_of(&error) == Class::DiskIo => Ok(None),
        right => right,
    }
}

/// Reads the OS image and its tree back, and compares them with what was written.
///
/// # Errors
/// [`Class::DiskIo`] with the first wrong block.
pub(crate) fn check_image(
    device: &dyn BlockDevice,
    partition: &Partition,
    (content, written): (&SlotContent<'_>, &VerityTree),
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let found = hash_image(device, partition, content, step, cancel)?;
    if let Some(block) = found.first_other_block(written) {
        let what =
            format!("{} on {}, from its byte {block} on,", content.image.path, partition.name.as_str());
        return Err(device::differs(&what, partition.start.get() + block, device).into());
    }
    let place = SlotGeometry::of(partition).tree(content.expanded.size);
    match tree_difference(device, place, written)? {
        None => Ok(()),
        Some(at) => Err(device::differs("the hash tree of the OS image", at, device).into()),
    }
}

/// The hash tree of what is in the place of the image.
fn hash_image(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<VerityTree> {
    let mut hashes = builder(content.image);
    each_chunk(device, (partition.start.get(), content.expanded.size), cancel, |_, bytes| {
        hashes.update(bytes);
        step.advance(bytes.len() as u64);
        Ok(())
    })?;
    Ok(hashes.finish())
}

/// The same, where what the disk cannot read counts as wrong, and the rest is read all the same.
pub(crate) fn hash_readable(
    device: &dyn BlockDevice,
    partition: &Partition,
    content: &SlotContent<'_>,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<VerityTree> {
    let (start, length) = (partition.start.get(), content.expanded.size);
    let mut hashes = builder(content.image);
    let mut buffer = AlignedBuffer::new(CHUNK_BYTES);
    for at in (0..length).step_by(CHUNK_BYTES) {
        cancel.check()?;
        let count = usize::try_from((length - at).min(CHUNK_BYTES as u64))?;
        let chunk = &mut buffer[..count];
        if device.read_at(start + at, chunk).is_err() {
            for (block, at) in chunk.chunks_mut(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
                if device.read_at(start + at, block).is_err() {
                    // Bytes that no image has there: it would have to contain a digest of its own digest.
                    let filler =
                        Digest::of(&[content.image.sha256.as_bytes(), &at.to_le_bytes()[..]].concat());
                    block
                        .chunks_mut(filler.as_bytes().len())
                        .for_each(|part| part.copy_from_slice(filler.as_bytes()));
                }
            }
        }
        hashes.update(chunk);
        step.advance(count as u64);
    }
    Ok(hashes.finish())
}
