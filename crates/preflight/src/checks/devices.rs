//! Disk and network cards.

use super::judge::judge;
use super::machine::node;
use crate::check::{CheckOutcome, CheckSubject};
use crate::limits::speed;
use crate::planned_node::PlannedNode;
use base::failure::Failure;
use install::plan::choose_disk;
use machine::inventory::pci::PciKind;
use machine::inventory::{Disk, Inventory, Nic};
use machine::network_disks::MOVED_HINT;
use machine::network_trouble::NetworkTrouble;
use model::config::Interface;
use model::config::disk::Transport;
use model::network_disks::DiskProtocol;

pub(super) fn disk_size(subject: &CheckSubject<'_>) -> CheckOutcome {
    let disk = match target(subject) {
        Ok(disk) => disk,
        Err(outcome) => return outcome,
    };
    let mut limits = subject.limits();
    if has_data_disk(subject, disk) {
        limits = limits.without_data(subject.node.profile);
    }
    let found = |least| {
        let message = format!("{}; {} should have {least}", disk.describe(), node(subject));
        CheckOutcome::found(message, "Use a larger disk, and select it with install.device.")
    };
    if disk.size < limits.disk {
        found(limits.disk)
    } else if disk.size < limits.roomy_disk {
        found(limits.roomy_disk).mild()
    } else {
        CheckOutcome::passed(disk.describe())
    }
}

pub(super) fn disk_speed(subject: &CheckSubject<'_>) -> CheckOutcome {
    let disk = match target(subject) {
        Ok(disk) => disk,
        // The disk check reports it already.
        Err(_) => return CheckOutcome::could_not_run("the disk is not known; see disk-size"),
    };
    let path = disk.path.display();
    let slow = match disk.transport {
        Transport::Usb => Some("is attached by USB"),
        Transport::Mmc => Some("is a memory card"),
        _ if disk.rotational => {
            Some("reports that it is rotational, as hard disks and some RAID controllers do")
        }
        _ => None,
    };
    match slow {
        None => CheckOutcome::passed(format!("{path} is not a rotational disk")),
        Some(how) => CheckOutcome::found(
            format!(
                "{path} {how}; etcd and the storage of virtual machines need thousands of writes a second"
            ),
            "Use an SSD or NVMe disk.",
        ),
    }
}

/// A machine with Secure Boot would start without the devices whose modules its kernel refuses.
pub(super) fn module_signatures(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (trust, devices) = match (&subject.facts.module_trust, &subject.facts.present) {
        (Ok(Some(trust)), Ok(devices)) => (trust, devices),
        (Ok(None), _) => {
            return CheckOutcome::passed("the kernel of this machine loads unsigned modules too");
        }
        (Err(why), _) | (_, Err(why)) => return CheckOutcome::could_not_run(why),
    };
    let Some(coverage) = &subject.node.coverage else {
        return CheckOutcome::skipped("the release does not say which modules it has");
    };
    let refused = trust.refused(devices, &subject.node.modules, coverage);
    let Some(first) = refused.first() else {
        return CheckOutcome::passed("the kernel would load every module that this machine needs");
    };
    let told: Vec<_> = refused.iter().map(ToString::to_string).collect();
    CheckOutcome::found(told.join("; "), first.problem.hint())
}

