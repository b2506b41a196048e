//! The node whose stages are observed: what it is, and the facts about it.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::facts::NodeFacts;
use super::judge::stages;
use super::stage::Stage;
use crate::configuration::{ClusterMember, etcd_data, vip_in_words};
use crate::images::{self, BlobCount};
use crate::observation::neighbours::{self, RivalMachine};
use crate::observation::{ClusterView, UnitState, addresses};
use base::command::{Invocation, Runner};
use base::files::free_space;
use base::size::ByteSize;
use machine::installed_node::InstalledNode;
use machine::network::addresses::{self as network, WantedNetwork};
use machine::network::management_device;
use machine::nic_setup;
use machine::nics::MissingCards;
use machine::paths::{DOCUMENT, below};
use model::config::redact::Secrets;
use model::config::{Images, InstallConfig};
use model::release::Release;

/// For one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const JOURNAL_LINES_MAX: &str = "300";
/// Older errors belong to problems that have passed.
const JOURNAL_SINCE: &str = "-5min";

pub struct ObservedNode {
    /// The node as one of its cluster.
    pub member: ClusterMember,
    /// Its name in the cluster.
    pub name: Option<String>,
    config: InstallConfig,
    release: Release,
    secrets: Secrets,
}

impl std::fmt::Debug for ObservedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObservedNode({:?})", self.member)
    }
}

