//! Settings of the machine under the virtual machines: memory, processors and devices.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::formats::kernel::{self, CrashReservation, PciMatch};
use super::network::Interface;
use super::text::{CpuList, CrashMemory, InterfaceName, MacAddress, PciSelector};
use crate::architecture::Architecture;
use base::size::ByteSize;

/// Settings of the machine under the virtual machines. Nothing is changed unless it is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Memory that is reserved in huge pages, each size once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub huge_pages: Vec<HugePages>,
    /// Whether the kernel uses the IOMMU of the machine, with devices of the host passed through (`iommu=pt`). `passthrough`
    /// does the same.
    pub iommu: bool,
    /// Devices for virtual machines, which `vfio-pci` gets in place of their drivers: `VENDOR:DEVICE` for each device of that
    /// kind, such as `10de:2204`, or the address of one, such as `0000:3b:00.0`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<PciSelector>,
    /// Network cards with virtual functions (SR-IOV).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sriov: Vec<SriovCard>,
    /// The processors.
    pub cpu: CpuSettings,
    /// Whether virtual machines may run virtual machines of their own; the kernel's default unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<bool>,
    /// Whether a second kernel is kept in memory that writes a dump to the persistent partition when the first one crashes: `true`,
    /// or the memory to reserve for it, such as `384M`. With `true` it is 320 MiB, and 512 MiB from 64 GiB of memory on; on Arm
    /// 64 MiB more. A machine with less than 2 GiB gets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_kernel: Option<CrashMemory>,
}

/// The names of all arguments of the kernel that can follow from the settings.
pub const HOST_ARGUMENTS: [&str; 10] = [
    "default_hugepagesz",
    "hugepagesz",
    "hugepages",
    "intel_iommu",
    "iommu",
    "iommu.passthrough",
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "crashkernel",
];

/// Memory in huge pages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HugePages {
    /// Size of a page.
    pub size: HugePageSize,
    /// Number of pages.
    #[schemars(range(min = 1, max = 4194304))]
    pub count: u32,
    /// Whether programs that name no size get this one.
    #[serde(default)]
    pub default: bool,
}

/// Size of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HugePageSize {
    /// 2 MiB.
    #[serde(rename = "2M")]
    Mib2,
    /// 1 GiB.
    #[serde(rename = "1G")]
    Gib1,
}

/// The memory from which on `crash_kernel: true` reserves some: with less, what is left would be too little for a node.
const CRASH_KERNEL_FROM: ByteSize = ByteSize::gib(2);
/// The memory from which on it reserves more: such machines have more devices, and the more of the lists of pages fits into memory, the
/// fewer times makedumpfile goes over the pages (makedumpfile(8), `--cyclic-buffer`).
const LARGE_MEMORY: ByteSize = ByteSize::gib(64);

/// A network card with virtual functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SriovCard {
    /// Kernel name of the card, such as `ens3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<InterfaceName>,
    /// Permanent hardware address of the card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_addr: Option<MacAddress>,
    /// Number of virtual functions.
    #[schemars(range(min = 1, max = 65535))]
    pub functions: u32,
}

/// The processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CpuSettings {
    /// Who decides the clock of the processors (cpufreq governor); the kernel's choice unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<CpuGovernor>,
    /// Processors that the kernel leaves to programs which ask for them, such as `2-7,10`: `isolcpus`, `nohz_full` and
    /// `rcu_nocbs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<CpuList>,
}

/// A governor of cpufreq (the kernel's `Documentation/admin-guide/pm/cpufreq.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuGovernor {
    /// The highest clock.
    Performance,
    /// The lowest clock, or what the processor itself chooses.
    Powersave,
    /// By load, at once.
    Ondemand,
    /// By load, step by step.
    Conservative,
    /// By what the scheduler knows of the load.
    Schedutil,
}

impl CpuGovernor {
    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Powersave => "powersave",
            Self::Ondemand => "ondemand",
            Self::Conservative => "conservative",
            Self::Schedutil => "schedutil",
        }
    }
}

impl HugePageSize {
    #[must_use]
    pub const fn bytes(self) -> ByteSize {
        match self {
            Self::Mib2 => ByteSize::mib(2),
            Self::Gib1 => ByteSize::gib(1),
        }
    }

    /// As the kernel's command line and documents have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mib2 => "2M",
            Self::Gib1 => "1G",
        }
    }
}

