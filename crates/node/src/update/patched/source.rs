//! A release as a source of payloads, some of which are made with patches.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::patches::{Patches, has_same};
use crate::update::fetched::{self, check_room};
use base::digest::Digest;
use base::failure::{Class, Failure, class_of};
use base::files;
use base::progress::Progress;
use formats::delta::{DeltaError, Patch};
use formats::initrd;
use formats::iso9660::Source;
use machine::paths::below;
use medium::patches::ReleasePatch;
use medium::payload_sources::{PayloadPlace, PayloadSource, PayloadTransport, VerifyingReader};
use model::release::{Payload, Purpose, Release};

/// How long an initrd may be when it is unpacked, in bytes: what a patch says of itself is the server's word.
const MOST_UNPACKED: u64 = 1 << 30;

/// The slot that runs. Kernel and initrd that have not changed come from it, and one that has changed is made of the one in it.
#[derive(Clone, Copy)]
pub(super) struct RunningSlot<'a> {
    pub(super) source: &'a dyn PayloadSource,
    pub(super) release: &'a Release,
    /// The root of the node, below which an initrd is made.
    pub(super) root: &'a Path,
    /// Where is told that one could not be made.
    pub(super) progress: &'a Progress,
}

/// A release with the OS image, expanded, that a patch makes of another; with the initrd too, if there is a patch of it.
#[allow(missing_debug_implementations)]
pub(super) struct PatchedSource<'a, R> {
    source: &'a dyn PayloadSource,
    slot: RunningSlot<'a>,
    /// Begins with the image that the patch starts from.
    running: R,
    patches: Patches,
    /// The length of the image that comes of it.
    size: u64,
    /// Whether the patch, or the image that it starts from, has failed.
    failed: AtomicBool,
}

impl<'a, R: Source> PatchedSource<'a, R> {
    /// `running` begins with the image that the patch of it starts from.
    pub(super) fn new(
        source: &'a dyn PayloadSource,
        (slot, running): (RunningSlot<'a>, R),
        patches: Patches,
        offered: &Release,
    ) -> Self {
        Self { source, slot, running, patches, size: offered.expanded.size, failed: AtomicBool::new(false) }
    }

    /// Whether staging ended with this error because of the patch.
    pub(super) fn is_useless(&self, error: &anyhow::Error) -> bool {
        // An image that came out wrong is found by whoever writes it.
        self.failed.load(Ordering::Relaxed) || class_of(error) == Class::Verification
    }

    fn open_patch(&self, patch: &ReleasePatch) -> Result<Patch<impl Read>, DeltaError> {
        let payload = patch.payload();
        let reader = self.source.open(&payload).map_err(|error| DeltaError::ReadPatch(carried(error)))?;
        Patch::open(VerifyingReader::new(reader, &payload, self.source.describe_of(&payload)))
    }

    /// Makes the initrd of the release from that in the slot that runs.
    fn make_initrd(&self, payload: &Payload, patch: &ReleasePatch) -> Result<File> {
        let RunningSlot { source: slot, release, root, .. } = self.slot;
        let before = release.payload(Purpose::Initrd).context("the release that runs has no initrd")?;
        let opened = self.open_patch(patch)?;
        let unpacked = [opened.old().length, opened.new_image().length];
        ensure!(unpacked.iter().all(|length| *length <= MOST_UNPACKED), "it is for no initrd");
        let directory = below(root, fetched::DIRECTORY);
        files::make_directory(&directory, 0o700)?;
        check_room(&directory, unpacked.iter().sum::<u64>() + before.size + payload.size)?;
        let file = || tempfile::tempfile_in(&directory).context("making a file for it");
        let (mut packed, mut old, mut new, mut made) = (file()?, file()?, file()?, file()?);
        io::copy(
            &mut VerifyingReader::new(slot.open(before)?, before, slot.describe_of(before)),
            &mut packed,
        )?;
        initrd::unpack(&mut packed, &mut old).context("unpacking the one that runs")?;
        opened.apply(&old, &mut new)?;
        initrd::pack(&mut new, &mut made).context("packing it")?;
        made.rewind()?;
        let (digest, _) = Digest::of_reader(&made)?;
        ensure!(digest == payload.sha256, "it comes out as {digest}, not as {}", payload.sha256);
        made.rewind()?;
        Ok(made)
    }

    fn apply(&self, out: &mut dyn Write) -> Result<(), DeltaError> {
        let patch = self.open_patch(&self.patches.image)?;
        if patch.new_image().length != self.size {
            return Err(DeltaError::Damaged("it makes an image of another length"));
        }
        patch.apply(&self.running, out)
    }
}

/// As what it is, so that the failure of a server is found in it.
fn carried(error: anyhow::Error) -> io::Error {
    io::Error::other(error.reallocate_into_boxed_dyn_error_without_backtrace())
}

impl<R: Source> PayloadSource for PatchedSource<'_, R> {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let RunningSlot { source: slot, release, progress, .. } = self.slot;
        if has_same(release, payload) {
            return slot.open(payload);
        }
        if let (Purpose::Initrd, Some(patch)) = (payload.purpose, &self.patches.initrd) {
            let making = || self.make_initrd(payload, patch);
            match progress.within("boot-volume", "Making the initrd of the one that runs", making) {
                Ok(made) => return Ok(Box::new(made)),
                Err(error) => progress.warn(
                    "update",
                    &format!(
                        "the whole initrd is fetched, it could not be made with {}: {error:#}",
                        patch.path
                    ),
                ),
            }
        }
        self.source.open(payload)
    }

    fn has_expanded(&self, _: &Payload) -> bool {
        true
    }

    fn write_expanded(&self, _: &Payload, out: &mut dyn Write) -> Result<()> {
        self.apply(out).map_err(|error| {
            // What takes the image tells its own error.
            if !matches!(error, DeltaError::Write(_)) {
                self.failed.store(true, Ordering::Relaxed);
            }
            let what = format!("making the OS image with {}", self.patches.image.path);
            match error {
                DeltaError::ReadPatch(_) | DeltaError::ReadImage(..) | DeltaError::Write(_) => {
                    anyhow::Error::new(error).context(what)
                }
                error => Failure::new(Class::Verification, what)
                    .because(error)
                    .hint("Publish the release again, or without patches.")
                    .into(),
            }
        })
    }

    /// The OS image is made here, and is not made again by asking a server again.
    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        match payload.purpose {
            Purpose::Rootfs => Some(PayloadPlace::Here),
            _ if has_same(self.slot.release, payload) => self.slot.source.place(payload),
            _ => self.source.place(payload),
        }
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.source.probe(payload)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        self.source.manifest()
    }

    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        self.source.signatures()
    }

    fn transport(&self) -> PayloadTransport {
        self.source.transport()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn describe_of(&self, payload: &Payload) -> String {
        self.source.describe_of(payload)
    }
}
