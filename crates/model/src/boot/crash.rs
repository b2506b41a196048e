//! The command line of a kernel that is started where another one crashes: it finds the persistent partition, writes the dump there, and
//! restarts the machine. It opens no OS image and no slot, so the boot loader's record stays as the crashed start left it.

use anyhow::Result;

use super::{BootParameters, BootVolume, parameter, value};
use crate::architecture::Architecture;
use crate::kernel_line::split;

/// The longest command line that the kernels of both architectures take, with the zero at its end (`COMMAND_LINE_SIZE`).
pub const COMMAND_LINE_BYTES: usize = 2048;

/// Arguments of the crashed kernel that would name its root file system, take memory that the new one does not have, or belong to its
/// start. One that ends with `.` stands for all of that beginning.
const DROPPED: [&str; 23] = [
    "BOOT_IMAGE",
    "root",
    "rootfstype",
    "ro",
    "nqrust.",
    "crashkernel",
    "panic",
    "oops",
    "systemd.crash_reboot",
    "rd.md.uuid",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "mem",
    "nr_cpus",
    "maxcpus",
    "hugetlb_cma",
    "cma",
    "kvm_cma_resv_ratio",
    "movablecore",
];

/// What such a kernel needs (`Documentation/admin-guide/kdump/kdump.rst`): one processor, devices in whatever state, little memory. Its
/// initrd is unpacked into all of that, and not into half of it as a tmpfs would be
/// (`Documentation/filesystems/ramfs-rootfs-initramfs.rst`).
const ADDED: [&str; 9] = [
    "rootfstype=ramfs",
    "nr_cpus=1",
    "reset_devices",
    "cgroup_disable=memory",
    "transparent_hugepage=never",
    "udev.children_max=2",
    "novmcoredd",
    "panic=10",
    "systemd.crash_reboot=1",
];
/// The same on processors of Intel and AMD, whose interrupt controllers may still be set up for other processors.
const ADDED_AMD64: [&str; 3] = ["irqpoll", "numa=off", "acpi_no_memhotplug"];

/// The command line for a node that was started with `line`; `None` if that is no line of an installed node.
///
/// # Errors
/// [`base::failure::Class::Invalid`] if a parameter of ours cannot be read.
pub fn command_line(line: &str, architecture: Architecture) -> Result<Option<String>> {
    let Some(installed) = BootParameters::parse(line)? else { return Ok(None) };
    let mut words: Vec<String> = split(line).filter(|word| !is_dropped(word)).map(str::to_owned).collect();
    // Of arrays only the one that is written to is started.
    words.push(match installed.persistent {
        BootVolume::Array(array) => format!("rd.md.uuid={}", super::array_id(array)),
        BootVolume::Partition(_) => "rd.md=0".to_owned(),
    });
    if !installed.multipath.is_empty() {
        let maps: Vec<_> = installed.multipath.iter().map(ToString::to_string).collect();
        words.push(format!("{}={}", parameter::MULTIPATH, maps.join(",")));
    }
    words.extend(ADDED.map(str::to_owned));
    if architecture == Architecture::Amd64 {
        words.extend(ADDED_AMD64.map(str::to_owned));
    }
    words.push(format!("{}={}", parameter::CRASH, installed.persistent));
    Ok(Some(words.join(" ")))
}

/// Where the dump goes; `None` on the command line of any other start.
///
/// # Errors
/// [`base::failure::Class::Invalid`] if the parameter names no file system.
pub fn volume(line: &str) -> Result<Option<BootVolume>> {
    value(line, parameter::CRASH).map(|value| BootVolume::parse(parameter::CRASH, value)).transpose()
}

fn is_dropped(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    DROPPED.iter().any(|dropped| match dropped.ends_with('.') {
        true => name.starts_with(dropped),
        false => name == *dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0a0b0c0d-0000-4000-8000-00000000000a";
    const NODE: &str = "BOOT_IMAGE=(bt)/vmlinuz root=PARTUUID=x rootfstype=squashfs ro systemd.gpt_auto=0";

    fn node(further: &str) -> String {
        format!(
            "{NODE} nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={A} rd.shell=0 rd.emergency=reboot console=tty0 \
             console=ttyS0,115200 nqrust.slot=a nqrust.gen=4 nqrust.esp={A} {further}\n"
        )
    }

    #[test]
    fn a_crash_kernel_finds_the_persistent_partition_and_nothing_else_of_the_node() {
        let line = node(
            "crashkernel=256M hugepages=9 multipath=off panic=10 nqrust.trial=4 \"dyndbg=file a.c +p\" pci=nomsi",
        );
        let amd64 = command_line(&line, Architecture::Amd64).unwrap().unwrap();
        assert_eq!(
            amd64,
            format!(
                "systemd.gpt_auto=0 rd.shell=0 rd.emergency=reboot console=tty0 console=ttyS0,115200 multipath=off \
                 \"dyndbg=file a.c +p\" pci=nomsi rd.md=0 rootfstype=ramfs nr_cpus=1 reset_devices cgroup_disable=memory \
                 transparent_hugepage=never udev.children_max=2 novmcoredd panic=10 systemd.crash_reboot=1 irqpoll numa=off \
                 acpi_no_memhotplug nqrust.crash=PARTUUID={A}"
            )
        );
        let arm64 = command_line(&line, Architecture::Arm64).unwrap().unwrap();
        assert!(!arm64.contains("irqpoll") && arm64.contains("nr_cpus=1"), "{arm64}");
        // It is neither a start of the node for the units of the initrd, nor one that is counted.
        assert_eq!(BootParameters::parse(&amd64).unwrap(), None);
        for name in parameter::ALL.iter().filter(|name| **name != parameter::CRASH) {
            assert!(!amd64.contains(&format!("{name}=")), "{name}");
        }
        assert_eq!(volume(&amd64).unwrap(), Some(BootVolume::Partition(A.parse().unwrap())));
        assert_eq!(volume(&line).unwrap(), None);
    }

    #[test]
    fn of_several_arrays_the_one_that_is_written_to_is_started_and_maps_keep_their_names() {
        let line = format!(
            "{NODE} nqrust.slot=b nqrust.config=PARTUUID={A} \
             nqrust.persistent=/dev/disk/by-id/md-uuid-0a0b0c0d:00004000:80000000:0000000a rd.md.uuid=1:2:3:4 \
             rd.md.uuid=0a0b0c0d:00004000:80000000:0000000a rd.retry=60 nqrust.multipath=3600c0ff0,3600c0ff1"
        );
        let line = command_line(&line, Architecture::Arm64).unwrap().unwrap();
        assert_eq!(line.matches("rd.md").count(), 1, "{line}");
        for word in [
            "rd.md.uuid=0a0b0c0d:00004000:80000000:0000000a",
            "rd.retry=60",
            "nqrust.multipath=3600c0ff0,3600c0ff1",
        ] {
            assert!(line.split(' ').any(|found| found == word), "{word}: {line}");
        }
        assert!(matches!(volume(&line).unwrap(), Some(BootVolume::Array(_))));
    }

    #[test]
    fn other_systems_have_no_crash_kernel() {
        assert_eq!(command_line("root=live:CDLABEL=x crashkernel=256M", Architecture::Amd64).unwrap(), None);
        assert!(command_line("nqrust.config=x", Architecture::Amd64).is_err());
        assert!(volume("nqrust.crash=/dev/sda1").is_err());
    }
}