impl HugePages {
    /// The memory that they take.
    #[must_use]
    pub fn memory(&self) -> ByteSize {
        ByteSize::bytes(self.size.bytes().get().saturating_mul(u64::from(self.count)))
    }
}

impl PciSelector {
    /// What it selects.
    #[must_use]
    pub fn parsed(&self) -> PciMatch {
        // The text has passed the check of its type, which is made of the same function; where there is no device, the bus
        // answers with these numbers.
        kernel::pci_match(self).unwrap_or(PciMatch::Kind { vendor: 0xffff, device: 0xffff })
    }
}

impl CpuList {
    /// The numbers of the processors.
    #[must_use]
    pub fn numbers(&self) -> BTreeSet<u32> {
        kernel::cpu_numbers(self).unwrap_or_default()
    }
}

impl CrashMemory {
    #[must_use]
    pub fn parsed(&self) -> CrashReservation {
        // The text has passed the check of its type, which is made of the same function.
        kernel::crash_reservation(self).unwrap_or(CrashReservation::Never)
    }

    /// The memory that it takes from a machine with this much; none if nothing is reserved.
    #[must_use]
    pub fn of(&self, memory: ByteSize, architecture: Architecture) -> Option<ByteSize> {
        let (usual, large) = usual_reservations(architecture);
        match self.parsed() {
            CrashReservation::Never => None,
            CrashReservation::Fixed(size) => Some(size),
            CrashReservation::ByMemory if memory < CRASH_KERNEL_FROM => None,
            CrashReservation::ByMemory => Some(if memory < LARGE_MEMORY { usual } else { large }),
        }
    }

    /// The kernel's argument (`Documentation/admin-guide/kdump/kdump.rst`).
    fn word(&self, architecture: Architecture) -> Option<String> {
        let megabytes = |size: ByteSize| format!("{}M", size.get() >> 20);
        let (usual, large) = usual_reservations(architecture);
        let [from, limit] = [CRASH_KERNEL_FROM, LARGE_MEMORY].map(|size| format!("{}G", size.get() >> 30));
        match self.parsed() {
            CrashReservation::Never => None,
            CrashReservation::Fixed(size) => Some(format!("crashkernel={}", megabytes(size))),
            CrashReservation::ByMemory => {
                let (usual, large) = (megabytes(usual), megabytes(large));
                Some(format!("crashkernel={from}-{limit}:{usual},{limit}-:{large}"))
            }
        }
    }
}

/// What is reserved below and from [`LARGE_MEMORY`] on. Debian's kernel takes 60 MiB for itself, the initrd with the modules of a small
/// machine 110 MiB, drivers and programs 72 MiB, which is counted anew at each start (`node::crash::load`); the rest is for the drivers of
/// servers. The kernel of Arm needs more of it for itself.
const fn usual_reservations(architecture: Architecture) -> (ByteSize, ByteSize) {
    match architecture {
        Architecture::Amd64 => (ByteSize::mib(320), ByteSize::mib(512)),
        Architecture::Arm64 => (ByteSize::mib(384), ByteSize::mib(576)),
    }
}

impl SriovCard {
    /// The card, as networks name theirs.
    #[must_use]
    pub fn card(&self) -> Interface {
        Interface { name: self.name.clone(), hw_addr: self.hw_addr.clone() }
    }
}

impl HostSettings {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the kernel is told to use the IOMMU.
    #[must_use]
    pub fn uses_iommu(&self) -> bool {
        self.iommu || !self.passthrough.is_empty()
    }

    /// Whether the node keeps a kernel for the case that its own crashes.
    #[must_use]
    pub fn has_crash_kernel(&self) -> bool {
        self.crash_kernel.as_ref().is_some_and(|memory| memory.parsed() != CrashReservation::Never)
    }

    /// The memory that all huge pages take.
    #[must_use]
    pub fn reserved_memory(&self) -> ByteSize {
        let each = self.huge_pages.iter().map(|pages| pages.memory().get());
        ByteSize::bytes(each.fold(0, u64::saturating_add))
    }

