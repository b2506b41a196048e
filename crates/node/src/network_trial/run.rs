//! Beginning a trial, setting up its network, confirming and reverting it.
//!
//! The session that begins a trial may be cut off by it. So the new network is set up by a service of its own, and the old one is
//! restored by a timer that is started before anything is changed. Every change is made under a lock.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::change::{AffectedNode, NetworkChange};
use super::networks::Networks;
use super::record::{EndedTrial, NetworkSide, Trial, TrialEnding, TrialFile, TrialState, keep, uptime};
use super::span::TrialSpan;
use crate::applied::AppliedRecord;
use crate::apply::{self, ApplyOutcome};
use crate::apply_running::apply_running;
use base::command::{Invocation, Runner};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure, causes};
use base::files::{self, Root};
use cluster::configuration::{ClusterMember, etcd_data};
use machine::inventory::nics;
use machine::network::activate::{ProfileChanges, activate, address_of};
use machine::network::{self, management_device};
use machine::nics::{CardSelectors, RememberedCards};
use machine::node_files::NodeFile;
use machine::node_files::write;
use machine::paths::{DOCUMENT, below};
use model::config::{self, Distribution, InstallConfig};

/// The document that was replaced by the last confirmed change.
pub const PREVIOUS: &str = "/oem/node.previous.yaml";
const LOCK_FILE: &str = "run/nqrust/network-trial.lock";
/// The unit that restores the old network, and the one that sets up the new one.
const TIMER_UNIT: &str = "nqrust-network-trial";
const SET_UP: &str = "nqrust-network-set-up";
const PROGRAM: &str = "/usr/bin/installer";
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(45);

#[allow(missing_debug_implementations)]
pub struct Trials<'a> {
    root: &'a Path,
    runner: &'a dyn Runner,
}

impl<'a> Trials<'a> {
    /// The trials of the node at `root`, with `runner` for its programs.
    #[must_use]
    pub fn new(root: &'a Path, runner: &'a dyn Runner) -> Self {
        Self { root, runner }
    }

    /// The change of this node's document by `part`, which messages call `name`.
    pub fn change(&self, part: &str, name: &str) -> Result<NetworkChange> {
        NetworkChange::read(&self.text()?, part, (DOCUMENT, name))
    }

    pub fn config(&self) -> Result<InstallConfig> {
        config::load(&self.document())
    }

    #[must_use]
    pub fn present(&self) -> AffectedNode {
        let ip = Invocation::new("ip").args(["-json", "-details", "address"]);
        let output = self.runner.run(&ip).unwrap_or_default();
        let devices: Vec<serde_json::Value> = serde_json::from_slice(&output).unwrap_or_default();
        let lists = devices.iter().filter_map(|device| device["addr_info"].as_array()).flatten();
        let addresses: Vec<Ipv4Addr> =
            lists.filter_map(|address| address["local"].as_str()?.parse().ok()).collect();
        // A node may have been promoted to a server, whatever its document says.
        let etcd = |distribution| below(self.root, &etcd_data(distribution)).join("member");
        let keeps_etcd = Distribution::ALL.into_iter().any(|distribution| etcd(distribution).exists());
        AffectedNode { addresses, keeps_etcd }
    }

    /// Begins a trial: the timer first, then the service that sets up the new network; returns before that is done. `accepted`:
    /// the user accepts a changed address of a cluster's server.
    ///
    /// # Errors
    /// [`Class::Invalid`] during another trial, if nothing would change, if the document has changes that are not applied, and
    /// for an address that was not accepted. Then nothing has been changed.
    pub fn begin(&self, change: &NetworkChange, span: TrialSpan, accepted: bool) -> Result<()> {
        let _lock = self.lock()?;
        refuse_during(self.root)?;
        if change.differences().is_empty() {
            return Err(invalid("this node has these networks already").into());
        }
        let concerns = change.concerns(&self.present());
        if let Some(grave) = concerns.iter().find(|concern| concern.grave).filter(|_| !accepted) {
            let hint = "To accept it, use: installer network try --accept-address-change";
            return Err(invalid(grave.text.clone()).hint(hint).into());
        }
        let trial = self.plan(change, span)?;
        trial.write(self.root)?;
        if let Err(error) = self.start(span) {
            self.stop(&format!("{TIMER_UNIT}.timer"));
            Trial::forget(self.root)?;
            return Err(error).context("beginning the trial; nothing has been changed");
        }
        Ok(())
    }