/// A node finds the partitions of its disk by identifiers that they have on every path. Without multipathd in the initrd its parts would use
/// different paths, whose writes the kernel does not see as those of one disk.
pub(super) fn disk_paths(subject: &CheckSubject<'_>) -> CheckOutcome {
    let disk = match target(subject) {
        Ok(disk) => disk,
        // The disk check reports it already.
        Err(_) => return CheckOutcome::could_not_run("the disk is not known; see disk-size"),
    };
    let data = subject
        .node
        .data_disk
        .as_ref()
        .and_then(|selector| choose_disk(&subject.facts.inventory, Some(selector), None).ok());
    let maps: Vec<_> = [Some(disk), data].into_iter().flatten().filter(|disk| disk.is_map()).collect();
    let paths: Vec<_> =
        maps.iter().map(|map| format!("{} paths lead to {}", map.paths.len(), map.path.display())).collect();
    let paths = paths.join(", ");
    if maps.is_empty() {
        return CheckOutcome::passed(format!("one path leads to {}", disk.path.display()));
    }
    if subject.node.mirror.is_some() && disk.is_map() {
        return CheckOutcome::found(
            format!("{paths}, and a mirror of disks with several paths is not supported"),
            "Remove install.mirror: storage with several paths keeps copies itself. Or name two disks with one path each.",
        );
    }
    match subject.node.several_paths {
        Some(true) => CheckOutcome::passed(paths),
        Some(false) => CheckOutcome::found(
            format!(
                "{paths}, and the initrd of the release has no multipathd; a node would take one path by chance, and could \
                 not be updated"
            ),
            "Build the release with the package multipath-tools in base.debian.include, or let the storage offer the disk \
             on a single path.",
        ),
        None => CheckOutcome::could_not_run(format!(
            "{paths}, and the release is not known; its initrd has to have multipathd"
        )),
    }
}

/// The initrd of a node reaches such disks before it looks for partitions, over a card that no network of the node takes from it.
pub(super) fn network_disks(subject: &CheckSubject<'_>) -> CheckOutcome {
    let CheckSubject { facts, node, .. } = subject;
    let nics = facts.inventory.nics.iter();
    let mut of_networks = nics.filter(|nic| node.all_cards.iter().any(|card| nic.is(card)));
    let firmware = &facts.firmware_disks;
    let of_disks = |nic: &&Nic| firmware.cards.iter().any(|card| nic.mac.parse() == Ok(card.mac));
    if let Some(nic) = of_networks.find(of_disks) {
        return CheckOutcome::found(
            format!(
                "the firmware reaches an iSCSI disk over {} {}, which a network of the configuration names; as a part of its \
                 bond the card would lose the address",
                nic.name, nic.mac
            ),
            MOVED_HINT,
        );
    }
    let remote: Vec<_> =
        all_disks(subject).into_iter().filter_map(|disk| Some((&disk.path, disk.remote.as_ref()?))).collect();
    let words: Vec<_> =
        remote.iter().map(|(path, remote)| format!("{} is {remote}", path.display())).collect();
    let words = words.join("; ");
    if remote.is_empty() {
        return CheckOutcome::passed("no disk of the node is reached over the network");
    }
    let Some(protocols) = &node.disk_protocols else {
        return CheckOutcome::could_not_run(format!(
            "{words}, and the release is not known; its initrd has to reach such disks"
        ));
    };
    if let Some((_, unreached)) = remote.iter().find(|(_, remote)| !protocols.contains(&remote.protocol)) {
        let hint = match unreached.protocol {
            DiskProtocol::Iscsi => "the package open-iscsi in base.debian.include",
            DiskProtocol::NvmeTcp => "a kernel that has the module nvme-tcp",
        };
        return CheckOutcome::found(
            format!("{words}, and the initrd of the release does not reach disks by {}", unreached.protocol),
            format!("Build the release with {hint}, or choose a disk of the machine itself."),
        );
    }
    let system = target(subject).ok().and_then(|disk| disk.remote.as_ref());
    match system.filter(|system| !firmware.targets.iter().any(|named| named.target == system.target)) {
        None => CheckOutcome::passed(words),
        Some(_) => CheckOutcome::found(
            format!("{words}, and the firmware has no iBFT with the target of the system"),
            "Make sure that the firmware, iPXE or the network card starts the machine from this disk.",
        )
        .mild(),
    }
}

/// Whether data gets a disk of its own. Errors of that disk are reported by the plan.
fn has_data_disk(subject: &CheckSubject<'_>, system: &Disk) -> bool {
    let selector = subject.node.data_disk.as_ref();
    selector.is_some_and(|selector| {
        let data = choose_disk(&subject.facts.inventory, Some(selector), None);
        data.is_ok_and(|data| data.name != system.name)
    })
}

