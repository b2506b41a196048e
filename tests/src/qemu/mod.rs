//! Virtual machines: a description ([`Machine`]) and a running one ([`Vm`]).
//!
//! Always software emulation (TCG), so that a run is the same on every host. QEMU connects to sockets that the harness
//! listens on, so no byte of the console is lost and there is no race.

mod arguments;

use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
pub use arguments::PATHS_WWN;
use arguments::{disk_arguments, escaped, further_path, nic_arguments, words};
use base::size::ByteSize;
use model::architecture::Architecture;
use serde_json::json;

use crate::artifacts::Artifacts;
use crate::deadline::Deadline;
use crate::disk::Disk;
use crate::qmp::Qmp;
use crate::segment::Segment;
use crate::serial::Serial;
use crate::wire::Wire;

/// Software emulation.
const ACCELERATOR: &str = "tcg";
/// All that QEMU can emulate but the processor's own word for quick byte-wise `rep movs` and `rep stos` (ERMS, FSRM): the kernel and the
/// C library then copy and clear a byte at a time, which QEMU does as written. An install takes a sixth more of the processor with them.
const PROCESSOR: &str = "max,-erms,-fsrm";
/// MiB for translated code on BIOS. GRUB changes its own code there all the time, and QEMU keeps each translation with the pages that
/// it came from until the space is used up. With its default of 1 GiB, the kernel later clears such a page a byte at a time while QEMU
/// walks through more than a hundred thousand translations: a processor stands still for a minute, and programs that wait for it time
/// out.
const BIOS_TRANSLATIONS: u32 = 128;
/// MiB for translated code on UEFI, where GRUB leaves its code as it is. With less, the programs of a control plane push each other's
/// translations out all the time.
const UEFI_TRANSLATIONS: u32 = 512;

/// The memory of a machine with a control plane.
const CONTROL_PLANE: ByteSize = ByteSize::gib(4);

/// The path of the memory balloon in QEMU's object tree.
const BALLOON: &str = "/machine/peripheral/balloon";

/// The processor of 64-bit Arm. Pointers are authenticated by an algorithm of QEMU's own: that of the architecture is
/// slow to emulate (QEMU's documentation, "Arm CPU Features").
const ARM64_PROCESSOR: &str = "max,pauth-impdef=on";