    fn plan(&self, change: &NetworkChange, span: TrialSpan) -> Result<Trial> {
        let text = self.text()?;
        let applied = AppliedRecord::read(self.root)?.unwrap_or_default();
        if applied.document != Some(apply::digest_of(&self.document())?) {
            let hint = "Apply them first: installer apply";
            return Err(invalid("the node document has changes that are not applied").hint(hint).into());
        }
        let remembered = RememberedCards::beside(&self.document()).unwrap_or_default();
        let present = nics::scan(&self.root.join("sys"));
        let rendered = |config: &InstallConfig, remembered: &RememberedCards| {
            network::own_files(config, &CardSelectors::of(config, remembered, &present))
        };
        let old = rendered(&change.before, &remembered);
        let new = rendered(&change.after, &remembered.after(&change.after, &present));
        let mut before = Vec::new();
        for file in new.iter().chain(old.iter().filter(|file| !holds(&new, &file.path))) {
            before.push(self.current_file(file)?);
        }
        let gone = before.iter().filter(|kept| !holds(&new, &kept.path));
        let gone: Vec<_> = gone.map(|kept| TrialFile { text: None, ..kept.clone() }).collect();
        // A later apply, however the trial ends, has to know the files.
        let record = applied.with(new.iter().map(|file| file.path.clone()))?;
        before.push(self.current_file(&record)?);
        let after = new.into_iter().chain([record]).map(side).chain(gone).collect();
        Ok(Trial {
            until: uptime(self.root)? + span.seconds(),
            span,
            document: Digest::of(text.as_bytes()),
            confirmed: Digest::of(change.after.to_yaml().as_bytes()),
            before: NetworkSide { networks: Networks::of(&change.before), files: before },
            after: NetworkSide { networks: Networks::of(&change.after), files: after },
            state: TrialState::SettingUp,
            notes: Vec::new(),
        })
    }

    /// The current content at the place of `file`.
    fn current_file(&self, file: &NodeFile) -> Result<TrialFile> {
        let path = self.root.join(&file.path);
        if !path.exists() {
            return Ok(TrialFile { path: file.path.clone(), mode: file.mode, text: None });
        }
        let metadata = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        let (mode, text) = (metadata.permissions().mode() & 0o7777, Some(files::read_text(&path)?));
        Ok(TrialFile { path: file.path.clone(), mode, text })
    }

    fn start(&self, span: TrialSpan) -> Result<()> {
        // An old timer would revert this trial too early.
        self.stop(&format!("{TIMER_UNIT}.timer"));
        let unit = |name: &str| {
            let unit = format!("--unit={name}");
            Invocation::new("systemd-run").args(["--quiet", "--collect"]).arg(unit)
        };
        let back = unit(TIMER_UNIT)
            .args(["--description=Bring the old network back", "--timer-property=AccuracySec=1s"])
            .args(["--property=Restart=on-failure", "--property=RestartSec=10s"])
            .arg(format!("--on-active={span}s"))
            .args([PROGRAM, "network", "revert", "--expired"]);
        self.runner.run(&back).context("starting the timer that brings the old network back")?;
        let forth = unit(SET_UP)
            .arg("--description=Set up the network on trial")
            .arg(format!("--property=RuntimeMaxSec={span}s"))
            .args([PROGRAM, "network", "set-up"]);
        self.runner.run(&forth).context("starting the service that sets up the new network").map(drop)
    }

