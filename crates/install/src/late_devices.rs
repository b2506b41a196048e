//! Disks and network cards that appear late: a controller that starts slowly, a storage network, a BMC's virtual disk.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::plan::absent_disks;
use base::progress::Progress;
use machine::inventory::{Inventory, Roots};
use machine::nics::wanted;
use model::config::InstallConfig;
use model::machine::Mac;

/// How long disks and cards that the configuration names may take to appear.
const TIMEOUT: Duration = Duration::from_secs(60);
/// After this long without an event a group of devices is complete: a controller shows its disks one after the other.
const SETTLED: Duration = Duration::from_millis(700);
/// How long a stream of events can delay a scan.
const UNSETTLED: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(300);

/// Scans the machine at each event of udev until every disk and card that the configuration names has appeared, for a minute at most.
/// The plan and the checks report what is missing then.
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

/// Waits, without a limit, until the machine has every disk and card that the configuration names. Returns at once, with `false`,
/// if none is missing, or without udev.
pub fn await_absent(config: &InstallConfig, roots: &Roots, progress: &Progress) -> Result<bool> {
    let missing = absent(config, &Inventory::scan(roots)?);
    if missing.is_empty() {
        return Ok(false);
    }
    let Ok(mut events) = DeviceEvents::begin() else { return Ok(false) };
    let what = format!("Waiting for {}; the install begins again when it appears", missing.join(", "));
    let step = progress.step("devices", what, None);
    let there = await_all(config, &mut || Inventory::scan(roots), &mut || events.next(Duration::MAX))?;
    step.done();
    Ok(there)
}

/// Looks after each event until nothing is missing; `false` if there are no more events.
fn await_all(
    config: &InstallConfig,
    look: &mut dyn FnMut() -> Result<Inventory>,
    event: &mut dyn FnMut() -> bool,
) -> Result<bool> {
    // A device may have appeared before the first event.
    while !absent(config, &look()?).is_empty() {
        if !event() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Calls `changed` each time that disks or network cards have come or gone, until it is over; without udev never.
pub fn watch(over: &AtomicBool, changed: &dyn Fn()) {
    let Ok(mut events) = DeviceEvents::begin() else { return };
    follow(over, &mut |left| events.wait(left), changed);
}

/// Calls `changed` after each group of events.
fn follow(over: &AtomicBool, event: &mut dyn FnMut(Duration) -> WaitEnd, changed: &dyn Fn()) {
    while !over.load(Ordering::Relaxed) {
        match event(CHECK_INTERVAL) {
            WaitEnd::Nothing => {}
            WaitEnd::Event => {
                let until = Instant::now() + UNSETTLED;
                while event(SETTLED) == WaitEnd::Event && Instant::now() < until {}
                changed();
            }
            WaitEnd::End => return,
        }
    }
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
        self.wait(left) == WaitEnd::Event
    }

    fn wait(&mut self, left: Duration) -> WaitEnd {
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::NONE);
        let mut ready = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, timeout) {
            Ok(0) => WaitEnd::Nothing,
            Ok(_) if self.output.read(&mut [0; 4096]).is_ok_and(|count| count > 0) => WaitEnd::Event,
            _ => WaitEnd::End,
        }
    }
}

/// What a wait for events ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEnd {
    /// The time is over.
    Nothing,
    Event,
    /// There are no more.
    End,
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
            let mut inventory =
                Inventory { disks: vec![disk("vda", ByteSize::gib(16))], ..Inventory::default() };
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
    fn a_device_that_appears_after_the_failure_ends_the_wait_however_late_it_is() {
        let config = parse("install: {mode: install, device: {serial: serial-vdb}}", "f").unwrap();
        let (mut looked, mut heard) = (0, 0);
        let mut look = || {
            looked += 1;
            let disks = if looked > 5 { vec!["vda", "vdb"] } else { vec!["vda"] };
            let disks = disks.into_iter().map(|name| disk(name, ByteSize::gib(16))).collect();
            Ok(Inventory { disks, ..Inventory::default() })
        };
        let mut event = || {
            heard += 1;
            true
        };
        assert!(await_all(&config, &mut look, &mut event).unwrap());
        assert_eq!((looked, heard), (6, 5));
        assert!(!await_all(&config, &mut || Ok(Inventory::default()), &mut || false).unwrap());
    }

    #[test]
    fn events_that_come_together_are_one_change() {
        use WaitEnd::{End, Event, Nothing};
        let mut heard = [Nothing, Event, Event, Event, Nothing, Nothing, Event, Nothing, End].into_iter();
        let changes = std::cell::Cell::new(0);
        let over = AtomicBool::new(false);
        follow(&over, &mut |_| heard.next().unwrap(), &|| changes.set(changes.get() + 1));
        assert_eq!(changes.get(), 2);
        over.store(true, Ordering::Relaxed);
        follow(&over, &mut |_| panic!("it is over"), &|| {});
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
