//! The loop with consoles that are pseudo terminals.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::*;
use crate::questions::tests::facts;
use crate::questions::{ConfigOrigin, Destination, MachineNews, ShownPlan};
use crate::toolkit::outlet::Outlet;
use base::progress::Progress;
use install::usb_stick::{StickSurvey, StickVolume};
use machine::inventory::Inventory;
use machine::live::help::HelpAccess;
use model::config::sources::CombinedConfig;
use model::config::{InstallConfig, Secret};
use preflight::PreflightReport;

/// A machine with help access and nothing else. A disk may appear while somebody looks.
#[derive(Default)]
struct Hut {
    appears: bool,
    there: AtomicBool,
}

impl InstallMachine for Hut {
    fn inventory(&self) -> Result<Inventory> {
        let mut inventory = facts().inventory;
        if self.there.load(Ordering::Relaxed) {
            let disk = testing::disks::disk("sdc", base::size::ByteSize::gib(120));
            inventory.disks.push(disk);
        }
        Ok(inventory)
    }
    fn watch(&self, _: &AtomicBool, tell: &(dyn Fn(MachineNews) + Sync)) {
        if self.appears {
            self.there.store(true, Ordering::Relaxed);
            tell(MachineNews::DevicesChanged);
        }
    }
    fn set_keyboard(&self, name: &str) -> Result<String> {
        Ok(format!("The keyboard layout is {name}."))
    }
    fn fetch(&self, _: &ConfigOrigin) -> Result<CombinedConfig> {
        anyhow::bail!("there is no network")
    }
    fn try_network(&self, _: &InstallConfig) -> Result<String> {
        anyhow::bail!("there is no network")
    }
    fn try_cluster(&self, _: &InstallConfig) -> Result<String> {
        anyhow::bail!("there is no cluster")
    }
    fn check(&self, _: &InstallConfig) -> Result<PreflightReport> {
        anyhow::bail!("nobody knows")
    }
    fn plan(&self, _: &InstallConfig) -> Result<ShownPlan> {
        anyhow::bail!("there is no medium")
    }
    fn install(&self, _: &InstallConfig, _: &Progress) -> Result<()> {
        anyhow::bail!("there is no disk")
    }
    fn stop(&self) {}
    fn record(&self, _: &InstallConfig) -> Result<Option<String>> {
        Ok(None)
    }
    fn configuration(&self, _: &InstallConfig) -> Result<Secret> {
        anyhow::bail!("there are no answers")
    }
    fn volumes(&self) -> Result<StickSurvey> {
        Ok(StickSurvey::default())
    }
    fn save_configuration(&self, _: &InstallConfig, _: &StickVolume) -> Result<String> {
        anyhow::bail!("there is no stick")
    }
    fn save_logs(&self, _: &Destination) -> Result<String> {
        anyhow::bail!("there is no stick")
    }
    fn open_access(&self) -> Result<HelpAccess> {
        let (addresses, host_key, trouble) = (vec![], None, None);
        Ok(HelpAccess { password: Secret::new("a-password"), addresses, host_key, trouble })
    }
    fn close_access(&self) -> Result<()> {
        Ok(())
    }
    /// A shell that repeats a line.
    fn shell(&self, mut terminal: File, term: &str, password: &Secret) -> Result<()> {
        writeln!(terminal, "SHELL on {term} for {}", password.expose())?;
        let mut line = [0; 64];
        let count = terminal.read(&mut line)?;
        write!(terminal, "HEARD {}", String::from_utf8_lossy(&line[..count]))?;
        Ok(())
    }
    fn present(&self, _: &InstallConfig) -> Result<Vec<crate::questions::ShownNode>> {
        Ok(Vec::new())
    }
    fn start_node(&self) -> Result<()> {
        Ok(())
    }
    fn end(&self, _: ConversationEnd) -> Result<()> {
        Ok(())
    }
}

/// The other end of a console: what was drawn, and where keys are pressed.
struct Other {
    keys: File,
    /// The bytes that have arrived, and the news that more have.
    seen: Arc<(Mutex<Vec<u8>>, Condvar)>,
    /// Keeps the terminal alive while it is not open elsewhere.
    _end: File,
}

