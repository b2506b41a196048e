//! Decides whether a node may leave its cluster for a restart, without effects.
//!
//! The node has the cluster's lock ([`super::lock`]) meanwhile. The lock alone is not enough: it expires, because its holder may be
//! gone. So the state of the nodes is checked each time.

use jiff::{SignedDuration, Timestamp};

use super::report::ReportedState;
use crate::certificates::CertificateEnd;
use base::digest::Digest;

/// For so long the certificates of a node that leaves have to be good: it has to come back, and a rollout is longer than one node.
const CERTIFICATE_TIME: SignedDuration = SignedDuration::from_hours(24);

/// In the order of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RolloutPart {
    /// Has a control plane, and a member of etcd.
    Server,
    /// Has a member of etcd alone.
    Witness,
    Worker,
}

impl RolloutPart {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Witness => "witness",
            Self::Worker => "worker",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateNode {
    pub name: String,
    pub part: RolloutPart,
    pub ready: bool,
    /// Whether it was cordoned for an update.
    pub leaving: bool,
    /// What it has reported of its updates, if it has.
    pub state: Option<ReportedState>,
    /// The release that this state is about.
    pub about: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateMember {
    /// That of its node, which may have a suffix behind a `-` (RKE2, K3s); empty for one that has never run.
    pub name: String,
    pub votes: bool,
    pub healthy: bool,
}

/// A virtual machine on this node that would block its drain for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundMachine {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub why: String,
}

/// A volume that would lose its last whole replica with this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedVolume {
    /// `NAMESPACE/NAME` of its claim, or its own name.
    pub name: String,
    /// Whether another replica is being made, so that it may pass.
    pub rebuilds: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateView {
    pub nodes: Vec<GateNode>,
    /// The members of etcd, where the node can ask for them; else what its servers are as nodes has to do.
    pub etcd: Option<Vec<GateMember>>,
    /// The node that has the lock of the cluster's updates, or has stopped them.
    pub holder: Option<String>,
    pub bound: Vec<BoundMachine>,
    pub stranded: Vec<StrandedVolume>,
    /// The certificate of the node itself that ends before its others.
    pub certificate: Option<CertificateEnd>,
}

#[derive(Clone, Copy, Debug)]
pub struct DepartingNode<'a> {
    pub name: &'a str,
    pub now: Timestamp,
    /// The release that it would start.
    pub release: Digest,
    /// Whether to go on where this release was taken back on another node.
    pub retry: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// A clause.
    pub why: String,
    /// Whether it may go away by itself.
    pub passes: bool,
}

impl Obstacle {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), passes: true }
    }

    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), passes: false }
    }
}

/// Empty if the node may leave.
#[must_use]
pub fn obstacles(cluster: &GateView, leaver: DepartingNode<'_>) -> Vec<Obstacle> {
    let Some(own) = cluster.nodes.iter().find(|node| node.name == leaver.name) else {
        return vec![Obstacle::lasting(format!("the cluster has no node {}", leaver.name))];
    };
    let others = || cluster.nodes.iter().filter(|node| node.name != leaver.name);
    let counted = others().filter_map(|node| counted(cluster, node, own.part));
    let mut found: Vec<_> = counted.filter_map(|node| obstacle(&node, own.part, leaver)).collect();
    let members = cluster.etcd.iter().flatten().filter(|member| !is_of(member, own));
    found.extend(members.filter_map(unfit));
    let ends = cluster.certificate.iter().filter(|end| end.is_within(CERTIFICATE_TIME, leaver.now));
    found.extend(ends.map(|end| Obstacle::lasting(end.to_string())));
    found.extend(cluster.bound.iter().map(|BoundMachine { name, why }| {
        Obstacle::lasting(format!("the virtual machine {name} cannot leave this node: {why}"))
    }));
    found.extend(cluster.stranded.iter().map(|StrandedVolume { name, rebuilds }| {
        let why = format!("no other node has a whole replica of the volume {name}");
        if *rebuilds { Obstacle::passing(why + ", one is being made") } else { Obstacle::lasting(why) }
    }));
    found
}

