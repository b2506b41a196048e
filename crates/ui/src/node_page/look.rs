//! This node: its facts, and its actions.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;

use super::network::{PresentNetwork, Proposal};
use super::{Cluster, NodeControl, NodePageFacts, NodePageInput, NodeWork, Power};
use crate::answers::Answers;
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::causes;
use base::files;
use cluster::configuration::{ClusterMember, vip_in_words};
use cluster::stages::{self, readiness_watch};
use install::usb_stick::{self, StickSurvey, StickVolume};
use machine::arrays;
use machine::installed_node::InstalledNode;
use machine::inventory::{Inventory, Roots, directory_names, nics};
use machine::network::addresses::addresses;
use machine::paths::{DOCUMENT, below};
use model::config::InstallConfig;
use model::config::redact::without_secrets;
use model::config::sources::{CombinedConfig, Document, SourceKind, combine};
use node::network_trial::{EndedTrial, Networks, TrialEnding, TrialSpan, TrialStatus, Trials, trial_status};
use node::status::Status;
use reporting::archive;

/// Where support bundles are kept; readable by root only.
pub const BUNDLES: &str = "/var/lib/nqrust/support";
/// The name of the typed networks in messages.
const ANSWERS: &str = "the answers";
/// The largest support bundle that is kept in memory, in bytes.
const BUNDLE_BYTES_MAX: u64 = 256 << 20;
/// The limit for one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(20);
const JOURNAL_LINES_MAX: &str = "1000";

#[allow(missing_debug_implementations)]
pub struct ThisNode {
    root: PathBuf,
    runner: Box<dyn Runner>,
    /// The names of the disks and their descriptions: a scan reads from each disk, so it is repeated only for other disks.
    disks: Mutex<(Vec<String>, Vec<String>)>,
}

impl Default for ThisNode {
    fn default() -> Self {
        Self::new(Path::new("/"), Box::new(SystemRunner))
    }
}

impl ThisNode {
    /// The node at `root`, with `runner` for its programs.
    pub(super) fn new(root: &Path, runner: Box<dyn Runner>) -> Self {
        Self { root: root.to_owned(), runner, disks: Mutex::default() }
    }

    fn node(&self) -> Result<InstalledNode> {
        InstalledNode::open(&self.root)
    }

    fn trials(&self) -> Trials<'_> {
        Trials::new(&self.root, &*self.runner)
    }

    /// The kernel's names of all block devices that are no partitions.
    fn devices(&self) -> Vec<String> {
        directory_names(&self.root.join("sys/block"))
    }

    fn inventory(&self) -> Result<Inventory> {
        Inventory::scan(&Roots::below(&self.root))
    }

    fn disks(&self) -> Vec<String> {
        let devices = self.devices();
        let Ok(mut known) = self.disks.lock() else { return Vec::new() };
        if known.0 != devices {
            let described = match self.inventory() {
                Ok(found) => {
                    let disks = found.disks.iter().filter(|disk| !disk.optical);
                    disks.map(|disk| disk.describe()).collect()
                }
                Err(error) => vec![format!("could not be read: {error}")],
            };
            *known = (devices, described);
        }
        known.1.clone()
    }

    /// Writes a support bundle to a directory.
    fn collect(&self, directory: &str) -> Result<PathBuf> {
        let node = self.node();
        let unknown = |error: &anyhow::Error| format!("not known: {error:#}\n");
        let of_node = |text: &dyn Fn(&InstalledNode) -> Result<String>| match &node {
            Ok(node) => text(node).unwrap_or_else(|error| unknown(&error)),
            Err(error) => unknown(error),
        };
        let inventory = serde_json::to_string_pretty(&self.inventory()?)?;
        let files = vec![
            ("status.txt", of_node(&|node| Ok(Status::gather_running(node, &*self.runner)?.to_string()))),
            ("configuration.yaml", of_node(&|node| Ok(without_secrets(&node.config)))),
            ("inventory.json", inventory),
        ];
        let hide = |text: &str| hide(node.as_ref().ok(), text);
        archive::bundle(files, &hide, &*self.runner, &below(&self.root, directory))
    }

    pub(super) fn look(&self) -> Result<NodePageFacts> {
        let node = self.node()?;
        let status = Status::gather_running(&node, &*self.runner)?;
        let config = node.config;
        let cluster = ClusterMember::of(&config).map(|member| cluster(&config, &member));
        let addresses = addresses(Some(&config), &*self.runner);
        Ok(NodePageFacts { status, addresses, cluster, disks: self.disks() })
    }

    pub(super) fn logs(&self) -> Result<Vec<String>> {
        let journal = Invocation::new("journalctl")
            .args(["--boot", "--no-pager", "--quiet", "--output=short-iso", "--lines", JOURNAL_LINES_MAX])
            .limit(PROGRAM_TIMEOUT);
        let text = self.runner.run(&journal)?;
        let text = hide(self.node().as_ref().ok(), &String::from_utf8_lossy(&text));
        Ok(text.lines().map(str::to_owned).collect())
    }

    pub(super) fn sticks(&self) -> Result<StickSurvey> {
        Ok(StickSurvey::of(&self.inventory()?, &[]))
    }

    pub(super) fn bundle(&self, volume: Option<&StickVolume>) -> Result<String> {
        let Some(volume) = volume else {
            let path = self.collect(BUNDLES)?;
            return Ok(format!("The support bundle is in {}, readable by root only.", path.display()));
        };
        // The disks of the node may be broken: nothing here touches them.
        let path = self.collect(archive::DIRECTORY)?;
        let content = files::read_at_most(&path, BUNDLE_BYTES_MAX);
        let _ = fs::remove_file(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        usb_stick::write(volume, &name, &content?, &self.inventory()?, &[])?;
        Ok(format!("{name} is on {}. The stick can be pulled out.", volume.describe()))
    }

    pub(super) fn power(&self, power: Power) -> Result<String> {
        let what = match power {
            Power::Restart => "reboot",
            Power::Off => "poweroff",
        };
        self.runner.run(&Invocation::new("systemctl").arg(what).limit(PROGRAM_TIMEOUT))?;
        Ok("The machine is being stopped.".to_owned())
    }

    pub(super) fn network(&self) -> Result<PresentNetwork> {
        let text = files::read_text(&below(&self.root, DOCUMENT))?;
        let found = combine(&[Document::yaml(SourceKind::File, DOCUMENT, text)])?;
        // Every value is from the document, which need not be shown at each.
        let answers = Answers::on(&CombinedConfig { entries: Vec::new(), ..found });
        Ok(PresentNetwork { answers, nics: self.inventory()?.nics })
    }

    pub(super) fn propose(&self, networks: &Networks) -> Result<Proposal> {
        let trials = self.trials();
        let change = trials.change(&networks.to_yaml(), ANSWERS)?;
        let concerns = change.concerns(&trials.present());
        let grave = concerns.iter().any(|concern| concern.grave);
        let remarks = change.remarks.iter().map(|remark| format!("{}: {}", remark.path, remark.message));
        let warnings = concerns.into_iter().map(|concern| concern.text).chain(remarks).collect();
        let differences: Vec<_> = change.differences().iter().map(ToString::to_string).collect();
        anyhow::ensure!(!differences.is_empty(), "nothing is changed");
        Ok(Proposal { networks: networks.clone(), differences, warnings, grave })
    }

    pub(super) fn try_networks(&self, networks: &Networks, accepted: bool) -> Result<()> {
        let trials = self.trials();
        trials.begin(&trials.change(&networks.to_yaml(), ANSWERS)?, TrialSpan::USUAL, accepted)
    }

    fn confirm(&self) -> Result<String> {
        let warnings = self.trials().confirm()?.warnings;
        let notes = warnings.iter().map(|warning| format!("warning: {warning}")).collect();
        Ok(EndedTrial { how: TrialEnding::Confirmed, notes }.to_string())
    }

    fn revert(&self) -> Result<String> {
        self.trials().revert(false).map(|ended| ended.to_string())
    }
}

