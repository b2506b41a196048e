//! An NVMe subsystem that is reached over TCP: the kernel of another machine offers a disk. A host's own kernel may lack the modules, so
//! the storage system is an installed node that nothing else is asked of.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use crate::artifacts::Artifacts;
use crate::disk::Disk;
use crate::identity::Identity;
use crate::node::MAC;
use crate::qemu::{Firmware, Machine, Vm};
use crate::ssh::Ssh;
use crate::steps;
use crate::wire::Wire;

/// The subsystem, the only machine that may have its disk, and where it is.
pub const SUBSYSTEM: &str = "nqn.2026-01.com.example:e2e";
pub const HOST: &str = "nqn.2026-01.com.example:node-v";
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 5, 2);
pub const PORT: u16 = 4420;
/// All machines on the wire.
const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 0, 5, 255);

/// The hardware address of its card on the wire.
const STORAGE_MAC: &str = "52:54:00:6e:71:52";
/// What the disk is known by. The kernel makes another one for each start unless it is given.
const DISK_UUID: &str = "6e717273-0000-4000-8000-0000000000d1";

/// A storage system that runs.
#[derive(Debug)]
pub struct Storage {
    vm: Vm,
    _ssh: Ssh,
}

impl Storage {
    /// Starts the machine with the system of `system`, and offers `disk` on the wire.
    pub fn start(
        system: &Disk,
        disk: &Disk,
        wire: &Wire,
        identity: &Identity,
        artifacts: &Artifacts,
    ) -> Result<Self> {
        let machine = Machine::new("storage", Firmware::Bios).network(MAC).wire(STORAGE_MAC, wire)?;
        let machine = machine.disk(system).disk(disk);
        let (vm, ssh) = steps::boot(&machine, identity, artifacts).context("starting the storage system")?;
        ssh.run(&format!("sudo -n sh -euc '{}'", setup())).context("offering a disk over NVMe")?;
        Ok(Self { vm, _ssh: ssh })
    }

    /// Connects or disconnects its cable on the wire.
    pub fn set_link(&mut self, up: bool) -> Result<()> {
        self.vm.qmp.set_link("nic1", up)
    }

    /// Ends it like a power cut.
    pub fn cut(self) -> Result<()> {
        self.vm.kill()
    }
}

/// The commands that offer the second disk (the kernel's `drivers/nvme/target/configfs.c`). The port comes last: from then on it answers.
fn setup() -> String {
    let nvmet = "/sys/kernel/config/nvmet";
    let subsystem = format!("{nvmet}/subsystems/{SUBSYSTEM}");
    let (namespace, port) = (format!("{subsystem}/namespaces/1"), format!("{nvmet}/ports/1"));
    let mut commands = vec![
        format!("card=$(basename $(dirname $(grep -l {STORAGE_MAC} /sys/class/net/*/address)))"),
        "ip link set $card up".to_owned(),
        format!("ip address add {ADDRESS}/24 dev $card"),
        // The wire knows an end from its first frame, and a storage system that nobody asks sends none.
        format!("ping -c 1 -W 1 -b {BROADCAST} >/dev/null 2>&1 || true"),
        "modprobe nvmet-tcp".to_owned(),
        "mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config".to_owned(),
        format!("mkdir {nvmet}/hosts/{HOST} {subsystem} {namespace} {port}"),
    ];
    for (file, text) in [
        (format!("{subsystem}/attr_serial"), "e2e-far-disk"),
        (format!("{namespace}/device_uuid"), DISK_UUID),
        (format!("{namespace}/device_path"), "/dev/vdb"),
        (format!("{namespace}/enable"), "1"),
        (format!("{port}/addr_trtype"), "tcp"),
        (format!("{port}/addr_adrfam"), "ipv4"),
        (format!("{port}/addr_traddr"), &ADDRESS.to_string()),
        (format!("{port}/addr_trsvcid"), &PORT.to_string()),
    ] {
        commands.push(format!("echo {text} >{file}"));
    }
    commands.push(format!("ln -s {nvmet}/hosts/{HOST} {subsystem}/allowed_hosts/"));
    commands.push(format!("ln -s {subsystem} {port}/subsystems/"));
    commands.join("; ")
}