impl Other {
    /// A console, and its other end. If `silent`, nothing reads there, and it is full from the beginning.
    fn new(silent: bool) -> (Console, Self) {
        let pty = nix::pty::openpty(None, None).unwrap();
        let name = nix::unistd::ttyname(&pty.slave).unwrap();
        let (keys, end) = (File::from(pty.master), File::from(pty.slave));
        let seen: Arc<(Mutex<Vec<u8>>, Condvar)> = Arc::default();
        let (mut reader, kept) = (keys.try_clone().unwrap(), seen.clone());
        if silent {
            let mut outlet = Outlet::new(end.try_clone().unwrap());
            outlet.write_all(&[b'x'; 200_000]).unwrap();
            outlet.flush().unwrap();
            assert!(outlet.is_waiting());
        } else {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count) = reader.read(&mut bytes) {
                    kept.0.lock().unwrap().extend_from_slice(&bytes[..count]);
                    kept.1.notify_all();
                }
            });
        }
        (Console::open(Path::new(&name)).unwrap(), Self { keys, seen, _end: end })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the text, at most for `timeout`; then drops everything before it. Returns whether it has arrived.
    fn has(&self, text: &str, timeout: Duration) -> bool {
        let (bytes, arrived) = &*self.seen;
        let lacks = |bytes: &mut Vec<u8>| !String::from_utf8_lossy(bytes).contains(text);
        let (mut bytes, result) = arrived.wait_timeout_while(bytes.lock().unwrap(), timeout, lacks).unwrap();
        if !result.timed_out() {
            bytes.clear();
        }
        !result.timed_out()
    }

    fn wait(&self, text: &str) {
        assert!(self.has(text, PICTURE_TIMEOUT), "{text} does not come");
    }

    /// Waits for a title or a word in whole pictures: otherwise only changes are sent.
    fn look(&mut self, text: &str) {
        let until = Instant::now() + PICTURE_TIMEOUT;
        while !self.has(text, Duration::from_millis(50)) {
            assert!(Instant::now() < until, "{text} does not come");
            self.press(REDRAW);
        }
    }
}

/// Plays on consoles while `work` is at their other ends, and ends.
fn played(consoles: Vec<Console>, work: impl FnOnce() + Send + 'static) -> Result<ConversationEnd> {
    played_on(false, consoles, work)
}

/// The same; if a disk `appears`, it does while the first screen is shown.
fn played_on(
    appears: bool,
    consoles: Vec<Console>,
    work: impl FnOnce() + Send + 'static,
) -> Result<ConversationEnd> {
    let work = std::thread::spawn(work);
    let facts = ConversationFacts { can_quit: true, ..facts() };
    let end = run(consoles, facts, Answers::default(), &Hut { appears, ..Hut::default() });
    work.join().unwrap();
    end
}

const LEAVE: &str = "\x07";
const HELP: &str = "\x10";
const REDRAW: &str = "\x0c";
/// How long anything may take on a busy machine.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_console_that_nobody_reads_holds_up_no_other() {
    let (stuck, silent) = Other::new(true);
    let (console, mut other) = Other::new(false);
    let end = played(vec![stuck, console], move || {
        other.look("Install: what this machine becomes");
        for _ in 0..5 {
            other.press(LEAVE);
            other.look("Install: leave");
            other.press(LEAVE);
            other.look("Install: what this machine becomes");
        }
        other.press(LEAVE);
        other.look("Install: leave");
        other.press("\x1b[B\r");
        drop(silent);
    });
    assert_eq!(end.unwrap(), ConversationEnd::Quit);
}

#[test]
fn a_shell_has_its_console_alone_and_gives_it_back() {
    let (console, mut other) = Other::new(false);
    let end = played(vec![console], move || {
        other.look("Install: what this machine becomes");
        other.press(HELP);
        other.look("Install: help access");
        other.press("\r");
        other.look("a-password");
        other.press("\r");
        other.wait("SHELL on vt220 for a-password");
        other.press("word\n");
        other.wait("HEARD word");
        other.look("a-password");
        other.press(LEAVE);
        other.look("Install: leave");
        other.press("\x1b[B\r");
    });
    assert_eq!(end.unwrap(), ConversationEnd::Quit);
}

#[test]
fn a_disk_that_appears_is_seen_without_a_key() {
    let (console, mut other) = Other::new(false);
    let end = played_on(true, vec![console], move || {
        other.look("/dev/sdc:");
        other.press(LEAVE);
        other.look("Install: leave");
        other.press("\x1b[B\r");
    });
    assert_eq!(end.unwrap(), ConversationEnd::Quit);
}
