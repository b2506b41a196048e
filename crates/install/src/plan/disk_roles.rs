//! Which disk of the machine has which part in an install. Made once; the layout, the steps and the losses that a plan shows
//! follow from it.

use super::choose;
use super::disk_search::{DiskSearch, SYSTEM};
use super::disks::{self, WipedDisk};
use super::keep::{self, KeptPartition};
use super::mirror;
use super::raid_set;
use super::takedown;
use super::target::{Target, target};
use anyhow::anyhow;
use base::failure::{Class, Failure};
use machine::inventory::{Disk, Holder, Inventory};
use model::boot::{MultipathId, NetworkDiskUse};
use model::config::InstallConfig;
use model::network_disks::DiskProtocol;

/// The disks that an install is for, as the configuration chooses them.
pub(super) struct ChosenDisks<'a> {
    pub(super) system: &'a Disk,
    /// The second disk of a mirrored system.
    pub(super) mirror: Option<&'a Disk>,
    /// The disk for data, if that is a separate one.
    pub(super) data: Option<&'a Disk>,
}

impl<'a> ChosenDisks<'a> {
    fn of(config: &InstallConfig, inventory: &'a Inventory) -> Result<Self, Failure> {
        let install = &config.install;
        let search = DiskSearch { inventory, key: SYSTEM, least: disks::least(install, SYSTEM) };
        let system = choose::system(search, install.device.as_ref(), install.data_disk.as_ref())?;
        let data = disks::data_disk(install, install.own_role(), inventory, system)?;
        let mirror = mirror::disk(install, inventory, system, data)?;
        [Some(system), mirror].into_iter().flatten().try_for_each(require_firmware_reaches)?;
        Ok(Self { system, mirror, data })
    }

    /// Those that the initrd has to reach.
    fn network_disks(&self) -> NetworkDiskUse {
        let protocol = |disk: &Disk| disk.remote.as_ref().map(|remote| remote.protocol);
        let system = [Some(self.system), self.mirror].into_iter().flatten();
        NetworkDiskUse {
            system: system.filter_map(protocol).next().is_some(),
            data: self.data.and_then(protocol),
        }
    }

    /// The targets of the system and of the data that are reached over the network.
    pub(super) fn remote_targets(&self) -> [Vec<(DiskProtocol, &'a str)>; 2] {
        let target =
            |disk: &'a Disk| disk.remote.as_ref().map(|remote| (remote.protocol, remote.target.as_str()));
        let system = [Some(self.system), self.mirror].into_iter().flatten();
        [system.filter_map(target).collect(), self.data.and_then(target).into_iter().collect()]
    }

    fn all(&self) -> Vec<&'a Disk> {
        [self.system].into_iter().chain(self.mirror).chain(self.data).collect()
    }

    /// The disks that the node is written to; `data_stays`: the data disk is left unchanged.
    fn written(&self, data_stays: bool) -> Vec<&'a Disk> {
        let data = self.data.filter(|_| !data_stays);
        [self.system].into_iter().chain(self.mirror).chain(data).collect()
    }
}

/// The boot loader reads its files through the firmware, and the table by which firmware would name such a disk to the system (NBFT) is
/// not read.
fn require_firmware_reaches(disk: &Disk) -> Result<(), Failure> {
    match &disk.remote {
        Some(remote) if remote.protocol == DiskProtocol::NvmeTcp => Err(Failure::new(
            Class::Hardware,
            format!("{} cannot hold the system: it is {remote}", disk.path.display()),
        )
        .because(anyhow!("no node starts from a disk that is reached by NVMe over TCP"))
        .hint("Choose a disk of the machine or an iSCSI disk for the system, and this one with install.data_disk.")),
        _ => Ok(()),
    }
}

pub(super) struct DiskRoles<'a> {
    pub(super) chosen: ChosenDisks<'a>,
    /// The disk of the system as the executor needs it.
    pub(super) target: Target,
    /// The data that is kept: on the data disk if that is a separate one, else on that of the system.
    pub(super) kept: Option<KeptPartition>,
    /// The disks that are wiped and have no part in the node.
    pub(super) wiped: Vec<WipedDisk>,
    /// What holds the disks that are written or wiped, each before what it is made of.
    pub(super) taken_down: Vec<Holder>,
    /// The disks of the node that have several paths.
    pub(super) multipath: Vec<MultipathId>,
    /// Which disks of the node are reached over the network.
    pub(super) network_disks: NetworkDiskUse,
    /// What the configuration asks for and does not get, each a sentence.
    pub(super) warnings: Vec<String>,
}

impl<'a> DiskRoles<'a> {
    /// # Errors
    /// A disk is absent, ambiguous, not usable for its part, or protected by the configuration.
    pub(super) fn of(config: &InstallConfig, inventory: &'a Inventory) -> Result<Self, Failure> {
        let install = &config.install;
        let chosen = ChosenDisks::of(config, inventory)?;
        let target = target(chosen.system)?;
        let kept = keep::find(install, install.own_role(), inventory, chosen.system, chosen.data)?;
        let written = chosen.written(kept.is_some());
        disks::refuse_protected(install, &written)?;
        let all = chosen.all();
        let (wiped, mut warnings) = disks::wiped(install, inventory, &all)?;
        let erased = disks::written_or_wiped(inventory, &written, &wiped);
        warnings.extend(raid_set::refuse_part(inventory, &erased, disks::least(install, SYSTEM))?);
        let taken_down = takedown::order(install, inventory, &erased, kept.as_ref())?;
        warnings.extend(disks::without_effect(install, chosen.system, chosen.data));
        let multipath = disks::multipath(&all)?;
        let network_disks = chosen.network_disks();
        warnings.extend(disks::unread(all.into_iter()));
        Ok(Self { chosen, target, kept, wiped, taken_down, multipath, network_disks, warnings })
    }

    /// The data disk, if it is a separate one and is written.
    pub(super) fn new_data_disk(&self) -> Option<&'a Disk> {
        self.chosen.data.filter(|_| self.kept.is_none())
    }

    /// The data that is kept on the disk of the system.
    pub(super) fn kept_beside_system(&self) -> Option<&KeptPartition> {
        self.kept.as_ref().filter(|_| self.chosen.data.is_none())
    }
}

/// The disks that an install writes the node to: those of the system, and the data disk unless it is kept. Disks that are only
/// wiped are not included.
///
/// # Errors
/// The same as [`super::plan`] if the configuration selects no disk.
pub fn written_disks<'a>(config: &InstallConfig, inventory: &'a Inventory) -> Result<Vec<&'a Disk>, Failure> {
    Ok(ChosenDisks::of(config, inventory)?.written(!config.install.keep.is_empty()))
}