/// What workers report that would keep the node from leaving, and does not: clauses that say why. A kubelet writes what it likes into
/// its own Node, and one worker whose kubelet is in other hands would stop the updates of all.
#[must_use]
pub fn disregarded(cluster: &GateView, leaver: DepartingNode<'_>) -> Vec<String> {
    let Some(own) = cluster.nodes.iter().find(|node| node.name == leaver.name) else { return Vec::new() };
    let others = cluster.nodes.iter().filter(|node| node.name != leaver.name);
    let ignored = |node: &GateNode| {
        let whole = obstacle(node, own.part, leaver)?;
        let rest = counted(cluster, node, own.part).and_then(|node| obstacle(&node, own.part, leaver));
        let reason = match own.part {
            RolloutPart::Worker => {
                "a worker's report counts only while it has the lock of the cluster's updates"
            }
            RolloutPart::Server | RolloutPart::Witness => "workers do not hold up servers and the witness",
        };
        (rest.as_ref() != Some(&whole)).then(|| format!("{} ({reason})", whole.why))
    };
    others.filter_map(ignored).collect()
}

/// A node with as much of its state as counts for a leaver of the part `own`; none if nothing does.
///
/// Members of etcd are believed: they have the cluster's data anyway. So is a worker that has the lock, which takes the access of an
/// administrator. Whether any other worker is ready is for workers alone, for whom the cluster has to have room.
fn counted(cluster: &GateView, node: &GateNode, own: RolloutPart) -> Option<GateNode> {
    match (node.part, own) {
        (RolloutPart::Worker, RolloutPart::Server | RolloutPart::Witness) => None,
        (RolloutPart::Worker, RolloutPart::Worker) if cluster.holder.as_ref() != Some(&node.name) => {
            Some(GateNode { state: None, leaving: false, ..node.clone() })
        }
        _ => Some(node.clone()),
    }
}

/// The gravest obstacle at another node.
fn obstacle(node: &GateNode, own: RolloutPart, leaver: DepartingNode<'_>) -> Option<Obstacle> {
    let GateNode { name, part, ready, leaving, state, about } = node;
    let same = *about == Some(leaver.release);
    match state {
        Some(ReportedState::RolledBack) if same && !leaver.retry => {
            return Some(Obstacle::lasting(format!("the release was taken back on {name}")));
        }
        Some(ReportedState::Trial) => {
            return Some(Obstacle::passing(format!("{name} runs a release on trial")));
        }
        Some(ReportedState::PendingReboot) => {
            return Some(Obstacle::passing(format!("{name} is about to restart into a release")));
        }
        _ => {}
    }
    if !ready {
        return Some(Obstacle::passing(format!("{name} is not ready")));
    }
    if *leaving {
        return Some(Obstacle::passing(format!("{name} is cordoned for an update")));
    }
    let runs = same && matches!(state, Some(ReportedState::Idle | ReportedState::Good));
    (*part < own && !runs).then(|| {
        let before = match part {
            RolloutPart::Server => "servers come first",
            RolloutPart::Witness | RolloutPart::Worker => "the witness comes first",
        };
        Obstacle::passing(format!("{before}, and {name} does not run the release yet"))
    })
}

fn is_of(member: &GateMember, node: &GateNode) -> bool {
    let suffix = member.name.strip_prefix(&node.name);
    suffix.is_some_and(|suffix| {
        suffix.is_empty() || suffix.strip_prefix('-').is_some_and(|id| !id.contains('-'))
    })
}

