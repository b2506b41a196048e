//! From configuration, inventory and release manifest to a plan: a pure function.
//!
//! A [`Plan`] prints as text ([`render`]) and as JSON. Neither form holds the node document, which may hold secrets.

mod boot;
mod cards;
mod choose;
mod disk_replacement;
mod disk_roles;
mod disk_search;
mod disks;
mod keep;
mod labels;
pub mod layout;
mod leftover;
mod mirror;
mod new_layout;
mod payloads;
mod raid_set;
mod render;
mod sealed;
mod slot;
mod step;
mod steps;
mod takedown;
mod target;

use anyhow::Result;
use serde::Serialize;
use uuid::Uuid;

pub use boot::LOADER_SCRIPT;
pub use choose::{absent_disks, blocking, own_name, system_disk as choose_disk};
pub use disk_replacement::{DiskReplacement, JoinedArray, ReplacementKind, disk_replacement};
pub use disk_roles::written_disks;
pub use disks::{DataDisk, WipedDisk};
pub use keep::KeptPartition;
pub(crate) use labels::DATA as DATA_LABEL;
pub use layout::{Partition, PartitionName, SectorSize};
pub(crate) use leftover::describe_holder;
pub use mirror::{Array, Mirror};
pub(crate) use payloads::{fit_slot, images_of, unpacked};
pub use render::{Losses, PlanReview};
pub use sealed::{NodeTexts, SealedPlan};
pub use slot::{BOOT_ROOM, BOOT_VOLUME_BYTES, SlotGeometry};
pub use step::{FatContent, Filesystem, PlannedContent, PlannedFile, Step, UnpackedImage};
pub(crate) use steps::boot_volume;
pub use target::Target;
pub use target::target as target_of;

use crate::resolve::Reference;
use base::failure::{Class, Failure};
use disk_roles::DiskRoles;
use machine::inventory::{FoundPartition, Holder, Inventory};
use machine::nics::RememberedCards;
use model::config::{HostSettings, Images, InstallConfig, Mode, NodeRole};
use model::release_manifest::ReleaseManifest;
use new_layout::NewLayout;
use payloads::NeededPayloads;
use steps::steps;

#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub product: String,
    #[serde(flatten)]
    pub role: NodeRole,
    /// Whether it creates a cluster or joins one.
    pub mode: Mode,
    pub disk: Target,
    pub erased: Vec<FoundPartition>,
    pub disk_guid: Uuid,
    /// Whether the disk holds an unfinished install of the same content, which this one continues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
    pub partitions: Vec<Partition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// The data disk, if that is a separate one and is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<DataDisk>,
    /// The data partition that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptPartition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wiped: Vec<WipedDisk>,
    /// What holds these disks, and is taken down before they are opened, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken_down: Vec<Holder>,
    /// What the configuration asks for and does not get, and what else a person has to know, each a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The hardware addresses of the network cards that the configuration names, which the node remembers.
    #[serde(skip_serializing_if = "RememberedCards::is_empty")]
    pub cards: RememberedCards,
    /// The settings of the machine under virtual machines, which the node sets up at each start.
    #[serde(skip_serializing_if = "HostSettings::is_empty")]
    pub host: HostSettings,
    pub steps: Vec<Step>,
    /// What is downloaded or read before the plan of an install is made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<Reference>,
    pub finish: AfterInstall,
    /// What the node keeps as its node document.
    #[serde(skip)]
    pub document: Box<InstallConfig>,
    #[serde(skip)]
    pub release: Box<ReleaseManifest>,
}

/// What the machine does after an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterInstall {
    Reboot,
    Poweroff,
}

impl Plan {
    pub fn disks(&self) -> impl Iterator<Item = &Target> {
        let second = self.mirror.as_ref().map(|mirror| &mirror.disk);
        let data = self.data_disk.as_ref().map(|data| &data.disk);
        let kept = self.kept.as_ref().map(|kept| &kept.disk);
        let wiped = self.wiped.iter().map(|wiped| &wiped.disk);
        [Some(&self.disk), second, data, kept].into_iter().flatten().chain(wiped)
    }