    /// Sets up the network on trial; for the service that [`Self::begin`] starts. If it cannot be set up, the old one is restored
    /// at once.
    pub fn set_up(&self) -> Result<()> {
        let lock = self.lock()?;
        let Some(trial) = Trial::read(self.root)? else { return Err(none_under_way(self.root)) };
        let mut notes = Vec::new();
        if let Err(error) = self.switch(&trial.after, &mut notes) {
            notes.push(format!("error: {}", causes(&error).join(": ")));
            self.bring_back(&trial, TrialEnding::Failed, notes)?;
            return Err(error).context("setting up the network on trial; the old one is back");
        }
        drop(lock);
        notes.extend(self.address(&trial));
        let _lock = self.lock()?;
        // It may have been reverted while this waited for the address.
        match Trial::read(self.root)?.filter(|now| now.until == trial.until) {
            Some(now) => Trial { state: TrialState::Running, notes, ..now }.write(self.root),
            None => Ok(()),
        }
    }

    /// Whether the management network has an address, in a sentence; `None` if it has no device of its own.
    fn address(&self, trial: &Trial) -> Option<String> {
        let device = management_device(&trial.after.networks.alone())?;
        let left = Duration::from_secs(trial.span.seconds() / 2);
        Some(match address_of(&device, self.runner, ADDRESS_TIMEOUT.min(left)) {
            Some(address) => format!("{device} has the address {address}"),
            None => format!("warning: {device} has no address: check cables, VLAN and DHCP"),
        })
    }

    /// Makes the network on trial that of the node: the document is replaced and applied.
    ///
    /// # Errors
    /// [`Class::Invalid`] if there is no trial, while its network is being set up, and if the document has changed since the
    /// trial began; the trial goes on then.
    pub fn confirm(&self) -> Result<ApplyOutcome> {
        let _lock = self.lock()?;
        let Some(trial) = Trial::read(self.root)? else { return Err(none_under_way(self.root)) };
        if trial.state == TrialState::SettingUp {
            return Err(invalid("the network on trial is still being set up")
                .hint("Try again in a moment.")
                .into());
        }
        let old = self.text()?;
        if Digest::of(old.as_bytes()) != trial.document {
            let hint = "Revert the trial (installer network revert), apply the document, and try again.";
            return Err(invalid("the node document has changed since the trial began").hint(hint).into());
        }
        let (before, after) = (config::parse(&old, DOCUMENT)?, self.composed(&trial)?);
        keep(self.root, PREVIOUS, &old)
            .and_then(|()| keep(self.root, DOCUMENT, &after))
            .class(Class::DiskIo, || "keeping the new network in the node document".to_owned())?;
        self.stop(&format!("{TIMER_UNIT}.timer"));
        Trial::end(self.root, &EndedTrial { how: TrialEnding::Confirmed, notes: Vec::new() })?;
        let mut outcome = apply_running(&self.document(), self.root, self.runner)
            .context("the new network stays; applying the rest of the node document")?;
        outcome.warnings.extend(restart(&before, &trial));
        Ok(outcome)
    }

    /// The document that confirming writes.
    fn composed(&self, trial: &Trial) -> Result<String> {
        let mut config = self.config()?;
        trial.after.networks.put_into(&mut config);
        let text = config.to_yaml();
        // Nothing is kept that was not checked when the trial began.
        let same = Digest::of(text.as_bytes()) == trial.confirmed;
        anyhow::ensure!(same, "the document that was checked is not the one to be written");
        Ok(text)
    }

    /// Restores the old network. `expired` is for the timer: the trial has reached its time limit. The timer of an earlier trial
    /// changes nothing.
    pub fn revert(&self, expired: bool) -> Result<EndedTrial> {
        if !expired && Trial::read(self.root)?.is_some() {
            self.stop(&format!("{SET_UP}.service"));
        }
        let _lock = self.lock()?;
        let nothing = EndedTrial { how: TrialEnding::Reverted, notes: Vec::new() };
        let Some(trial) = Trial::read(self.root)? else {
            return if expired { Ok(nothing) } else { Err(none_under_way(self.root)) };
        };
        if expired && trial.left(self.root)? > 1 {
            return Ok(nothing);
        }
        if Digest::of(self.text()?.as_bytes()) == trial.confirmed {
            // Confirming was interrupted after the document had been replaced.
            let ended = EndedTrial { how: TrialEnding::Confirmed, notes: Vec::new() };
            Trial::end(self.root, &ended)?;
            return Ok(ended);
        }
        if !expired {
            self.stop(&format!("{TIMER_UNIT}.timer"));
        }
        self.bring_back(
            &trial,
            if expired { TrialEnding::Expired } else { TrialEnding::Reverted },
            Vec::new(),
        )
    }