/// The disks that an install would write for the node, as far as they are known.
pub(super) fn all_disks<'a>(subject: &'a CheckSubject<'_>) -> Vec<&'a Disk> {
    let PlannedNode { mirror, data_disk, .. } = subject.node;
    let further = [mirror, data_disk].into_iter().flatten();
    let further =
        further.filter_map(|selector| choose_disk(&subject.facts.inventory, Some(selector), None).ok());
    target(subject).ok().into_iter().chain(further).collect()
}

/// The disk that an install would take; otherwise the outcome of the check.
pub(super) fn target<'a>(subject: &'a CheckSubject<'_>) -> Result<&'a Disk, CheckOutcome> {
    let inventory = &subject.facts.inventory;
    let PlannedNode { device, data_disk, .. } = subject.node;
    let chosen = choose_disk(inventory, device.as_ref(), data_disk.as_ref());
    chosen.map_err(|failure| refused(subject, &failure))
}

fn refused(subject: &CheckSubject<'_>, failure: &Failure) -> CheckOutcome {
    let disks =
        subject.facts.inventory.disks.iter().filter(|disk| !disk.optical && !disk.boot_medium).count();
    // The disk is not chosen yet.
    if subject.node.device.is_none() && subject.node.data_disk.is_none() && disks > 1 {
        return CheckOutcome::could_not_run(format!("{failure}, and install.device does not say which"));
    }
    let next = "Attach a disk that can be written, or name another one in install.device.";
    CheckOutcome::found(failure.to_string(), next)
}

pub(super) fn nic_link(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NEXT: &str = "Plug in the cable, or name another card in install.management_interface.";
    let (inventory, wanted) = (&subject.facts.inventory, &subject.node.cards);
    if wanted.is_empty() {
        return any_link(subject, NEXT);
    }
    let link = |nic: Option<&Nic>| match nic.map(|nic| nic.carrier) {
        Some(Some(true)) => Ok("has a link".into()),
        Some(Some(false)) => Err(NetworkTrouble::Silent("has no link".into())),
        Some(None) => Err(NetworkTrouble::Unable("is down, so whether it has a link is not known".into())),
        None => {
            let cards: Vec<_> =
                inventory.nics.iter().map(|nic| format!("{} {}", nic.name, nic.mac)).collect();
            let cards = if cards.is_empty() { "none".into() } else { cards.join(", ") };
            Err(NetworkTrouble::Silent(format!("is no card of this machine, which has {cards}")))
        }
    };
    let links: Vec<_> = each(inventory, wanted, link);
    let some = links.iter().any(|(_, link)| link.is_ok());
    let outcome = judge(links, NEXT);
    // A bond works with one card.
    if some { outcome.mild() } else { outcome }
}

/// Cards and controllers that the kernel cannot use, or not wholly.
pub(super) fn drivers(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NO_DRIVER: &str = "Take a release with a newer kernel, or one with the module that drives it.";
    const NO_FIRMWARE: &str = "Take a release whose image definition has the firmware: base.debian.firmware is servers, all, or a list \
                               that also names the package of Debian with the file.";
    let devices = match &subject.facts.devices {
        Ok(devices) => devices,
        Err(why) => return CheckOutcome::could_not_run(why),
    };
    let idle: Vec<_> = devices.iter().filter(|device| device.driver.is_none()).collect();
    let lacking: Vec<_> = devices.iter().filter(|device| !device.missing_firmware.is_empty()).collect();
    let mut told: Vec<_> = idle.iter().map(|device| format!("no driver for {device}")).collect();
    told.extend(lacking.iter().map(|device| {
        let driver = device.driver.as_deref().unwrap_or("its driver");
        format!("{driver} of {device} lacks the firmware {}", device.missing_firmware.join(", "))
    }));
    match (idle.is_empty(), lacking.is_empty()) {
        (true, true) => match devices.len() {
            0 => CheckOutcome::passed("of network cards and disk controllers there are none on the PCI bus"),
            1 => CheckOutcome::passed("the only one has a driver"),
            count => CheckOutcome::passed(format!("all {count} have a driver")),
        },
        (false, true) => CheckOutcome::found(told.join("; "), NO_DRIVER),
        (true, false) => CheckOutcome::found(told.join("; "), NO_FIRMWARE),
        (false, false) => {
            CheckOutcome::found(told.join("; "), format!("{NO_FIRMWARE} For the others: {NO_DRIVER}"))
        }
    }
}