impl NodeControl for ThisNode {
    fn signs(&self) -> String {
        let seen = fs::read_to_string(below(&self.root, readiness_watch::SEEN)).unwrap_or_default();
        let cards = nics::scan(&self.root.join("sys")).into_iter().map(|nic| nic.name);
        let cards: Vec<_> = cards.collect();
        let mut signs = format!("{seen}\n{}\n{}", self.devices().join(" "), cards.join(" "));
        for array in arrays::arrays(&self.root) {
            let _ = write!(signs, "\n{array}");
        }
        signs
    }

    fn trial(&self) -> TrialStatus {
        // An unreadable record is no trial that this console could end.
        trial_status(&self.root).unwrap_or_default()
    }

    fn carry_out(&self, work: NodeWork) -> NodePageInput {
        match work {
            NodeWork::Look => NodePageInput::Seen(one_line(self.look().map(Box::new))),
            NodeWork::Logs => NodePageInput::Logs(one_line(self.logs())),
            NodeWork::Sticks => NodePageInput::Sticks(one_line(self.sticks())),
            NodeWork::Bundle(volume) => NodePageInput::Done(one_line(self.bundle(volume.as_ref()))),
            NodeWork::Power(power) => NodePageInput::Done(one_line(self.power(power))),
            NodeWork::Network => NodePageInput::Network(one_line(self.network().map(Box::new))),
            NodeWork::Propose(networks) => {
                NodePageInput::Proposed(one_line(self.propose(&networks).map(Box::new)))
            }
            NodeWork::Try(networks, accepted) => {
                NodePageInput::Began(one_line(self.try_networks(&networks, accepted)))
            }
            NodeWork::Confirm => NodePageInput::Done(one_line(self.confirm())),
            NodeWork::Revert => NodePageInput::Done(one_line(self.revert())),
        }
    }
}

/// A text without the secrets of the node; a node without a readable document has none that are known.
fn hide(node: Option<&InstalledNode>, text: &str) -> String {
    let secrets = node.map(InstalledNode::secrets).unwrap_or_default();
    stages::without_tokens(&secrets.hide(text))
}

/// A result with its error in one line.
fn one_line<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|error| causes(&error).join(": "))
}

/// The cluster of a node, from its document and from the services that answer.
fn cluster(config: &InstallConfig, member: &ClusterMember) -> Cluster {
    let host = member.host.as_deref();
    Cluster {
        distribution: member.distribution.name(),
        address: host.map(|host| member.supervisor(host)),
        vip: vip_in_words(config),
        management: host.map(|host| format!("https://{host}/")).filter(|url| stages::serves(url)),
    }
}
