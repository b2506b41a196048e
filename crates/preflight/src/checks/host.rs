//! Whether the machine can do what `os.host` asks for, and whether the node can do without the devices that virtual machines get.

use super::devices::{all_disks, card_text, target};
use crate::check::{CheckOutcome, CheckSubject};
use base::size::ByteSize;
use machine::host::{HostFacts, IommuState, NeededDevices};
use model::architecture::Architecture;
use model::hardware::CrashDumpSupport;

/// What a node needs beside huge pages, which only programs that ask for them get: as much as kubeadm asks for
/// (<https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/>).
const NODE_MEMORY: ByteSize = ByteSize::gib(2);

/// With less beside the memory of a crash kernel, no node of any kind starts.
const CRASHING_NODE_MEMORY: ByteSize = ByteSize::gib(1);

/// The facts, or the outcome of a check without them.
macro_rules! host_facts {
    ($subject:expr) => {
        match &$subject.facts.host {
            Ok(facts) => facts,
            Err(why) => return CheckOutcome::could_not_run(why),
        }
    };
}

pub(super) fn settings(subject: &CheckSubject<'_>) -> CheckOutcome {
    if subject.node.host.is_empty() {
        return CheckOutcome::skipped("os.host is empty");
    }
    let facts = host_facts!(subject);
    let parts = [huge_pages, iommu, virtual_functions, processors, nested, crash_kernel];
    let findings: Vec<_> = parts.iter().flat_map(|part| part(subject, facts)).collect();
    match findings.is_empty() {
        true => CheckOutcome::passed("the machine can do what os.host asks for"),
        false => CheckOutcome::found(
            findings.join("; "),
            "Correct os.host, or take a machine that can do it; VT-d, AMD-Vi and SR-IOV may be off in the firmware's setup.",
        ),
    }
}

fn huge_pages(subject: &CheckSubject<'_>, facts: &HostFacts) -> Vec<String> {
    let host = &subject.node.host;
    let lacking = host.huge_pages.iter().filter(|pages| !facts.page_sizes.contains(&pages.size));
    let mut findings: Vec<_> =
        lacking.map(|pages| format!("the processor has no huge pages of {}", pages.size.word())).collect();
    let reserved = host.reserved_memory();
    if let Ok(memory) = &subject.facts.memory
        && reserved.get() > 0
        && reserved.get().saturating_add(NODE_MEMORY.get()) > memory.size.get()
    {
        findings.push(format!(
            "huge pages take {reserved} of {} of memory, and the node needs {NODE_MEMORY} beside them",
            memory.size
        ));
    }
    findings
}