    fn bring_back(&self, trial: &Trial, how: TrialEnding, mut notes: Vec<String>) -> Result<EndedTrial> {
        self.switch(&trial.before, &mut notes).context("bringing the old network back").map_err(|error| {
            let hint = "Restart the machine: it comes up with the network of its node document.";
            Failure::new(Class::Network, "the old network is not back").because(error).hint(hint)
        })?;
        let ended = EndedTrial { how, notes };
        Trial::end(self.root, &ended)?;
        Ok(ended)
    }

    /// Puts the files of one side in place and makes NetworkManager apply them.
    fn switch(&self, side: &NetworkSide, notes: &mut Vec<String>) -> Result<()> {
        let mut changes = ProfileChanges::default();
        let root = Root::open(self.root)?;
        for TrialFile { path, mode, text } in &side.files {
            let existed = root.status(path)?.is_some();
            let wrote = match text {
                Some(text) => write(&root, &NodeFile::new(path, *mode, text.clone()))?,
                None => {
                    root.remove(path)?;
                    false
                }
            };
            if wrote {
                changes.wrote(path, existed);
            }
        }
        activate(&side.networks.alone(), &changes, self.runner, &mut |note| notes.push(note))
    }

    fn stop(&self, unit: &str) {
        // A unit that is not running need not be stopped; if it starts later, it finds nothing to do.
        let _ = self.runner.run(&Invocation::new("systemctl").args(["stop", unit]));
    }

    fn document(&self) -> PathBuf {
        below(self.root, DOCUMENT)
    }

    fn text(&self) -> Result<String> {
        files::read_text(&self.document()).class(Class::Invalid, || "reading the node document".to_owned())
    }

    fn lock(&self) -> Result<File> {
        let file = Root::open(self.root)?.lock_file(LOCK_FILE)?;
        file.lock().with_context(|| format!("locking /{LOCK_FILE}"))?;
        Ok(file)
    }
}

/// Refuses what must not be done during a trial on the node at `root`.
pub fn refuse_during(root: &Path) -> Result<()> {
    let Some(trial) = Trial::read(root)? else { return Ok(()) };
    let what = format!("a change of the network is on trial, for another {} seconds", trial.left(root)?);
    let hint = "Keep it with `installer network confirm`, or revert it with `installer network revert`.";
    Err(invalid(what).hint(hint).into())
}

fn holds(files: &[NodeFile], path: &str) -> bool {
    files.iter().any(|file| file.path == path)
}

fn side(file: NodeFile) -> TrialFile {
    TrialFile {
        path: file.path,
        mode: file.mode,
        text: Some(String::from_utf8_lossy(&file.bytes).into_owned()),
    }
}

/// What the user still has to do for the cluster after confirming.
fn restart(before: &InstallConfig, trial: &Trial) -> Option<String> {
    let member = ClusterMember::of(before)?;
    let [old, new] = [&trial.before, &trial.after].map(|side| side.networks.management_interface.clone());
    (old != new).then(|| {
        format!(
            "the cluster gets the new address when {unit} is restarted: systemctl restart {unit}",
            unit = member.unit
        )
    })
}

fn invalid(what: impl Into<String>) -> Failure {
    Failure::new(Class::Invalid, what)
}

fn none_under_way(root: &Path) -> anyhow::Error {
    let failure = invalid("no change of the network is on trial");
    match super::record::trial_status(root) {
        Ok(super::record::TrialStatus::Ended(ended)) => failure.because(anyhow::anyhow!("{ended}")).into(),
        _ => failure.hint("Begin one with: installer network try FILE").into(),
    }
}
