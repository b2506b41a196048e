//! The steps that move payloads.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Run, needed};
use crate::execute::boot::fat_volume;
use crate::execute::disk::device;
use crate::execute::disk::host::MountAccess;
use crate::execute::effects::RunEffects;
use crate::execute::payload::seed::Seeding;
use crate::execute::payload::slot::{self, ImageInput, SlotContent};
use crate::execute::payload::store::PARALLEL_FILES;
use crate::plan::{PartitionName, UnpackedImage};
use base::parallel::for_each;
use base::size::ByteSize;
use formats::verity::VerityTree;
use medium::iso::CheckScope;
use medium::payload_sources::{MediumComparison, PayloadPlace, VerifyingReader, changed, compare};
use model::release::Payload;

impl Run<'_, '_> {
    /// Compares what the medium boots from, which costs some MiB, and ends the install if that was changed.
    fn verify_boot_parts(&self, id: &str) -> Result<()> {
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        match compare(source, &self.plan.release, CheckScope::Boot, None, &|| Ok(cancel.check()?))? {
            MediumComparison::Image(differences) if !differences.is_empty() => {
                return Err(changed(source, &differences).into());
            }
            MediumComparison::OtherRecipe => progress.note(
                id,
                "warning: another version of iso-builder made the medium; its boot files are not checked",
            ),
            MediumComparison::Image(_) | MediumComparison::NoImage => {}
        }
        Ok(())
    }

    /// Hashes what is on this machine; what is on a server is hashed during the download, and only requested now.
    pub(super) fn verify_medium(&mut self, id: &str, payloads: &[Payload]) -> Result<()> {
        self.verify_boot_parts(id)?;
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        let (here, away): (Vec<_>, Vec<_>) =
            payloads.iter().partition(|payload| source.place(payload) == Some(PayloadPlace::Here));
        let total = here.iter().map(|payload| payload.size).sum();
        let mut shown = progress.step(id, format!("Checking {}", source.describe()), Some(total));
        for payload in here {
            cancel.check()?;
            let reader = shown.reader(source.open(payload)?);
            let mut verified = VerifyingReader::new(reader, payload, source.describe());
            io::copy(&mut verified, &mut io::sink()).with_context(|| format!("checking {}", payload.path))?;
        }
        for_each(&away, PARALLEL_FILES, |payload| {
            cancel.check()?;
            source
                .probe(payload)
                .with_context(|| format!("asking for {}", self.plan.release.describe(payload)))
        })?;
        shown.done();
        Ok(())
    }

    /// The hash tree of the OS image, if an unfinished install has left both in their partition.
    fn image_there(
        &self,
        id: &str,
        content: &SlotContent<'_>,
        name: PartitionName,
    ) -> Result<Option<VerityTree>> {
        if !self.plan.stays(name) {
            return Ok(None);
        }
        let RunEffects { cancel, progress, .. } = *self.effects;
        let partition = needed(self.plan, name)?;
        let total = Some(content.expanded.size);
        let mut shown = progress.step("image-check", "Reading the OS image that is already there", total);
        let there = slot::read_through(&self.system, partition, content, &mut shown, cancel)?;
        shown.done();
        if there.is_some() {
            progress.within(id, "The OS image is already there, and is not written again", || Ok(()))?;
        } else {
            progress.note(id, "The OS image that is already there is incomplete, and is written again");
        }
        Ok(there)
    }

    pub(super) fn slot(&mut self, id: &str, content: &SlotContent<'_>, name: PartitionName) -> Result<()> {
        let tree = match self.image_there(id, content, name)? {
            Some(tree) => tree,
            None => self.image(id, content, name)?,
        };
        self.written.get_or_insert((name, tree));
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        let partition = needed(self.plan, name)?;
        let total = Some(fat_volume::total(&content.boot.files));
        let mut shown = progress.step("boot-volume", "Writing kernel and initrd", total);
        slot::write_boot(&self.system, partition, content, source, &mut shown, cancel)?;
        device::barrier(&self.system)?;
        shown.done();
        self.system.each(|disk| slot::check_boot(&disk.device, disk.partition(name)?, content))
    }

    /// Writes the image and reads it back. It comes from the first slot if that has it already.
    fn image(&self, id: &str, content: &SlotContent<'_>, name: PartitionName) -> Result<VerityTree> {
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        let payload = content.image;
        let partition = needed(self.plan, name)?;
        let begun = Instant::now();
        let compressed = if self.written.is_none() { payload.size } else { 0 };
        let total = compressed + content.expanded.size;
        let mut shown = progress.step(id, slot_title(name), Some(total));
        let mut write = |input, known| {
            shown.back_to(0);
            slot::write_image(&self.system, partition, content, (input, known), &mut shown, cancel)
        };
        let tree = if let Some((first, tree)) = &self.written {
            let first = needed(self.plan, *first)?;
            let system = &self.system;
            let copy = move |out: &mut dyn Write| slot::copy_image(system, first, content, cancel, out);
            write(ImageInput::Expanded(Box::new(copy)), Some(tree.clone()))
        } else {
            slot::from_source(source, payload, progress, || {
                let reader = VerifyingReader::new(source.open(payload)?, payload, source.describe());
                write(ImageInput::Compressed(Box::new(reader)), None)
            })
        }?;
        device::barrier(&self.system)?;
        shown.done();
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = ByteSize::bytes(total.saturating_mul(1000) / millis);
        progress.note(id, format!("OS image written and flushed at {rate}/s"));
        self.system.each(|disk| {
            let total = Some(content.expanded.size);
            let mut shown = progress.step("read-back", "Reading the OS image back", total);
            let partition = disk.partition(name)?;
            slot::check_image(&disk.device, partition, (content, &tree), &mut shown, cancel)?;
            shown.done();
            Ok(())
        })?;
        Ok(tree)
    }

    pub(super) fn images(&self, id: &str, blobs: &[Payload], metadata: Option<&Payload>) -> Result<()> {
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        let seeding = Seeding { source, cancel, release: &self.plan.release };
        let total = blobs.iter().chain(metadata).map(|payload| payload.size).sum();
        let mut shown = progress.step(id, "Storing the container images", Some(total));
        self.mounted(PartitionName::Persistent, MountAccess::Write, |root| {
            if self.plan.continued {
                let [there, all] = [seeding.there(root, blobs), blobs.iter().map(|blob| blob.size).sum()];
                let [there, all] = [there, all].map(ByteSize::bytes);
                progress.note(
                    id,
                    format!(
                        "{there} of {all} are already there; each blob is read before it \
                    is kept"
                    ),
                );
            }
            seeding.seed(root, blobs, metadata, &mut shown)
        })?;
        shown.done();
        self.on_each_disk(|| {
            let what = "Reading the container images back";
            let mut shown = progress.step("images-read-back", what, Some(total));
            self.mounted(PartitionName::Persistent, MountAccess::Read, |root| {
                seeding.read_back(root, blobs, metadata, &mut shown)
            })?;
            shown.done();
            Ok(())
        })
    }

    pub(super) fn unpack(&self, images: &[UnpackedImage]) -> Result<()> {
        let RunEffects { unpacking, progress, cancel, .. } = *self.effects;
        let containerd = &self.plan.release.containerd;
        self.mounted(PartitionName::Persistent, MountAccess::Write, |root| {
            unpacking.unpack(root, containerd, images, progress, cancel)
        })
    }
}

/// What writing the OS image to this partition is called.
fn slot_title(name: PartitionName) -> &'static str {
    if name == PartitionName::Recovery { "Writing the recovery system" } else { "Writing the OS image" }
}