impl ObservedNode {
    /// The node at `root`; `None` if it has no cluster.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        Self::of(&InstalledNode::open(root)?)
    }

    /// An opened node; `None` if it has no cluster.
    pub fn of(node: &InstalledNode) -> Result<Option<Self>> {
        let Some(member) = ClusterMember::of(&node.config) else { return Ok(None) };
        let (name, release, secrets) = (node.hostname(), node.release()?, node.secrets());
        Ok(Some(Self { member, name, config: node.config.clone(), release, secrets }))
    }

    /// The node in lines: its part, the address of its cluster. The device of its address is the second value.
    #[must_use]
    pub fn describe(&self) -> (Vec<String>, Option<String>) {
        let Self { member, config, release, .. } = self;
        let role = config.install.node_role().beside(&format!("mode {}", config.install.mode.name()));
        let mut lines = vec![format!("{} {}: {role}", release.name, release.version)];
        let host = member.host.as_deref();
        let at = host.map(|host| format!(" at {}", member.supervisor(host))).unwrap_or_default();
        let vip = vip_in_words(config).map(|vip| format!(", VIP {vip}")).unwrap_or_default();
        lines.push(format!("Cluster: {}{at}{vip}", member.distribution.name()));
        (lines, management_device(config))
    }

    pub fn product(&self) -> String {
        let Release { name, version, .. } = &self.release;
        format!("{name} {version}")
    }

    /// What must be removed from reports.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Shows at every login which of the node's network cards are missing.
    pub fn show_missing_cards(&self, root: &Path, runner: &dyn Runner) -> Result<()> {
        nic_setup::show_missing(root, &self.config, runner).map(drop)
    }

    /// The current stages of the node. Takes some seconds if a server does not answer.
    #[must_use]
    pub fn look(&self, root: &Path, runner: &dyn Runner) -> Vec<Stage> {
        let install = &self.config.install;
        let (expected, present) = images::count(&self.release, install.own_role(), root);
        let (mut cluster, network, rival) = thread::scope(|scope| {
            let network = scope.spawn(|| {
                let addresses = addresses(runner);
                let rival = rival(runner, addresses.as_deref().unwrap_or_default());
                (addresses.and_then(|json| network::judge(&WantedNetwork::of(&self.config), &json)), rival)
            });
            let cluster = ClusterView::observe(root, &self.member, self.name.as_deref());
            let ended = |_| (Err("internal error: the observation ended early".to_owned()), None);
            let (network, rival) = network.join().unwrap_or_else(ended);
            (cluster, network, rival)
        });
        cluster.server = cluster.server.map_err(|why| self.with_holder(runner, why));
        let service = self.service(runner);
        let facts = NodeFacts {
            name: self.name.clone(),
            network,
            missing: MissingCards::on(root, &self.config, &below(root, DOCUMENT)),
            rival,
            journal: self.journal(runner, service.as_ref(), &cluster),
            cluster,
            service,
            space: self.space(root),
            images: BlobCount { expected, present, deferred: install.images() == Images::Defer },
        };
        let mut stages = stages(&self.member, &facts);
        for stage in &mut stages {
            stage.detail = self.secrets.hide(&stage.detail);
        }
        stages
    }

    /// Why the cluster does not answer at its address, and who has the address: it may be a machine that is no part of the cluster.
    fn with_holder(&self, runner: &dyn Runner, why: String) -> String {
        let address = self.member.host.as_deref().and_then(|host| host.parse().ok());
        match address.and_then(|address| neighbours::holder(runner, address)) {
            Some(machine) => {
                format!("{why}; the machine with the hardware address {machine} has the address")
            }
            None => why,
        }
    }

    /// The space left for etcd, in bytes; none on a node without etcd.
    fn space(&self, root: &Path) -> Option<u64> {
        let data = below(root, &etcd_data(self.member.distribution));
        let there =
            self.member.server.then(|| data.ancestors().find(|path| path.exists()).map(Path::to_owned))??;
        free_space(&there).ok().map(ByteSize::get)
    }

    /// The unit that the node is waiting for: that which makes it a member, until it has.
    fn service(&self, runner: &dyn Runner) -> Option<UnitState> {
        let joining = self.member.joining_unit.and_then(|unit| UnitState::read(runner, unit));
        let joining = joining.filter(|joining| joining.active != "active");
        joining.or_else(|| UnitState::read(runner, self.member.unit))
    }

    /// The last lines of the node's units. They are not read where nothing keeps the node from its cluster: reading them costs more
    /// than everything else here.
    ///
    /// Those of the unit that the node is waiting for come last, as if they were the newest: while a node is not a member, the kubelet writes
    /// many more, of what follows from that.
    fn journal(
        &self,
        runner: &dyn Runner,
        service: Option<&UnitState>,
        cluster: &ClusterView,
    ) -> Vec<String> {
        let ready = matches!(&cluster.node, Ok(Some(node)) if node.is_ready());
        let Some(service) = service.filter(|service| !(ready && service.active == "active")) else {
            return Vec::new();
        };
        let mut units: Vec<_> = self.member.joining_unit.into_iter().chain([self.member.unit]).collect();
        units.sort_by_key(|unit| *unit == service.unit);
        let lines = units.into_iter().flat_map(|unit| {
            let mut journal = Invocation::new("journalctl").limit(PROGRAM_TIMEOUT).args(["--unit", unit]);
            journal = journal.args(["--boot", "--lines", JOURNAL_LINES_MAX, "--output", "cat"]);
            journal = journal.args(["--no-pager", "--quiet"]);
            if service.active != "failed" {
                journal = journal.args(["--since", JOURNAL_SINCE]);
            }
            // Without a journal the state of the unit is used anyway.
            let lines = runner.run(&journal).unwrap_or_default();
            String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect::<Vec<_>>()
        });
        lines.collect()
    }
}

