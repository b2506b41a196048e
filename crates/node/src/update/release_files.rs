//! The files of a release that this node has, wherever they are: fetched, in its slots, or kept since its install. Each is compared
//! with its digest before it counts. Blobs of container images are not among them: containerd has those.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::fetched::fetched;
use super::slots::NodeSlots;
use base::cancel::Cancel;
use base::digest::Hasher;
use base::files::open_entry;
use base::progress::{Progress, Step};
use install::execute::{SlotSource, install_files_directory};
use machine::paths::below;
use medium::network_boot::files::MediumFiles;
use model::boot::Slot;
use model::release::{Payload, Purpose};
use model::release_manifest::ReleaseManifest;
use transfer::server::served_file::ServedFile;

const BUFFER_BYTES: usize = 1 << 20;

/// The places of this node that may have files of a release.
struct ReleasePlaces {
    directories: Vec<PathBuf>,
    slots: Vec<SlotSource>,
}

/// True for a payload that a node looks for: not a configuration that a medium was built with, which may hold secrets, and not what
/// containerd has.
#[must_use]
pub fn is_release_file(payload: &Payload) -> bool {
    !matches!(payload.purpose, Purpose::ImageBlob | Purpose::InstallConfig | Purpose::BootPassword)
}

/// Finds the files of `release` on the node at `root`. Without `slots` only what was fetched or kept is found.
///
/// # Errors
/// [`Class::Cancelled`](base::failure::Class::Cancelled).
pub fn release_files(
    root: &Path,
    slots: Option<&NodeSlots>,
    release: &ReleaseManifest,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<MediumFiles> {
    let places = ReleasePlaces::of(root, slots, release);
    let wanted = release.all_payloads().filter(|payload| is_release_file(payload));
    let total = wanted.map(|payload| payload.size).sum();
    let message = format!("Checking the files of {} {}", release.name, release.version);
    let mut step = progress.step("release-files", message, Some(total));
    let documents = (release.bytes().to_vec(), release.signatures().map(<[u8]>::to_vec));
    let files = MediumFiles::gather((**release).clone(), documents, |payload, _| {
        if !is_release_file(payload) {
            return Ok(None);
        }
        let before = step.bytes();
        for served in places.candidates(payload) {
            if is_right(&served, &mut step, cancel)? {
                return Ok(Some(served));
            }
            step.back_to(before);
        }
        step.advance(payload.size);
        Ok(None)
    })?;
    step.done();
    Ok(files)
}

impl ReleasePlaces {
    fn of(root: &Path, slots: Option<&NodeSlots>, release: &ReleaseManifest) -> Self {
        let digest = release.digest();
        let fetched = fetched(root).filter(|(_, fetched)| *fetched == digest).map(|(directory, _)| directory);
        let kept = install_files_directory(&below(root, "/var"), digest);
        // The slot that runs is not written.
        let in_order = slots.into_iter().flat_map(|slots| {
            let others = Slot::ALL.into_iter().filter(|slot| *slot != slots.running);
            [slots.running].into_iter().chain(others).map(|slot| slots.slot(slot))
        });
        let sources = in_order.filter_map(|slot| slot.source().ok());
        Self {
            directories: fetched.into_iter().chain([kept]).collect(),
            slots: sources.filter(|source| source.release.digest() == digest).collect(),
        }
    }

    /// What may be the payload, the best first.
    fn candidates(&self, payload: &Payload) -> Vec<ServedFile> {
        let in_directory = |directory: &PathBuf| {
            let file = open_entry(directory, Path::new(&payload.path)).ok()?;
            let whole = file.metadata().is_ok_and(|metadata| metadata.len() == payload.size);
            whole.then(|| ServedFile::whole(file, payload.size, payload.sha256))
        };
        let in_slots = self.slots.iter().filter_map(|slot| slot.served(payload).ok().flatten());
        self.directories.iter().filter_map(in_directory).chain(in_slots).collect()
    }
}

/// Whether the content has its digest. What cannot be read counts as wrong.
fn is_right(served: &ServedFile, step: &mut Step, cancel: &Cancel) -> Result<bool> {
    let (mut hasher, mut buffer, mut position) = (Hasher::default(), vec![0; BUFFER_BYTES], 0);
    loop {
        cancel.check()?;
        match served.read_at(&mut buffer, position) {
            Ok(0) => return Ok(position == served.length && hasher.finish() == served.sha256),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                position += count as u64;
                step.advance(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(false),
        }
    }
}
