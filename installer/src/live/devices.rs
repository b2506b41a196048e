//! Disks and network cards that appear late: a controller that starts slowly, a storage network, a BMC's virtual disk.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::inventory::{Inventory, Roots};
use crate::nics::wanted;
use crate::plan::absent_disks;
use base::progress::Progress;
use model::config::InstallConfig;
use model::machine::Mac;

/// How long disks and cards that the configuration names may take to appear.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Scans the machine until every disk and card that the configuration names is there, at each event of udev, for a minute at most.
/// What is missing then, the plan and the checks report.
pub fn scan_complete(config: &InstallConfig, roots: &Roots, progress: &Progress) -> Result<Inventory> {
    let inventory = Inventory::scan(roots)?;
    if absent(config, &inventory).is_empty() {
        return Ok(inventory);
    }
    // Without udev there are no events, and the first look is the last.
    let Ok(mut events) = DeviceEvents::begin() else { return Ok(inventory) };
    // A device may have appeared between the first look and the first event.
    await_devices(config, &mut || Inventory::scan(roots), &mut |left| events.next(left), TIMEOUT, progress)
}

/// Looks once, and again after each event until nothing is missing or the time is over.
fn await_devices(
    config: &InstallConfig,
    look: &mut dyn FnMut() -> Result<Inventory>,
    event: &mut dyn FnMut(Duration) -> bool,
    timeout: Duration,
    progress: &Progress,
) -> Result<Inventory> {
    let until = Instant::now() + timeout;
    let mut inventory = look()?;
    let missing = absent(config, &inventory);
    if missing.is_empty() {
        return Ok(inventory);
    }
    let step = progress.step("devices", format!("Waiting for {}", missing.join(", ")), None);
    loop {
        if !event(until.saturating_duration_since(Instant::now())) {
            let missing = absent(config, &inventory).join(", ");
            let waited = timeout.as_secs();
            progress.warn("devices", &format!("{missing} has not appeared within {waited} s"));
            break;
        }
        inventory = look()?;
        if absent(config, &inventory).is_empty() {
            break;
        }
    }
    step.done();
    Ok(inventory)
}

/// The disks and cards that the configuration names and the machine lacks, as it names them.
fn absent(config: &InstallConfig, inventory: &Inventory) -> Vec<String> {
    let mut missing = absent_disks(&config.install, inventory);
    for card in wanted(config).iter().map(|wanted| wanted.card) {
        let address: Option<Mac> = card.hw_addr.as_deref().and_then(|address| address.parse().ok());
        let here = inventory.nics.iter().any(|nic| match address {
            Some(address) => nic.mac.parse() == Ok(address),
            None => card.name.as_deref() == Some(nic.name.as_str()),
        });
        if !here {
            missing.extend(card.hw_addr.as_deref().or(card.name.as_deref()).map(str::to_owned));
        }
    }
    missing
}

/// What udev has finished with, as `udevadm monitor` tells it. Its links are there by then.
struct DeviceEvents {
    monitor: Child,
    output: ChildStdout,
}

impl DeviceEvents {
    fn begin() -> io::Result<Self> {
        let mut command = Command::new("udevadm");
        command.args(["monitor", "--udev", "--subsystem-match=block", "--subsystem-match=net"]);
        let mut monitor =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = monitor.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut events = Self { monitor, output };
        // Its first lines say that it listens.
        events.next(Duration::from_secs(10));
        Ok(events)
    }

    /// Waits for an event; `false` after `left`, or if there are no more.
    fn next(&mut self, left: Duration) -> bool {
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut ready = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        let told = poll(&mut ready, timeout).is_ok_and(|count| count > 0);
        told && self.output.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        // It only listens, and has nothing to lose.
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::disk;
    use base::size::ByteSize;
    use model::config::parse;

    /// Which look finds everything, of a machine whose second disk and card appear at the third.
    fn looks(document: &str, events: usize) -> usize {
        let config = parse(document, "f").unwrap();
        let (mut count, mut left) = (0, events);
        let mut look = || {
            count += 1;
            let mut inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], nics: vec![] };
            if count >= 3 {
                inventory.disks.push(disk("vdb", ByteSize::gib(16)));
                let text = r#"{"name": "ens4", "mac": "52:54:00:00:00:04", "carrier": null, "speed": null}"#;
                inventory.nics.push(serde_json::from_str(text).unwrap());
            }
            Ok(inventory)
        };
        let mut event = |_| {
            left = left.saturating_sub(1);
            left > 0
        };
        await_devices(&config, &mut look, &mut event, Duration::ZERO, &Progress::silent()).unwrap();
        count
    }

    #[test]
    fn what_the_configuration_names_is_waited_for_and_nothing_else() {
        for named in [
            "device: /dev/vdb",
            "device: {serial: serial-vdb}",
            "device: /dev/vda, data_disk: /dev/disk/by-id/virtio-serial-vdb",
            "wipe_disks_list: [/dev/vdb]",
            "management_interface: {interfaces: [{name: ens4}]}",
            "management_interface: {interfaces: [{hw_addr: '52:54:00:00:00:04'}]}",
        ] {
            let document = format!("install: {{mode: install, {named}}}");
            assert_eq!(looks(&document, 9), 3, "{named}");
            // Without an event it ends with what there is.
            assert_eq!(looks(&document, 1), 1, "{named}");
        }
        for complete in ["device: /dev/vda", "device: {model: QEMU*}", "automatic: false"] {
            assert_eq!(looks(&format!("install: {{mode: install, {complete}}}"), 9), 1, "{complete}");
        }
    }
}
