//! Processor, memory and firmware.

use uuid::Uuid;

use crate::check::{CheckOutcome, CheckSubject};
use base::size::ByteSize;
use model::architecture::Architecture;
use model::config::Role;
use model::machine::identity::is_shared;

/// Returns why a fact is not known, or judges it.
macro_rules! known {
    ($fact:expr) => {
        match &$fact {
            Ok(value) => value,
            Err(why) => return CheckOutcome::could_not_run(why),
        }
    };
}

pub(super) fn cpu(subject: &CheckSubject<'_>) -> CheckOutcome {
    let cpus = *known!(subject.facts.cpus);
    let least = subject.limits().cpus;
    let told = if cpus == 1 { "1 processor".to_owned() } else { format!("{cpus} processors") };
    match cpus >= least {
        true => CheckOutcome::passed(told),
        false => CheckOutcome::found(
            format!("{told}, and {} should have {least}", node(subject)),
            "Use a machine with more processors, or enable those that are disabled in the firmware.",
        ),
    }
}

pub(super) fn memory(subject: &CheckSubject<'_>) -> CheckOutcome {
    let memory = *known!(subject.facts.memory);
    let least = subject.limits().memory;
    // The kernel's number lacks what the firmware and the kernel itself have reserved.
    let enough = if memory.fitted { least } else { ByteSize::bytes(least.get() / 10 * 9) };
    match memory.size >= enough {
        true => CheckOutcome::passed(memory.size.to_string()),
        false => CheckOutcome::found(
            format!("{} of memory, and {} should have {least}", memory.size, node(subject)),
            "Use a machine with more memory.",
        ),
    }
}

pub(super) fn kvm(subject: &CheckSubject<'_>) -> CheckOutcome {
    if *known!(subject.facts.kvm) {
        return CheckOutcome::passed("/dev/kvm exists");
    }
    let next = match &subject.facts.processor {
        Ok(processor) if processor.virtualises => {
            "See the kernel's messages about kvm: the processor supports it."
        }
        Ok(processor) if processor.hypervisor => "Turn on nested virtualisation in the hypervisor below.",
        _ if subject.facts.inventory.architecture == Some(Architecture::Arm64) => {
            "See the kernel's messages about kvm: on Arm the firmware has to start it with the privileges of a hypervisor (EL2)."
        }
        _ => "Turn on VT-x or AMD-V (SVM) in the firmware's setup.",
    };
    CheckOutcome::found("there is no /dev/kvm, so no virtual machine can run", next)
}

pub(super) fn virtualisation(subject: &CheckSubject<'_>) -> CheckOutcome {
    let processor = known!(subject.facts.processor);
    let model = subject.facts.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
    match processor.hypervisor {
        false => CheckOutcome::passed(format!("a real machine{model}")),
        true => CheckOutcome::found(
            format!("this is a virtual machine{model}"),
            "Use a real machine: virtual machines inside virtual machines are slow and not supported in production.",
        ),
    }
}

pub(super) fn firmware(subject: &CheckSubject<'_>) -> CheckOutcome {
    match *known!(subject.facts.uefi) {
        true => CheckOutcome::passed("UEFI"),
        false => CheckOutcome::found(
            "legacy BIOS started this system; the node will start on it, and without Secure Boot",
            "Choose UEFI in the firmware's setup, if it has it.",
        ),
    }
}

pub(super) fn dmi_uuid(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NEXT: &str =
        "Set a UUID of its own with the board maker's tool; nodes of a cluster must not share one.";
    let Some(text) = known!(subject.facts.uuid) else {
        return CheckOutcome::found("the firmware has no product UUID", NEXT);
    };
    let Ok(uuid) = Uuid::parse_str(text) else {
        return CheckOutcome::found(format!("the product UUID {text:?} is not valid"), NEXT);
    };
    match is_shared(uuid) {
        true => CheckOutcome::found(format!("the product UUID {uuid} is shared by many machines"), NEXT),
        false => CheckOutcome::passed(uuid.to_string()),
    }
}

pub(super) fn node(subject: &CheckSubject<'_>) -> String {
    let kind = if subject.node.role == Role::Witness { "witness" } else { "node" };
    match subject.node.profile {
        model::config::Profile::Production => format!("a {kind} in production"),
        model::config::Profile::Trial => format!("a {kind} for a trial"),
    }
}