/// The configuration names no card, so one with a link is enough.
fn any_link(subject: &CheckSubject<'_>, next: &str) -> CheckOutcome {
    let nics = &subject.facts.inventory.nics;
    if nics.is_empty() {
        let devices = subject.facts.devices.iter().flatten();
        let idle = devices.filter(|device| device.kind == PciKind::NetworkCard && device.driver.is_none());
        let idle: Vec<_> = idle.map(ToString::to_string).collect();
        return match idle.is_empty() {
            true => CheckOutcome::found(
                "there is no network card",
                "Fit a network card that the kernel has a driver for.",
            ),
            false => CheckOutcome::found(
                format!("there is no network card with a driver, and these have none: {}", idle.join("; ")),
                "Take a release whose kernel drives one of them, or fit another card.",
            ),
        };
    }
    let names = |carrier| {
        let names = nics.iter().filter(|nic| nic.carrier == carrier).map(|nic| nic.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let (linked, down) = (names(Some(true)), names(None));
    if !linked.is_empty() {
        CheckOutcome::passed(format!("{linked} has a link"))
    } else if !down.is_empty() {
        CheckOutcome::could_not_run(format!("{down} is down, so whether there is a link is not known"))
    } else {
        CheckOutcome::found("no network card has a link", next)
    }
}

pub(super) fn nic_speed(subject: &CheckSubject<'_>) -> CheckOutcome {
    let least = subject.limits().nic;
    let next = format!("Use a card, a cable and a switch port of {}.", speed(least));
    let (inventory, wanted) = (&subject.facts.inventory, &subject.node.cards);
    let fast = |nic: Option<&Nic>| match nic.map(|nic| nic.speed) {
        Some(Some(found)) if found >= least => Ok(format!("has {}", speed(found))),
        Some(Some(found)) => {
            let message = format!("has {}, and {} should have {}", speed(found), node(subject), speed(least));
            Err(NetworkTrouble::Silent(message))
        }
        Some(None) => Err(NetworkTrouble::Unable("does not report its speed".into())),
        None => Err(NetworkTrouble::Unable("is no card of this machine; see nic-link".into())),
    };
    if !wanted.is_empty() {
        return judge(each(inventory, wanted, fast), &next);
    }
    match inventory.nics.iter().max_by_key(|nic| nic.speed) {
        Some(nic) => judge(vec![(nic.name.clone(), fast(Some(nic)))], &next),
        None => CheckOutcome::could_not_run("there is no network card"),
    }
}

/// The answer for each card that the configuration names and the machine has.
fn each(
    inventory: &Inventory,
    wanted: &[Interface],
    judge: impl Fn(Option<&Nic>) -> Result<String, NetworkTrouble>,
) -> Vec<(String, Result<String, NetworkTrouble>)> {
    let one = |wanted: &Interface| {
        let nic = card(inventory, wanted);
        (nic.map_or_else(|| card_text(wanted), |nic| nic.name.clone()), judge(nic))
    };
    wanted.iter().map(one).collect()
}

/// The card that the configuration means, by its name, and by its address if it has one.
pub(crate) fn card<'a>(inventory: &'a Inventory, wanted: &Interface) -> Option<&'a Nic> {
    inventory.nics.iter().find(|nic| nic.is(wanted))
}

pub(super) fn card_text(wanted: &Interface) -> String {
    let words = [wanted.name.as_deref(), wanted.hw_addr.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
