//! A node and its updates: its slots, its boot record and its memory, and what changes them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::floor::{FloorSlot, floor};
use super::slots::NodeSlots;
use super::tried_release::{self, TriedRelease};
use crate::pending_reset::PendingReset;
use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::files::read_text;
use base::progress::Progress;
use cluster::health::{Baseline, HealthProbe, take_baseline};
use cluster::kept_version::image;
use install::execute::{ChangedRecord, MountAccess, SystemHost, with_mount};
use machine::node_release as release;
use machine::paths::below;
use machine::update_state::{ReleaseId, UpdateState, WrittenRelease};
use machine::{trust_memory, trust_store};
use medium::payload_sources::PayloadSource;
use model::boot::record::{BootRecord, SlotState, TRIES, UpdateSlot};
use model::boot::{BootParameters, Slot};
use model::kubernetes::KubernetesVersion;
use model::release_manifest::ReleaseManifest;
use trust::TrustMemory;

/// What a rollback changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// The staged release will not be tried.
    CalledOff,
    /// This slot starts at the next restart.
    To(UpdateSlot),
}

/// A node whose boot loader started it.
#[derive(Debug)]
pub struct UpdatedNode {
    root: PathBuf,
    pub slots: NodeSlots,
    pub release: ReleaseManifest,
    pub record: BootRecord,
    /// Why the last change of the record is missing on a disk of a mirror.
    pub unwritten: Vec<String>,
    pub memory: UpdateState,
    /// The version of Kubernetes that runs; none where the OS has none.
    pub kubernetes: Option<KubernetesVersion>,
    /// The persistent volume, where that is not mounted: in the recovery system.
    persistent: Option<PathBuf>,
    /// Why [`Self::memory`] could not be read or stored.
    pub lost_memory: Option<String>,
}

/// Runs `work` on the file system that a node has at `/var`, which is mounted meanwhile.
fn on_persistent<T>(device: &Path, access: MountAccess, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    with_mount(&SystemHost::new()?, device, access, work)
}