    /// The partition of that name, on any disk. Absent only for `data`: on a witness, and if it is kept on another disk.
    #[must_use]
    pub fn partition(&self, name: PartitionName) -> Option<&Partition> {
        self.all_partitions().find(|partition| partition.name == name)
    }

    /// Whether the intact content of the partition of that name is kept as the beginning of this install.
    #[must_use]
    pub fn stays(&self, name: PartitionName) -> bool {
        use PartitionName::{Config, Persistent, Recovery, RootA};
        self.continued && matches!(name, Config | RootA | Recovery | Persistent)
    }

    /// The data that is kept on the disk of the system.
    #[must_use]
    pub fn kept_here(&self) -> Option<&KeptPartition> {
        self.kept.as_ref().filter(|kept| kept.disk.name == self.disk.name)
    }

    /// The data that is kept on another disk, which is not changed at all.
    #[must_use]
    pub fn kept_apart(&self) -> Option<&KeptPartition> {
        self.kept.as_ref().filter(|kept| kept.disk.name != self.disk.name)
    }

    fn all_partitions(&self) -> impl Iterator<Item = &Partition> {
        new_layout::all_partitions(&self.partitions, self.data_disk.as_ref())
    }
}

/// Makes the plan. `disk_guid` becomes the identity of the new partition table; everything else follows from the arguments.
///
/// # Errors
/// A [`Failure`]: [`Class::Hardware`] if the machine does not fit, [`Class::Invalid`] if the configuration cannot be satisfied,
/// [`Class::Verification`] if the manifest is incomplete.
pub fn plan(
    config: &InstallConfig,
    inventory: &Inventory,
    release: &ReleaseManifest,
    disk_guid: Uuid,
) -> Result<Plan> {
    let install = &config.install;
    if let Some(machine) = inventory.architecture
        && machine != release.architecture
    {
        let what = format!("this medium is for {}, and this machine is {machine}", release.architecture);
        return Err(Failure::new(Class::Hardware, what)
            .hint(format!("Take the medium for {machine}, whose name ends with -{machine}.iso."))
            .into());
    }
    check_distribution(config, release)?;
    cards::check(config, &inventory.nics)?;
    let role = install.own_role();
    let roles = DiskRoles::of(config, inventory)?;
    let layout = NewLayout::of(install, inventory, &roles, disk_guid)?;
    let needed = NeededPayloads::of(release, role, install.images() == Images::Preload)?;
    needed.fit(&layout.storable())?;
    let steps = steps(config, release, &inventory.nics, (&roles, &layout), &needed)?;
    Ok(Plan {
        product: format!("{} {}", release.name, release.version),
        role: install.node_role(),
        mode: install.mode,
        disk: roles.target,
        erased: layout.erased,
        disk_guid,
        continued: false,
        partitions: layout.partitions,
        mirror: layout.mirror,
        data_disk: layout.data_disk,
        kept: roles.kept,
        wiped: roles.wiped,
        taken_down: roles.taken_down,
        warnings: roles.warnings,
        cards: RememberedCards::default().after(config, &inventory.nics),
        host: config.os.host.clone(),
        steps,
        fetched: crate::resolve::references(config),
        finish: if install.poweroff { AfterInstall::Poweroff } else { AfterInstall::Reboot },
        document: Box::new(config.clone()),
        release: Box::new(release.clone()),
    })
}

/// Refuses a node whose configured distribution is not the medium's. A medium whose images are for the OS image's own containerd
/// has none.
fn check_distribution(config: &InstallConfig, release: &ReleaseManifest) -> Result<(), Failure> {
    let Some(brought) = release.distribution() else { return Ok(()) };
    let wanted = config.kubernetes.distribution();
    if config.install.mode == Mode::Install || brought == wanted {
        return Ok(());
    }
    let (brought, wanted) = (brought.name(), wanted.name());
    let what = format!("this medium brings {brought}, and the configuration asks for {wanted}");
    Err(Failure::new(Class::Invalid, what)
        .hint(format!("Set kubernetes.distribution: {brought}, or take a medium with {wanted}.")))
}

#[cfg(test)]
pub(crate) mod tests;