    /// The arguments of the kernel that follow from the settings
    /// (`Documentation/admin-guide/kernel-parameters.txt`). They need no quotes.
    #[must_use]
    pub fn kernel_words(&self, architecture: Architecture) -> Vec<String> {
        let mut words = Vec::new();
        let default = self.huge_pages.iter().find(|pages| pages.default);
        words.extend(default.map(|pages| format!("default_hugepagesz={}", pages.size.word())));
        // A count belongs to the size before it.
        for pages in &self.huge_pages {
            words.push(format!("hugepagesz={}", pages.size.word()));
            words.push(format!("hugepages={}", pages.count));
        }
        if self.uses_iommu() {
            // The IOMMU of AMD needs no word: its driver is on wherever the firmware has it.
            let of_machine: &[&str] = match architecture {
                Architecture::Amd64 => &["intel_iommu=on", "iommu=pt"],
                Architecture::Arm64 => &["iommu.passthrough=1"],
            };
            words.extend(of_machine.iter().map(|word| (*word).to_owned()));
        }
        if let Some(isolated) = &self.cpu.isolated {
            let each = ["isolcpus", "nohz_full", "rcu_nocbs"].map(|name| format!("{name}={isolated}"));
            words.extend(each);
        }
        words.extend(self.crash_kernel.as_ref().and_then(|memory| memory.word(architecture)));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn host(text: &str) -> HostSettings {
        parse(&format!("os: {{host: {text}}}"), "node.yaml").unwrap().os.host
    }

    #[test]
    fn nothing_set_changes_nothing() {
        let none = HostSettings::default();
        assert!(none.is_empty() && none.kernel_words(Architecture::Amd64).is_empty());
        assert_eq!(host("{}"), none);
    }

    #[test]
    fn the_kernel_gets_a_count_after_its_size_and_one_list_of_processors() {
        let all = host(
            "{huge_pages: [{size: 2M, count: 512}, {size: 1G, count: 16, default: true}], passthrough: [10de:2204], \
             cpu: {isolated: '2-7,10'}}",
        );
        assert_eq!(
            all.kernel_words(Architecture::Amd64).join(" "),
            "default_hugepagesz=1G hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=16 intel_iommu=on iommu=pt \
             isolcpus=2-7,10 nohz_full=2-7,10 rcu_nocbs=2-7,10"
        );
        assert_eq!(host("{iommu: true}").kernel_words(Architecture::Arm64), ["iommu.passthrough=1"]);
        assert_eq!(all.reserved_memory(), ByteSize::gib(17));
    }

    #[test]
    fn a_crash_kernel_gets_memory_as_the_machine_has_it_or_as_it_is_said() {
        let memory = |text: &str| host(&format!("{{crash_kernel: {text}}}"));
        let word = |text: &str, of| memory(text).kernel_words(of).join(" ");
        assert_eq!(word("true", Architecture::Amd64), "crashkernel=2G-64G:320M,64G-:512M");
        assert_eq!(word("true", Architecture::Arm64), "crashkernel=2G-64G:384M,64G-:576M");
        assert_eq!(word("384M", Architecture::Arm64), "crashkernel=384M");
        assert_eq!(word("1G", Architecture::Amd64), "crashkernel=1024M");
        assert_eq!(word("false", Architecture::Amd64), "");
        assert!(memory("true").has_crash_kernel() && !memory("false").has_crash_kernel());
        let of = |text: &str, gib| {
            memory(text)
                .crash_kernel
                .unwrap()
                .of(ByteSize::gib(gib), Architecture::Amd64)
                .map(|size| size.get() >> 20)
        };
        assert_eq!(
            [of("true", 1), of("true", 2), of("true", 63), of("true", 64)],
            [None, Some(320), Some(320), Some(512)]
        );
        assert_eq!([of("384M", 1), of("false", 64)], [Some(384), None]);
    }

    #[test]
    fn devices_are_selected_by_kind_or_by_address() {
        let parsed = |text: &str| text.parse::<PciSelector>().unwrap().parsed();
        assert_eq!(parsed("10DE:2204"), PciMatch::Kind { vendor: 0x10de, device: 0x2204 });
        for text in ["3b:00.0", "0000:3B:00.0"] {
            assert_eq!(parsed(text), PciMatch::Address("0000:3b:00.0".to_owned()));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_word_needs_quotes(count in 1u32..4_194_304, first in 0u32..500, more in 0u32..500) {
            let isolated = format!("{first}-{}", first + more);
            let host = host(&format!("{{huge_pages: [{{size: 2M, count: {count}}}], iommu: true, crash_kernel: true, cpu: {{isolated: '{isolated}'}}}}"));
            for word in [Architecture::Amd64, Architecture::Arm64].iter().flat_map(|of| host.kernel_words(*of)) {
                let name = word.split('=').next().unwrap_or_default();
                proptest::prop_assert!(HOST_ARGUMENTS.contains(&name), "{}", word);
                proptest::prop_assert_eq!(crate::boot::grub::quote(&word), word);
            }
        }
    }
}