impl UpdatedNode {
    /// The node at `root`. Repairs a damaged boot record.
    ///
    /// # Errors
    /// [`Class::Hardware`] if this is not an installed node, or GRUB did not start it.
    pub fn read(root: &Path) -> Result<Self> {
        let line = read_text(&below(root, "/proc/cmdline"))?;
        let Some(installed) = BootParameters::parse(&line)? else {
            return Err(Failure::new(Class::Hardware, "this is not an installed node")
                .hint("Run this on an installed node, as root.")
                .into());
        };
        let slots = NodeSlots::find(root, &installed)?;
        let release = release::read_manifest(root)?;
        let persistent = (installed.slot == Slot::Recovery).then(|| installed.persistent.device());
        let erased = PendingReset::read(root).is_some_and(|pending| pending.is_under_way());
        let read = match &persistent {
            None => Ok(UpdateState::read(root)),
            // The reset makes this file system anew, so it must stay unmounted.
            Some(_) if erased => Ok(UpdateState::default()),
            Some(device) => on_persistent(device, MountAccess::Read, |var| Ok(UpdateState::read_in(var))),
        };
        let (memory, lost_memory) = match read {
            Ok(memory) => (memory, None),
            Err(error) => (UpdateState::default(), Some(format!("{error:#}"))),
        };
        let mut node = Self {
            root: root.to_owned(),
            slots,
            release,
            record: BootRecord::default(),
            unwritten: Vec::new(),
            memory,
            kubernetes: image::read(root)?.map(|release| release.version),
            persistent,
            lost_memory,
        };
        node.change(|_| ())?;
        Ok(node)
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The state of the slot that runs; none for the recovery system.
    #[must_use]
    pub fn running_state(&self) -> Option<SlotState> {
        UpdateSlot::of(self.slots.running).map(|slot| self.record.state(slot))
    }

    /// Where the last update has come to.
    #[must_use]
    pub fn tried_release(&self) -> TriedRelease {
        tried_release::tried_release(&self.record, &self.memory, self.slots.running)
    }

    fn change(&mut self, change: impl FnOnce(&mut BootRecord)) -> Result<()> {
        let ChangedRecord { record, unwritten } = self.slots.change_record(change)?;
        self.record = record;
        self.unwritten = unwritten.iter().map(|error| format!("{error:#}")).collect();
        Ok(())
    }

    /// Stores the memory. A failure in the recovery system is only noted: the boot record decides what starts.
    fn remember(&mut self) -> Result<()> {
        let Some(device) = &self.persistent else { return self.memory.write(&self.root) };
        let memory = &self.memory;
        if let Err(error) = on_persistent(device, MountAccess::Write, |var| memory.write_in(var)) {
            self.lost_memory = Some(format!("{error:#}"));
        }
        Ok(())
    }

    /// The slot for the next release: the one that does not run. In the recovery system, where neither runs, it is the one that is not
    /// good.
    #[must_use]
    pub fn target(&self) -> UpdateSlot {
        let second = self.record.order.other();
        match UpdateSlot::of(self.slots.running) {
            Some(running) => running.other(),
            None if self.record.state(second) == SlotState::Good => self.record.order,
            None => second,
        }
    }

    /// Writes a release into the other slot and reads it back. If the slot has it already, it is only read.
    pub fn stage(
        &mut self,
        offered: &ReleaseManifest,
        source: &dyn PayloadSource,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<()> {
        let (target, id) = (self.target(), ReleaseId::of(offered));
        let devices = self.slots.slot(target.into()).clone();
        let opened = devices.open_to_write()?;
        let place = opened.place();
        // From here on the old content of the slot must not start.
        self.change(|record| {
            record.set_state(target, SlotState::Empty);
            record.order = target.other();
            record.once = record.once.filter(|once| *once != Slot::from(target));
        })?;
        let same = devices.release().is_some_and(|there| ReleaseId::of(&there) == id);
        if same && place.holds(offered, progress, cancel)? {
            progress
                .note("stage", format!("{} {} is in slot {target} already", offered.name, offered.version));
        } else {
            if self.memory.staged.take().is_some() {
                self.remember()?;
            }
            place.write(offered, source, progress, cancel)?;
        }
        self.memory.staged = Some(WrittenRelease::now(id, target));
        self.memory.complaint = None;
        self.remember()
    }

    pub fn start_once(&mut self, slot: Slot) -> Result<()> {
        self.change(|record| record.once = Some(slot))
    }

    /// Cancels [`Self::start_once`].
    pub fn start_as_usual(&mut self) -> Result<()> {
        self.change(|record| record.once = None)
    }

    /// Writes the same complete boot record to each disk.
    pub fn rewrite_record(&mut self) -> Result<()> {
        let record = self.record.clone();
        self.change(|other| {
            *other = BootRecord { generation: record.generation.max(other.generation), ..record.clone() }
        })
    }

    #[must_use]
    pub fn good_slots(&self) -> Vec<UpdateSlot> {
        let order = [self.record.order, self.record.order.other()];
        let good = |slot: &UpdateSlot| {
            self.record.state(*slot) == SlotState::Good && self.slots.slot((*slot).into()).release().is_some()
        };
        order.into_iter().filter(good).collect()
    }

    /// Lets the boot loader try the staged release from the next restart on. Stores a baseline for the health check of that boot.
    ///
    /// # Errors
    /// [`Class::Invalid`] if nothing is staged.
    pub fn arm(&mut self, probe: &dyn HealthProbe) -> Result<()> {
        let Some(staged) = &self.memory.staged else {
            return Err(Failure::new(Class::Invalid, "nothing is staged")
                .hint("Name a release: installer update apply --from MEDIUM")
                .into());
        };
        let target = staged.slot;
        match &self.persistent {
            None => take_baseline(probe).write(&self.root)?,
            // The recovery system is no baseline for a node, and an older one is out of date.
            Some(device) => drop(on_persistent(device, MountAccess::Write, Baseline::forget_in)),
        }
        self.change(|record| {
            record.set_state(target, SlotState::Try);
            record.order = target;
            record.left = TRIES;
            record.miss = 0;
            record.once = None;
            record.why = None;
        })
    }

    /// Concludes an update that was tried and does not run; returns the reason.
    pub fn settle(&mut self) -> Result<Option<String>> {
        let Some(slot) = self.memory.staged.as_ref().map(|staged| staged.slot) else { return Ok(None) };
        match self.tried_release() {
            TriedRelease::Failed(mut reason) => {
                let why = self.record.why.as_ref().map(ToString::to_string).unwrap_or_default();
                self.change(|record| tried_release::condemn(record, slot, &why))?;
                // Without its commit mark the slot never starts again, even if the boot record is lost. The running release needs no mark.
                let opened = self.slots.slot(slot.into()).open_to_write();
                if let Err(error) = opened.and_then(|opened| opened.place().erase_mark()) {
                    reason.push_str(&format!("; its slot keeps its commit mark: {error:#}"));
                }
                self.memory.conclude(false, reason.clone());
                self.remember()?;
                Ok(Some(reason))
            }
            TriedRelease::Lost => {
                self.change(|record| record.set_state(slot, SlotState::Empty))?;
                Ok(None)
            }
            TriedRelease::Nothing | TriedRelease::Staged | TriedRelease::Armed | TriedRelease::Runs => {
                Ok(None)
            }
        }
    }

    /// Whether the running slot has not passed its health check yet.
    #[must_use]
    pub fn on_trial(&self) -> bool {
        self.running_state() == Some(SlotState::Try)
    }

    #[must_use]
    pub fn has_good_other(&self) -> bool {
        UpdateSlot::BOTH
            .into_iter()
            .any(|slot| Slot::from(slot) != self.slots.running && self.record.state(slot) == SlotState::Good)
    }

    /// Reads every byte of the running slot and compares it with the manifest.
    pub fn reads_through(&self, progress: &Progress, cancel: &Cancel) -> Result<bool> {
        let devices = self.slots.slot(self.slots.running);
        let Some(there) = devices.release() else { return Ok(false) };
        devices.open_to_read()?.place().holds(&there, progress, cancel)
    }

    /// Marks the running slot as good.
    pub fn approve(&mut self) -> Result<()> {
        let running = self.slots.running;
        self.change(|record| tried_release::approve(record, running))?;
        if self.tried_release() == TriedRelease::Runs {
            self.memory.conclude(true, String::new());
            self.remember()?;
        }
        Ok(())
    }

    /// Leaves the verdict on this boot open: it costs no try.
    pub fn stay_on_trial(&mut self) -> Result<()> {
        self.change(|record| {
            record.left = TRIES;
            record.run = None;
        })
    }

    /// Writes the running release into the recovery slot. Does nothing unless both slots are good, so that another system can always be
    /// started meanwhile, or if the recovery slot has that release.
    pub fn renew_recovery(&self, progress: &Progress, cancel: &Cancel) -> Result<()> {
        let good = UpdateSlot::BOTH.into_iter().all(|slot| self.record.state(slot) == SlotState::Good);
        if !good || self.slots.running == Slot::Recovery {
            return Ok(());
        }
        let source = self.slots.slot(self.slots.running).source()?;
        let recovery = self.slots.slot(Slot::Recovery);
        if recovery.release().is_some_and(|there| ReleaseId::of(&there) == ReleaseId::of(&source.release)) {
            return Ok(());
        }
        let opened = recovery.open_to_write()?;
        opened.place().write(&source.release, &source, progress, cancel)
    }

    /// Adds to what this node remembers of trust: what the OS image that runs has revoked, and the lowest rollback index of all that can
    /// still start. Returns what is remembered then, if that is news. For a good boot only, while no other update changes the slots.
    ///
    /// # Errors
    /// Those of [`trust_store::of_image`] and [`trust_memory::add`].
    pub fn remember_trust(&self) -> Result<Option<TrustMemory>> {
        let slot = |slot: Slot| FloorSlot {
            state: UpdateSlot::of(slot).map(|slot| self.record.state(slot)),
            index: self.slots.slot(slot).release().map(|release| release.rollback_index),
        };
        let floor = floor(Slot::ALL.map(slot)).unwrap_or_default();
        let revoked = trust_store::of_image(&self.root)?.revoked().clone();
        trust_memory::add(&self.root, TrustMemory { floor, revoked })
    }

    /// Rejects the running slot, which is on trial: the next restart starts the other, good one, which then reports `reason`.
    pub fn reject(&mut self, why: &str, reason: String) -> Result<()> {
        let Some(slot) = UpdateSlot::of(self.slots.running) else { return Ok(()) };
        self.memory.complaint = Some(reason);
        self.remember()?;
        self.change(|record| tried_release::condemn(record, slot, why))
    }

    /// The release in the other slot that is staged or armed.
    #[must_use]
    pub fn waiting(&self) -> Option<&WrittenRelease> {
        self.memory
            .staged
            .as_ref()
            .filter(|_| matches!(self.tried_release(), TriedRelease::Staged | TriedRelease::Armed))
    }

    /// Cancels what is staged, or lets the other slot start, once or from now on.
    ///
    /// # Errors
    /// [`Class::Hardware`] if the other slot is not good.
    pub fn roll_back(&mut self, once: bool) -> Result<Rollback> {
        if let Some(slot) = self.waiting().map(|staged| staged.slot) {
            self.change(|record| {
                record.set_state(slot, SlotState::Empty);
                record.order = slot.other();
                record.once = None;
            })?;
            return Ok(Rollback::CalledOff);
        }
        let other = self.target();
        let devices = self.slots.slot(other.into());
        let state = self.record.state(other);
        if state != SlotState::Good || devices.release().is_none() {
            let what = format!("there is nothing to go back to: slot {other} is {}", state.name());
            return Err(Failure::new(Class::Hardware, what)
                .hint("See `installer update status`. Another release: installer update apply --from MEDIUM")
                .into());
        }
        if self.on_trial() {
            self.reject("asked", "somebody went back to the release before".into())?;
        } else {
            self.change(|record| match once {
                true => record.once = Some(other.into()),
                false => record.order = other,
            })?;
        }
        Ok(Rollback::To(other))
    }
}