fn crash_kernel(subject: &CheckSubject<'_>, _: &HostFacts) -> Vec<String> {
    let host = &subject.node.host;
    let Some(crash_kernel) = host.crash_kernel.as_ref().filter(|_| host.has_crash_kernel()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    findings.extend(subject.node.crash_dumps.and_then(|support| match support {
        CrashDumpSupport::Supported => None,
        CrashDumpSupport::NoMakedumpfile => Some(
            "the initrd of the release has no makedumpfile to write crash dumps with: build it with the package makedumpfile in \
             base.debian.include"
                .to_owned(),
        ),
        CrashDumpSupport::NoKexecFile => Some(
            "the kernel of the release cannot load another one for crashes (CONFIG_KEXEC_FILE): remove os.host.crash_kernel"
                .to_owned(),
        ),
    }));
    if let Some(remote) = target(subject).ok().and_then(|disk| disk.remote.as_ref()) {
        findings.push(format!(
            "crash dumps cannot be written over the network, and the disk of the system is {remote}: remove os.host.crash_kernel"
        ));
    }
    let Ok(memory) = &subject.facts.memory else { return findings };
    match crash_kernel.of(memory.size, Architecture::of_this_program()) {
        None => findings.push(format!(
            "of {} of memory none is reserved for a crash kernel: give os.host.crash_kernel a size such as 256M",
            memory.size
        )),
        Some(reserved) => {
            let left = memory.size.saturating_sub(reserved).saturating_sub(host.reserved_memory());
            // With huge pages that alone are too many, nothing more is to be said.
            if left < CRASHING_NODE_MEMORY && left.get() > 0 {
                findings.push(format!("the crash kernel takes {reserved} of {} of memory, and leaves {left}", memory.size));
            }
        }
    }
    findings
}

fn iommu(subject: &CheckSubject<'_>, facts: &HostFacts) -> Vec<String> {
    let absent = subject.node.host.uses_iommu() && facts.iommu == IommuState::Absent;
    absent.then(|| "the firmware describes no IOMMU".to_owned()).into_iter().collect()
}

fn virtual_functions(subject: &CheckSubject<'_>, facts: &HostFacts) -> Vec<String> {
    let fault = |card: &model::config::SriovCard| {
        let wanted = card.card();
        let Some(nic) = super::devices::card(&subject.facts.inventory, &wanted) else {
            return Some(format!("there is no network card {}", card_text(&wanted)));
        };
        match facts.virtual_functions.get(&nic.name) {
            None => Some(format!("{} has no virtual functions", nic.name)),
            Some(most) if *most < u64::from(card.functions) => {
                Some(format!("{} can have {most} virtual functions, not {}", nic.name, card.functions))
            }
            Some(_) => None,
        }
    };
    subject.node.host.sriov.iter().filter_map(fault).collect()
}

fn processors(subject: &CheckSubject<'_>, facts: &HostFacts) -> Vec<String> {
    let cpu = &subject.node.host.cpu;
    let mut findings = Vec::new();
    if let Some(governor) = cpu.governor {
        match &facts.governors {
            None => findings.push("the kernel does not set the clock of these processors".to_owned()),
            Some(known) if !known.contains(governor.name()) => {
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                findings.push(format!(
                    "the processors have the governors {}, not {}",
                    known.join(", "),
                    governor.name()
                ));
            }
            Some(_) => {}
        }
    }
    if let (Some(isolated), Some(present)) = (&cpu.isolated, &facts.cpus) {
        let numbers = isolated.numbers();
        if let Some(absent) = numbers.difference(present).next() {
            findings.push(format!("there is no processor {absent}, which os.host.cpu.isolated names"));
        } else if numbers.is_superset(present) {
            findings.push("os.host.cpu.isolated names every processor, and leaves the node none".to_owned());
        }
    }
    findings
}

fn nested(subject: &CheckSubject<'_>, _: &HostFacts) -> Vec<String> {
    let wanted = subject.node.host.nested_virtualization == Some(true);
    let able = subject.facts.processor.as_ref().map_or(true, |processor| processor.virtualises);
    (wanted && !able).then(|| "the processor runs no virtual machines".to_owned()).into_iter().collect()
}

pub(super) fn passthrough(subject: &CheckSubject<'_>) -> CheckOutcome {
    let node = subject.node;
    if node.host.passthrough.is_empty() {
        return CheckOutcome::skipped("os.host.passthrough is empty");
    }
    let facts = host_facts!(subject);
    let disks = all_disks(subject);
    let cards =
        node.all_cards.iter().filter_map(|wanted| super::devices::card(&subject.facts.inventory, wanted));
    let needed = NeededDevices::of(
        facts,
        disks.iter().map(|disk| disk.name.as_str()),
        cards.map(|nic| nic.name.as_str()),
    );
    let mut findings = needed.taken_by(&node.host, facts);
    let absent = node.host.passthrough.iter().filter(|selector| facts.selected(selector).next().is_none());
    findings.extend(absent.map(|selector| format!("there is no device {selector} on the PCI bus")));
    findings.extend(facts.divided_groups(&node.host));
    match findings.is_empty() {
        true => CheckOutcome::passed("the node needs none of the devices"),
        false => CheckOutcome::found(
            findings.join("; "),
            "Correct os.host.passthrough: name a device by its address where several are of one kind, and all devices of an \
             IOMMU group.",
        ),
    }
}