fn unfit(member: &GateMember) -> Option<Obstacle> {
    let name = if member.name.is_empty() { "that has never run" } else { &member.name };
    match (member.votes, member.healthy) {
        (false, _) => Some(Obstacle::passing(format!("the member {name} of etcd has no vote yet"))),
        (true, false) => Some(Obstacle::passing(format!("the member {name} of etcd is not healthy"))),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::tests as certificates;
    use RolloutPart::{Server, Witness, Worker};
    use model::config::Distribution;

    fn new() -> Digest {
        Digest::of(b"new")
    }

    fn node(name: &str, part: RolloutPart, state: ReportedState, about: &[u8]) -> GateNode {
        GateNode {
            name: name.into(),
            part,
            ready: true,
            leaving: false,
            state: Some(state),
            about: Some(Digest::of(about)),
        }
    }

    fn member(name: &str) -> GateMember {
        GateMember { name: name.into(), votes: true, healthy: true }
    }

    fn told(cluster: &GateView, name: &str, retry: bool) -> Vec<(String, bool)> {
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        let found = obstacles(cluster, DepartingNode { name, now, release: new(), retry });
        found.into_iter().map(|obstacle| (obstacle.why, obstacle.passes)).collect()
    }

    #[test]
    fn another_node_decides_by_its_state_readiness_and_part() {
        use ReportedState::*;
        let old = b"old".as_slice();
        let other = |state, about| node("n2", Server, state, about);
        let cases = [
            (other(Idle, old), None),
            (other(Good, b"new"), None),
            (other(Staged, b"new"), None),
            (other(Failed, b"new"), None),
            (other(Trial, b"new"), Some(("n2 runs a release on trial", true))),
            (other(Trial, old), Some(("n2 runs a release on trial", true))),
            (other(PendingReboot, b"new"), Some(("n2 is about to restart into a release", true))),
            (other(RolledBack, b"new"), Some(("the release was taken back on n2", false))),
            (other(RolledBack, old), None),
            (GateNode { ready: false, ..other(Good, b"new") }, Some(("n2 is not ready", true))),
            (GateNode { leaving: true, ..other(Good, b"new") }, Some(("n2 is cordoned for an update", true))),
            (GateNode { state: None, about: None, ..other(Idle, old) }, None),
        ];
        for (other, expected) in cases {
            let nodes = vec![node("n1", Server, Idle, old), other.clone()];
            let cluster = GateView { nodes, ..GateView::default() };
            let found = told(&cluster, "n1", false);
            assert_eq!(found.first().map(|(why, passes)| (why.as_str(), *passes)), expected, "{other:?}");
            assert!(found.len() <= 1);
        }
    }

    #[test]
    fn a_worker_holds_up_no_server_and_no_other_worker_unless_it_has_the_lock() {
        use ReportedState::*;
        let good = |name, part| node(name, part, Good, b"new");
        let states = [Trial, PendingReboot, RolledBack].map(|state| node("k2", Worker, state, b"new"));
        let [trial, ..] = states.clone();
        let gone = GateNode { ready: false, ..good("k2", Worker) };
        let cordoned = GateNode { leaving: true, ..good("k2", Worker) };
        let now = Timestamp::UNIX_EPOCH;
        for worker in states.into_iter().chain([gone.clone(), cordoned]) {
            let nodes = vec![good("s", Server), good("w", Witness), good("k", Worker), worker.clone()];
            let cluster = GateView { nodes, ..GateView::default() };
            for name in ["s", "w", "k"] {
                let expected = usize::from(name == "k" && !worker.ready);
                assert_eq!(told(&cluster, name, false).len(), expected, "{name}: {worker:?}");
                let leaver = DepartingNode { name, now, release: new(), retry: false };
                let doubts = disregarded(&cluster, leaver);
                assert_eq!(doubts.len(), 1 - expected, "{name}: {doubts:?}");
                assert!(
                    doubts.iter().all(|doubt| doubt.contains("k2 ") || doubt.contains("on k2")),
                    "{doubts:?}"
                );
            }
            // An administrator's access made it the holder.
            let holder = GateView { holder: Some("k2".into()), ..cluster };
            assert_eq!(told(&holder, "k", false).len(), 1, "{worker:?}");
            assert_eq!(told(&holder, "s", false), [], "the lock itself is another question");
        }
        // Members of etcd are believed.
        let server = GateNode { name: "s2".into(), part: Server, ..trial };
        let nodes = vec![good("s", Server), good("k", Worker), server];
        let cluster = GateView { nodes, ..GateView::default() };
        for name in ["s", "k"] {
            assert!(!told(&cluster, name, false).is_empty());
            let leaver = DepartingNode { name, now, release: new(), retry: false };
            assert_eq!(disregarded(&cluster, leaver), [""; 0]);
        }
    }

    #[test]
    fn a_release_that_was_taken_back_elsewhere_is_tried_again_only_when_asked() {
        let nodes = vec![
            node("n1", Server, ReportedState::RolledBack, b"new"),
            node("n2", Server, ReportedState::Idle, b"old"),
        ];
        let cluster = GateView { nodes, ..GateView::default() };
        assert_eq!(told(&cluster, "n2", true), []);
        assert_eq!(told(&cluster, "n1", false), [], "what it was on the node itself is another question");
    }

    #[test]
    fn the_witness_waits_for_servers_and_workers_wait_for_both() {
        let good = |name, part| node(name, part, ReportedState::Good, b"new");
        let old = |name, part| node(name, part, ReportedState::Idle, b"old");
        let cluster = |nodes| GateView { nodes, ..GateView::default() };
        let all = cluster(vec![old("s1", Server), good("s2", Server), old("w", Witness), old("k", Worker)]);
        assert_eq!(told(&all, "s1", false), []);
        let first = ("servers come first, and s1 does not run the release yet".to_owned(), true);
        assert_eq!(told(&all, "w", false), std::slice::from_ref(&first));
        let witness = ("the witness comes first, and w does not run the release yet".to_owned(), true);
        assert_eq!(told(&all, "k", false), [first, witness]);
        let rest = cluster(vec![good("s1", Server), good("w", Witness), old("k", Worker), old("k2", Worker)]);
        assert_eq!(told(&rest, "k", false), []);
        let silent = GateNode { state: None, about: None, ..old("s1", Server) };
        assert_eq!(told(&cluster(vec![silent, old("k", Worker)]), "k", false).len(), 1);
    }

    #[test]
    fn every_other_member_of_etcd_is_a_healthy_voter() {
        let nodes = vec![node("n1", Server, ReportedState::Idle, b"old")];
        let with = |members: Vec<GateMember>| GateView {
            nodes: nodes.clone(),
            etcd: Some(members),
            ..GateView::default()
        };
        let broken = |name| GateMember { healthy: false, ..member(name) };
        assert_eq!(told(&with(vec![broken("n1"), member("n2")]), "n1", false), [], "its own may be broken");
        assert_eq!(told(&with(vec![broken("n1-3f2a91c0")]), "n1", false), [], "as RKE2 and K3s name them");
        let found = told(&with(vec![member("n1"), broken("n1-b-3f2a91c0")]), "n1", false);
        assert_eq!(found, [("the member n1-b-3f2a91c0 of etcd is not healthy".to_owned(), true)]);
        let learner = GateMember { votes: false, ..member("n2") };
        let found = told(&with(vec![member("n1"), learner]), "n1", false);
        assert_eq!(found, [("the member n2 of etcd has no vote yet".to_owned(), true)]);
        let unstarted = GateMember { healthy: false, ..member("") };
        assert_eq!(told(&with(vec![unstarted]), "n1", false).len(), 1);
    }

    #[test]
    fn machines_that_cannot_leave_and_unknown_nodes_do_not_pass() {
        let nodes = vec![node("n1", Worker, ReportedState::Idle, b"old")];
        let bound = vec![BoundMachine { name: "shop/db".into(), why: "it has a PCI device".into() }];
        let cluster = GateView { nodes, bound, ..GateView::default() };
        let why = "the virtual machine shop/db cannot leave this node: it has a PCI device".to_owned();
        assert_eq!(told(&cluster, "n1", true), [(why, false)]);
        assert_eq!(told(&cluster, "n9", true), [("the cluster has no node n9".to_owned(), false)]);
    }

    #[test]
    fn a_volume_whose_other_replica_is_being_made_is_waited_for() {
        let nodes = vec![node("n1", Worker, ReportedState::Idle, b"old")];
        let with = |rebuilds| {
            let stranded = vec![StrandedVolume { name: "shop/data".into(), rebuilds }];
            told(&GateView { nodes: nodes.clone(), stranded, ..GateView::default() }, "n1", true)
        };
        let why = "no other node has a whole replica of the volume shop/data";
        assert_eq!(with(false), [(why.to_owned(), false)]);
        assert_eq!(with(true), [(format!("{why}, one is being made"), true)]);
    }

    #[test]
    fn a_certificate_that_ends_within_a_day_closes_the_gate() {
        for (day, closed) in [(1, true), (2, true), (3, false)] {
            let root = tempfile::tempdir().unwrap();
            let path = "/var/lib/rancher/rke2/server/tls/client-admin.crt";
            certificates::put(root.path(), path, &certificates::until(day));
            let nodes = vec![node("n1", Worker, ReportedState::Idle, b"old")];
            let certificate = CertificateEnd::first(root.path(), Distribution::Rke2);
            let cluster = GateView { nodes, certificate, ..GateView::default() };
            let found = told(&cluster, "n1", true);
            assert_eq!(found.len(), usize::from(closed), "{found:?}");
            let lasts = |(why, passes): &(String, bool)| why.contains("client-admin.crt") && !passes;
            assert!(found.iter().all(lasts), "{found:?}");
        }
    }
}