/// Another machine that answers for a virtual address which is here now.
fn rival(runner: &dyn Runner, addresses: &[u8]) -> Option<RivalMachine> {
    let mut held = network::virtual_addresses(addresses).into_iter();
    held.find_map(|(device, address)| neighbours::rival(runner, &device, address))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stages::{StageName, StageState};
    use std::fs;
    use testing::node::{node_programs, release_with_images as release, store_blobs as store};
    use testing::runner::ScriptedRunner;

    /// A node that is to join a cluster which does not answer.
    pub(crate) fn joining() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("oem")).unwrap();
        let document = "server_url: https://127.0.0.2\ntoken: marked-token\nos: {hostname: node-1}\n\
                        install: {mode: join, role: worker}\nkubernetes: {distribution: k3s}\n";
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        fs::write(root.path().join("oem/release.json"), release().to_bytes()).unwrap();
        store(root.path(), &[b"one", b"shared"]);
        root
    }

    #[test]
    fn a_node_that_cannot_join_is_described_by_its_programs_and_without_its_secrets() {
        let root = joining();
        let said = "time=\"t\" level=fatal msg=\"token marked-token is odd\"\n";
        let programs = node_programs("activating", said);
        let subject = ObservedNode::read(root.path()).unwrap().unwrap();
        assert_eq!(subject.name.as_deref(), Some("node-1"));
        let stages = subject.look(root.path(), &programs);
        let states: Vec<_> = stages.iter().map(|stage| (stage.name, stage.state)).collect();
        use {StageName as N, StageState as S};
        assert_eq!(
            states,
            [
                (N::Network, S::Done),
                (N::Server, S::Waiting),
                (N::Service, S::Waiting),
                (N::Images, S::Done),
                (N::Registered, S::Waiting),
                (N::Ready, S::Waiting)
            ]
        );
        let service = &stages[2].detail;
        assert!(service.starts_with("token [hidden] is odd; k3s-agent.service is activating"), "{service}");
        assert!(stages[1].detail.starts_with("https://127.0.0.2:6443 does not answer"), "{:?}", stages[1]);
        let asked = programs.commands().join("\n");
        assert!(asked.contains("--unit k3s-agent.service") && asked.contains("--since"), "{asked}");
        assert!(!asked.contains("marked-token"));
    }

    #[test]
    fn a_service_that_has_given_up_is_asked_for_older_words_too() {
        let root = joining();
        let programs = node_programs("failed", "");
        let subject = ObservedNode::read(root.path()).unwrap().unwrap();
        assert_eq!(subject.look(root.path(), &programs)[2].state, StageState::Failed);
        assert!(!programs.commands().join(" ").contains("--since"));
    }

    #[test]
    fn a_node_of_kubeadm_waits_for_the_unit_that_joins_it_and_then_for_its_kubelet() {
        let root = joining();
        let document = "server_url: https://127.0.0.2\ntoken: marked-token\nos: {hostname: node-1}\n\
                        install: {mode: join, role: worker}\nkubernetes: {distribution: kubeadm}\n";
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        let subject = ObservedNode::read(root.path()).unwrap().unwrap();
        for (joining, unit) in [
            ("activating", "nqrust-kubeadm.service is activating (start)"),
            ("failed", "nqrust-kubeadm.service is failed"),
            ("active", "kubelet.service is activating (start)"),
        ] {
            let unit_state = |active| format!("LoadState=loaded\nActiveState={active}\nSubState=start\n");
            let programs = ScriptedRunner::new()
                .answer("", unit_state("activating"))
                .answer("NRestarts nqrust-kubeadm.service", unit_state(joining));
            let stages = subject.look(root.path(), &programs);
            assert!(stages[2].detail.contains(unit), "{joining}: {:?}", stages[2]);
            assert!(
                stages[1].detail.starts_with("https://127.0.0.2:6443 does not answer"),
                "{:?}",
                stages[1]
            );
            let asked = programs.commands().join("\n");
            let place = |unit: &str| asked.find(&format!("journalctl --unit {unit} ")).expect(unit);
            let joins_last = place("kubelet.service") < place("nqrust-kubeadm.service");
            assert_eq!(joins_last, joining != "active", "{asked}");
        }
    }

    #[test]
    fn a_node_without_a_cluster_is_in_no_stage() {
        let root = joining();
        fs::write(root.path().join("oem/node.yaml"), "install: {mode: install}\n").unwrap();
        assert!(ObservedNode::read(root.path()).unwrap().is_none());
    }
}