/// The directory of Debian's package `ovmf`.
const OVMF: &str = "/usr/share/OVMF";
/// The directory of Debian's package `qemu-efi-aarch64`.
const AAVMF: &str = "/usr/share/AAVMF";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// Legacy BIOS (SeaBIOS).
    Bios,
    /// UEFI without Secure Boot.
    Uefi,
    /// UEFI with Secure Boot enforced and the usual vendor keys enrolled.
    SecureBoot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attachment {
    CdRom,
    Usb,
    Virtio,
    Sata,
    Scsi,
    /// On a controller of this model of QEMU's.
    Controller(&'static str),
    /// A path to the SCSI disk of several paths.
    ScsiPath,
    /// With sectors of so many bytes.
    Nvme(u32),
    /// The namespace with this number of the one NVMe controller that has several.
    Namespace(u32),
    /// By USB, as a disk that is not removable.
    UsbDisk,
}

#[derive(Clone, Debug)]
struct Nic {
    mac: String,
    network: Network,
}

#[derive(Clone, Debug)]
enum Network {
    /// QEMU's user network: 10.0.2.0/24, gateway 10.0.2.2, name server 10.0.2.3.
    User {
        restricted: bool,
        /// The guest's address to which a port of this host is forwarded; empty for the address from DHCP.
        ssh_to: String,
        /// The boot file that DHCP names; the card then comes before all disks.
        boot: Option<String>,
    },
    /// A user network of its own for disks: 10.0.4.0/24, with this host at 10.0.4.2. With a boot file the card comes before all disks.
    Storage { boot: Option<String> },
    /// One end of a wire: its own UDP port, and the port of the wire.
    Wire { end: u16, wire: u16 },
    /// The tap device of a segment; the card comes before all disks.
    Segment,
}

#[derive(Clone, Debug)]
pub struct Machine {
    purpose: String,
    architecture: Architecture,
    firmware: Firmware,
    memory: ByteSize,
    cpus: u32,
    disks: Vec<(Attachment, Disk)>,
    nics: Vec<Nic>,
    kernel: Option<(PathBuf, PathBuf, String)>,
    reboots: bool,
    /// The command to put before a program so that it runs on the machine's segment.
    enter: Vec<String>,
    http_boot: bool,
    balloon: bool,
    watchdog: bool,
    /// The model of the network cards, one of QEMU's.
    card: &'static str,
    /// The board of 1996, with PCI and IDE, in place of that with PCI Express and SATA.
    old_board: bool,
    /// Further arguments of QEMU, behind those of the parts that the machine has.
    further: Vec<String>,
    /// A thread of the host for each processor. With that, two of some twenty-five machines panicked at a breakpoint that was not in
    /// their kernel's code any more. Linux changes its own code while it runs, by way of breakpoints (`text_poke_bp_batch` in
    /// arch/x86/kernel/alternative.c), and QEMU 7.2 seems to translate a page while another processor changes it. In one thread
    /// that cannot be.
    parallel: bool,
}

impl Machine {
    /// A machine with 2 GiB of memory, two processors, no disk and no network. `purpose` names its logs.
    #[must_use]
    pub fn new(purpose: &str, firmware: Firmware) -> Self {
        Self {
            purpose: purpose.to_owned(),
            architecture: Architecture::Amd64,
            firmware,
            memory: ByteSize::gib(2),
            cpus: 2,
            disks: Vec::new(),
            nics: Vec::new(),
            kernel: None,
            reboots: false,
            enter: Vec::new(),
            http_boot: false,
            balloon: false,
            watchdog: false,
            card: "virtio-net-pci",
            old_board: false,
            further: Vec::new(),
            parallel: false,
        }
    }

    /// Makes it a machine with a processor of 64-bit Arm, which has no BIOS.
    #[must_use]
    pub fn arm64(mut self) -> Self {
        self.architecture = Architecture::Arm64;
        self
    }

    #[must_use]
    pub fn memory(mut self, size: ByteSize) -> Self {
        self.memory = size;
        self
    }

    /// Memory for a control plane, and a thread of the host for each processor: in one thread its programs wait for each other until
    /// they give up. Its kernel may panic in QEMU 7.2 by no fault of its own.
    #[must_use]
    pub fn control_plane(self) -> Self {
        Self { parallel: true, ..self.memory(CONTROL_PLANE) }
    }

    /// A CD-ROM with `iso`; the boot order is the order of attachment.
    #[must_use]
    pub fn cdrom(self, iso: &Path) -> Self {
        self.attach(Attachment::CdRom, Disk::raw(iso.to_owned()))
    }

    #[must_use]
    pub fn usb(self, disk: &Disk) -> Self {
        self.attach(Attachment::Usb, disk.clone())
    }

    #[must_use]
    pub fn disk(self, disk: &Disk) -> Self {
        self.attach(Attachment::Virtio, disk.clone())
    }

    #[must_use]
    pub fn sata(self, disk: &Disk) -> Self {
        self.attach(Attachment::Sata, disk.clone())
    }

    /// A SCSI disk on a controller of its own.
    #[must_use]
    pub fn scsi(self, disk: &Disk) -> Self {
        self.attach(Attachment::Scsi, disk.clone())
    }

    /// A disk on a controller of its own, of a model of QEMU's such as `megasas`, which is `scsiN` for the Nth disk.
    #[must_use]
    pub fn controller(self, model: &'static str, disk: &Disk) -> Self {
        self.attach(Attachment::Controller(model), disk.clone())
    }

    /// The namespace `number` of an NVMe controller that has several. The first has to come before the others.
    #[must_use]
    pub fn nvme_namespace(self, disk: &Disk, number: u32) -> Self {
        self.attach(Attachment::Namespace(number), disk.clone())
    }

    /// A disk by USB that is not removable.
    #[must_use]
    pub fn usb_disk(self, disk: &Disk) -> Self {
        self.attach(Attachment::UsbDisk, disk.clone())
    }

    /// A path to a SCSI disk that has several, on a controller of its own, which is `scsiN` for the Nth disk. A machine has one such disk,
    /// a raw image.
    #[must_use]
    pub fn scsi_path(self, disk: &Disk) -> Self {
        self.attach(Attachment::ScsiPath, disk.clone())
    }

    /// An NVMe disk with sectors of so many bytes.
    #[must_use]
    pub fn nvme(self, disk: &Disk, sector: u32) -> Self {
        self.attach(Attachment::Nvme(sector), disk.clone())
    }

    /// A network card with access to this host and the networks behind it.
    #[must_use]
    pub fn network(self, mac: &str) -> Self {
        self.nic(mac, false, "")
    }

    /// A network card that the machine boots from before its disks: its iPXE loads the script at `url`.
    #[must_use]
    pub fn network_boot(mut self, mac: &str, url: &str) -> Self {
        let network = Network::User { restricted: false, ssh_to: String::new(), boot: Some(url.to_owned()) };
        self.nics.push(Nic { mac: mac.to_owned(), network });
        self
    }

    /// A network card for disks that are on this host; with `url` the machine boots from it before its disks: its iPXE loads the script
    /// there.
    #[must_use]
    pub fn storage_network(mut self, mac: &str, url: Option<&str>) -> Self {
        let network = Network::Storage { boot: url.map(str::to_owned) };
        self.nics.push(Nic { mac: mac.to_owned(), network });
        self
    }

    /// A network card that the machine boots from before its disks, as the segment's DHCP server says.
    #[must_use]
    pub fn segment(mut self, mac: &str, segment: &Segment) -> Self {
        self.nics.push(Nic { mac: mac.to_owned(), network: Network::Segment });
        self.enter = segment.enter();
        self
    }

    /// Makes UEFI boot from the network by HTTP and not by TFTP.
    #[must_use]
    pub fn http_boot(mut self) -> Self {
        self.http_boot = true;
        self
    }

    /// A network card on an isolated network: DHCP answers, and a port of this host is forwarded to SSH on the guest,
    /// nothing else. `address` is the guest's, empty for the one from DHCP.
    #[must_use]
    pub fn isolated_network(self, mac: &str, address: &str) -> Self {
        self.nic(mac, true, address)
    }

    /// A network card at an end of `wire`, together with the machines at its other ends.
    pub fn wire(mut self, mac: &str, wire: &Wire) -> Result<Self> {
        let network = Network::Wire { end: Wire::end()?, wire: wire.port() };
        self.nics.push(Nic { mac: mac.to_owned(), network });
        Ok(self)
    }

    /// Boots this kernel and initrd without a boot loader.
    #[must_use]
    pub fn kernel(mut self, kernel: &Path, initrd: &Path, arguments: &str) -> Self {
        self.kernel = Some((kernel.to_owned(), initrd.to_owned(), arguments.to_owned()));
        self
    }

    /// Lets the guest reboot; without this QEMU ends when the guest reboots.
    #[must_use]
    pub fn reboots(mut self) -> Self {
        self.reboots = true;
        self
    }

    /// Adds a memory balloon, which [`Vm::memory_in_use`] needs.
    #[must_use]
    pub fn balloon(mut self) -> Self {
        self.balloon = true;
        self
    }

    /// Makes its network cards of a model of QEMU's, such as `e1000e`.
    #[must_use]
    pub fn cards(mut self, model: &'static str) -> Self {
        self.card = model;
        self
    }

    /// Gives it the board with PCI and IDE (i440FX) in place of that with PCI Express and SATA (Q35).
    #[must_use]
    pub fn old_board(mut self) -> Self {
        self.old_board = true;
        self
    }

    /// Adds arguments of QEMU, with spaces between, for parts that no other method has.
    #[must_use]
    pub fn further(mut self, arguments: &str) -> Self {
        self.further.extend(words(arguments));
        self
    }

    /// Adds a watchdog that restarts the machine.
    #[must_use]
    pub fn watchdog(mut self) -> Self {
        self.watchdog = true;
        self
    }

    fn attach(mut self, attachment: Attachment, disk: Disk) -> Self {
        self.disks.push((attachment, disk));
        self
    }

    fn nic(mut self, mac: &str, restricted: bool, ssh_to: &str) -> Self {
        let network = Network::User { restricted, ssh_to: ssh_to.to_owned(), boot: None };
        self.nics.push(Nic { mac: mac.to_owned(), network });
        self
    }

    /// The board, the processor and the firmware of 64-bit Arm.
    fn arm64_board(&self, variables: &Path) -> Vec<String> {
        let mut args =
            words(&format!("-accel {ACCELERATOR},thread=multi -cpu {ARM64_PROCESSOR} -machine virt"));
        args.extend(words("-display none -nodefaults -device virtio-gpu-pci"));
        args.extend(words("-device virtio-rng-pci -device qemu-xhci,id=usb -device usb-kbd"));
        args.extend(words(&format!(
            "-drive if=pflash,format=raw,unit=0,readonly=on,file={AAVMF}/AAVMF_CODE.fd"
        )));
        args.extend(["-drive".into(), format!("if=pflash,format=raw,unit=1,file={}", escaped(variables))]);
        args
    }

    /// The board, the processor and the firmware of x86.
    fn amd64_board(&self, variables: &Path) -> Vec<String> {
        let secure = self.firmware == Firmware::SecureBoot;
        let translations =
            if self.firmware == Firmware::Bios { BIOS_TRANSLATIONS } else { UEFI_TRANSLATIONS };
        let threads = if self.parallel { "multi" } else { "single" };
        let accelerator = format!("{ACCELERATOR},thread={threads},tb-size={translations}");
        let mut args =
            words(&format!("-accel {accelerator} -cpu {PROCESSOR} -display none -vga std -nodefaults"));
        args.extend(words("-device virtio-rng-pci -device qemu-xhci,id=usb"));
        let board = if self.old_board { "pc" } else { "q35" };
        args.extend(["-machine".into(), format!("{board},smm={}", if secure { "on" } else { "off" })]);
        if self.firmware != Firmware::Bios {
            let code = if secure { "OVMF_CODE_4M.secboot.fd" } else { "OVMF_CODE_4M.fd" };
            args.extend(words(&format!("-drive if=pflash,format=raw,unit=0,readonly=on,file={OVMF}/{code}")));
            args.extend([
                "-drive".into(),
                format!("if=pflash,format=raw,unit=1,file={}", escaped(variables)),
            ]);
        }
        if secure {
            args.extend(words("-global driver=cfi.pflash01,property=secure,value=on"));
        }
        args
    }

    /// QEMU's arguments for the machine itself; `variables` is its copy of the UEFI variables.
    fn arguments(&self, variables: &Path) -> Vec<String> {
        let mut args = match self.architecture {
            Architecture::Amd64 => self.amd64_board(variables),
            Architecture::Arm64 => self.arm64_board(variables),
        };
        args.extend(["-m".into(), (self.memory.get() >> 20).to_string()]);
        args.extend(["-smp".into(), self.cpus.to_string()]);
        if self.http_boot {
            for version in ["4", "6"] {
                let name = format!("opt/org.tianocore/IPv{version}PXESupport");
                args.extend(["-fw_cfg".into(), format!("name={name},string=n")]);
            }
        }
        if self.balloon {
            args.extend(words("-device virtio-balloon-pci,id=balloon"));
        }
        if self.watchdog {
            args.extend(words("-device i6300esb -action watchdog=reset"));
        }
        for (index, (attachment, disk)) in self.disks.iter().enumerate() {
            args.extend(disk_arguments(index, *attachment, disk, self.architecture == Architecture::Amd64));
        }
        for (index, nic) in self.nics.iter().enumerate() {
            args.extend(nic_arguments(index, nic, self.card));
        }
        args.extend(self.further.iter().cloned());
        if let Some((kernel, initrd, arguments)) = &self.kernel {
            let (kernel, initrd) = (kernel.display().to_string(), initrd.display().to_string());
            args.extend(["-kernel".into(), kernel, "-initrd".into(), initrd]);
            args.extend(["-append".into(), arguments.clone()]);
        }
        if !self.reboots {
            args.push("-no-reboot".into());
        }
        args
    }

    /// Starts the machine; its logs go to `artifacts`.
    pub fn start(&self, artifacts: &Artifacts) -> Result<Vm> {
        let name = artifacts.machine(&self.purpose);
        // The path of a Unix socket may have at most 107 bytes, and the target directory may be deep.
        let sockets = tempfile::Builder::new().prefix("nqrust-vm").tempdir()?;
        let (serial, qmp) = (sockets.path().join("serial"), sockets.path().join("qmp"));
        let listeners = (UnixListener::bind(&serial)?, UnixListener::bind(&qmp)?);
        let variables = artifacts.disk(&format!("{name}-variables.fd"));
        let (directory, template) = match (self.architecture, self.firmware) {
            (Architecture::Amd64, Firmware::SecureBoot) => (OVMF, "OVMF_VARS_4M.ms.fd"),
            (Architecture::Amd64, Firmware::Bios | Firmware::Uefi) => (OVMF, "OVMF_VARS_4M.fd"),
            (Architecture::Arm64, Firmware::SecureBoot) => (AAVMF, "AAVMF_VARS.ms.fd"),
            (Architecture::Arm64, Firmware::Bios | Firmware::Uefi) => (AAVMF, "AAVMF_VARS.fd"),
        };
        if self.firmware != Firmware::Bios {
            let template = Path::new(directory).join(template);
            fs::copy(&template, &variables).with_context(|| format!("copying {}", template.display()))?;
        }
        let log = File::create(artifacts.path(&format!("{name}-qemu.log")))?;
        // If the harness is killed, no destructor runs; then the kernel ends QEMU.
        let emulator = format!("qemu-system-{}", self.architecture.kernel());
        let killed = ["setpriv", "--pdeathsig", "KILL", &emulator].map(str::to_owned);
        let mut program = self.enter.iter().cloned().chain(killed);
        let mut command = Command::new(program.next().unwrap_or_default());
        command
            .args(program)
            .args(self.arguments(&variables))
            .args(["-chardev".into(), format!("socket,id=serial,path={}", serial.display())])
            .args(["-chardev".into(), format!("socket,id=qmp,path={}", qmp.display())])
            .args(words("-serial chardev:serial -mon chardev=qmp,mode=control"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut child = Process(command.spawn().with_context(|| format!("starting {emulator}"))?);
        let raw = artifacts.path(&format!("{name}-serial.log"));
        let serial = Serial::new(accept(&listeners.0, &mut child, artifacts, &name)?, &raw)?;
        let qmp = Qmp::new(accept(&listeners.1, &mut child, artifacts, &name)?)?;
        let screenshot = artifacts.path(&format!("{name}-screen.png"));
        Ok(Vm { serial, qmp, child, screenshot })
    }
}

/// Waits for QEMU's connection; if QEMU ends instead, returns its error output.
fn accept(
    listener: &UnixListener,
    child: &mut Process,
    artifacts: &Artifacts,
    name: &str,
) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let stream = Deadline::after(Duration::from_secs(30)).poll("QEMU's connection", || {
        if let Some(status) = child.0.try_wait()? {
            let said = fs::read_to_string(artifacts.path(&format!("{name}-qemu.log"))).unwrap_or_default();
            bail!("QEMU ended with {status}: {said}");
        }
        match listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A child process that is killed when its handle is dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running machine. If it is dropped while it runs, a screenshot is kept and it is killed: a successful test ends its
/// machines itself.
#[derive(Debug)]
pub struct Vm {
    /// The console on the first serial port.
    pub serial: Serial,
    /// QEMU's monitor.
    pub qmp: Qmp,
    child: Process,
    screenshot: PathBuf,
}

impl Vm {
    /// Adds a path to the raw disk of several paths, on the controller of its disk `index`.
    pub fn add_scsi_path(&mut self, disk: &Disk, index: usize) -> Result<()> {
        let [drive, device] = further_path(disk, index);
        self.qmp.execute("blockdev-add", drive)?;
        self.qmp.execute("device_add", device).map(drop)
    }

    /// The port of this host (on 127.0.0.1) that is forwarded to SSH in the guest.
    pub fn ssh_port(&mut self) -> Result<u16> {
        let table = self.qmp.human("info usernet")?;
        forwarded_port(&table).with_context(|| format!("no forwarded port in:\n{table}"))
    }

    /// Connects or disconnects the cable of the first network card.
    pub fn set_link(&mut self, up: bool) -> Result<()> {
        self.qmp.set_link("nic0", up)
    }

    /// Makes QEMU poll the memory balloon every second.
    pub fn watch_memory(&mut self) -> Result<()> {
        let every = json!({ "path": BALLOON, "property": "guest-stats-polling-interval", "value": 1 });
        self.qmp.execute("qom-set", every).map(drop)
    }

    /// Bytes in use in the guest at the last poll (`MemTotal` less `MemAvailable` of proc(5)); none before its driver
    /// runs.
    pub fn memory_in_use(&mut self) -> Result<Option<u64>> {
        let told = json!({ "path": BALLOON, "property": "guest-stats" });
        let told = self.qmp.execute("qom-get", told)?;
        // An unknown value is the largest number.
        let value = |name: &str| told["stats"][name].as_u64().filter(|value| *value < u64::MAX);
        Ok(value("stat-total-memory")
            .zip(value("stat-available-memory"))
            .map(|(total, available)| total.saturating_sub(available)))
    }

    /// Waits until QEMU ends by itself, because the guest rebooted or powered off.
    pub fn wait_for_exit(mut self, limit: Duration) -> Result<ExitStatus> {
        let child = &mut self.child.0;
        Deadline::after(limit).poll("the machine's end", || Ok(child.try_wait()?))
    }

    /// Presses the power button and waits for the end.
    pub fn power_off(self, limit: Duration) -> Result<()> {
        self.last_words(limit).map(drop)
    }

    /// As [`power_off`](Self::power_off); returns what the console has said since it was last waited for.
    pub fn last_words(mut self, limit: Duration) -> Result<String> {
        self.qmp.system_powerdown()?;
        let child = &mut self.child.0;
        Deadline::after(limit).poll("the machine's end", || Ok(child.try_wait()?))?;
        Ok(self.serial.rest(Duration::from_secs(5)))
    }

    /// Ends the machine at once, like a power cut.
    pub fn kill(mut self) -> Result<()> {
        // QEMU may not answer `quit` any more; only the end of the process matters.
        let _ = self.qmp.quit();
        self.wait_for_exit(Duration::from_secs(30)).map(drop)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if matches!(self.child.0.try_wait(), Ok(None)) {
            // A missing screenshot must not hide the failure that it documents.
            let _ = self.qmp.screendump(&self.screenshot);
        }
    }
}

/// The host's port of the first forwarding in the output of `info usernet`.
fn forwarded_port(table: &str) -> Option<u16> {
    let line = table.lines().find(|line| line.contains("HOST_FORWARD"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forwarded_port_is_read_from_the_monitor() {
        let table = "Hub -1 (net0):\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n  TCP[HOST_FORWARD]  13       127.0.0.1 46571       10.0.2.15    22     0     0\n";
        assert_eq!(forwarded_port(table), Some(46571));
        assert_eq!(forwarded_port("Hub -1 (net0):\n"), None);
    }
}
