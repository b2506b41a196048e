//! Rollouts over clusters that nobody has: nodes of random parts and number, which ask in a random order, fail at random, are lost, and
//! of which one may take the release back. What decides is what decides on a node: [`obstacles`] and [`RolloutLock::decide`].

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::gate::{DepartingNode, GateMember, GateNode, GateView, RolloutPart, obstacles};
use super::lock::{LockDecision, RolloutLock};
use super::report::ReportedState;
use base::digest::Digest;
use testing::numbers::Numbers;

const CLUSTERS: u64 = 400;
const STEPS: usize = 20_000;
const LOCK_TIME: SignedDuration = SignedDuration::from_mins(90);

#[derive(Clone, Debug)]
struct SimulatedNode {
    seen: GateNode,
    /// Steps until it is back from its restart; none while it runs.
    away: Option<usize>,
    /// Steps until a failure that has nothing to do with the update is over.
    failed: usize,
    /// It is gone for good, with whatever it holds.
    lost: bool,
    departures: usize,
}

struct Simulation {
    nodes: Vec<SimulatedNode>,
    lock: RolloutLock,
    now: Timestamp,
    numbers: Numbers,
    version: u64,
    /// The node on which the release is bad.
    bad: Option<usize>,
    /// The node that is lost while it is away.
    loses: Option<usize>,
    order: Vec<RolloutPart>,
}

fn target() -> Digest {
    Digest::of(b"new")
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let (servers, witness) = [(1, 0), (2, 0), (2, 1), (3, 0), (5, 0)][numbers.below(5)];
        let workers = numbers.below(5);
        let parts = std::iter::repeat_n(RolloutPart::Server, servers)
            .chain(std::iter::repeat_n(RolloutPart::Witness, witness))
            .chain(std::iter::repeat_n(RolloutPart::Worker, workers));
        let node = |(number, part)| SimulatedNode {
            seen: GateNode {
                name: format!("node-{number}"),
                part,
                ready: true,
                leaving: false,
                state: Some(ReportedState::Idle),
                about: Some(Digest::of(b"old")),
            },
            away: None,
            failed: 0,
            lost: false,
            departures: 0,
        };
        let nodes: Vec<_> = parts.enumerate().map(node).collect();
        let count = nodes.len();
        let bad = (numbers.below(3) == 0).then(|| numbers.below(count));
        let loses = (numbers.below(4) == 0 && bad.is_none()).then(|| numbers.below(count));
        let now = "2026-03-02T10:00:00Z".parse().unwrap();
        let lock = RolloutLock::absent();
        Self { nodes, lock, now, numbers, version: 0, bad, loses, order: Vec::new() }
    }

    fn has_member(node: &SimulatedNode) -> bool {
        node.seen.part != RolloutPart::Worker
    }

    fn runs(node: &SimulatedNode) -> bool {
        !node.lost && node.away.is_none() && node.failed == 0
    }

    /// What a node sees. Those that run workers only cannot ask etcd.
    fn seen_by(&self, asker: usize) -> GateView {
        let seen = |node: &SimulatedNode| GateNode { ready: Self::runs(node), ..node.seen.clone() };
        let members = self.nodes.iter().filter(|node| Self::has_member(node)).map(|node| GateMember {
            name: node.seen.name.clone(),
            votes: true,
            healthy: Self::runs(node),
        });
        GateView {
            nodes: self.nodes.iter().map(seen).collect(),
            etcd: Self::has_member(&self.nodes[asker]).then(|| members.collect()),
            holder: self.lock.holder.clone(),
            ..GateView::default()
        }
    }

    fn write_lock(&mut self, mut lease: serde_json::Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lock = RolloutLock::read(&lease);
    }

    /// A node asks as `installer update apply --drain self` does.
    fn ask(&mut self, number: usize) {
        let name = self.nodes[number].seen.name.clone();
        if self.lock.decide(&name, target(), false, self.now) != LockDecision::Take {
            return;
        }
        self.write_lock(self.lock.taken(&name, target(), LOCK_TIME, self.now));
        let leaver =
            DepartingNode { name: &name, now: Timestamp::UNIX_EPOCH, release: target(), retry: false };
        if !obstacles(&self.seen_by(number), leaver).is_empty() {
            self.write_lock(self.lock.free());
            return;
        }
        let members_away = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(other, node)| *other != number && Self::has_member(node) && !Self::runs(node));
        assert_eq!(members_away.count(), 0, "a member of etcd is away when {name} leaves");
        let away = 1 + self.numbers.below(20);
        let node = &mut self.nodes[number];
        node.departures += 1;
        node.away = Some(away);
        node.seen.leaving = true;
        node.seen.state = Some(ReportedState::PendingReboot);
        node.seen.about = Some(target());
        self.order.push(node.seen.part);
    }

    fn come_back(&mut self, number: usize) {
        let name = self.nodes[number].seen.name.clone();
        let bad = self.bad == Some(number);
        let node = &mut self.nodes[number];
        node.away = None;
        node.seen.leaving = false;
        node.seen.state = Some(if bad { ReportedState::RolledBack } else { ReportedState::Good });
        if self.lock.is_held_by(&name) || bad && self.lock.holder.is_none() {
            let lease = match bad {
                true => self.lock.stopped(&name, target(), "it hung", self.now),
                false => self.lock.free(),
            };
            self.write_lock(lease);
        }
    }

    fn step(&mut self) {
        self.now += SignedDuration::from_mins(i64::try_from(1 + self.numbers.below(6)).unwrap());
        let number = self.numbers.below(self.nodes.len());
        match self.nodes[number].away {
            _ if self.nodes[number].lost => {
                // Somebody notices, and deletes it from the cluster.
                if self.numbers.below(200) == 0 {
                    self.nodes.remove(number);
                    self.bad = None;
                }
            }
            Some(_) if self.loses == Some(number) => {
                self.loses = None;
                self.nodes[number].lost = true;
            }
            Some(0) => self.come_back(number),
            Some(left) => self.nodes[number].away = Some(left - 1),
            None if self.nodes[number].failed > 0 => self.nodes[number].failed -= 1,
            None if self.numbers.below(12) == 0 => {
                self.nodes[number].failed = 1 + self.numbers.below(5);
            }
            None if self.is_done(number) => {}
            None => self.ask(number),
        }
        let away = self.nodes.iter().filter(|node| node.away.is_some() && !node.lost).count();
        assert!(away <= 1, "{away} nodes are away for the update");
    }

    /// Whether the node has no reason to ask: it runs the release, or has taken it back.
    fn is_done(&self, number: usize) -> bool {
        let state = self.nodes[number].seen.state;
        matches!(state, Some(ReportedState::Good | ReportedState::RolledBack))
    }

    fn is_over(&self) -> bool {
        let all = (0..self.nodes.len()).all(|number| self.is_done(number));
        all && self.nodes.iter().all(|node| !node.lost)
    }
}

#[test]
fn every_node_is_updated_once_in_order_and_a_rollback_ends_the_rollout() {
    let (mut stopped, mut whole, mut lost) = (0, 0, 0);
    for seed in 1..=CLUSTERS {
        let mut cluster = Simulation::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (bad, loses) = (cluster.bad, cluster.loses);
        let (mut after, mut idle) = (None, 0);
        for _ in 0..STEPS {
            cluster.step();
            let rolled_back = |node: &SimulatedNode| node.seen.state == Some(ReportedState::RolledBack);
            if after.is_none() && cluster.nodes.iter().any(rolled_back) {
                after = Some(cluster.order.len());
            }
            idle += usize::from(after.is_some());
            if cluster.is_over() || idle > 2000 {
                break;
            }
        }
        assert!(cluster.order.is_sorted(), "{seed}: servers, the witness, workers: {:?}", cluster.order);
        for node in &cluster.nodes {
            assert!(node.departures <= 1, "{seed}: {node:?} was updated twice");
        }
        if bad.is_some() {
            assert_eq!(after, Some(cluster.order.len()), "{seed}: nobody leaves after a rollback");
            stopped += 1;
        } else {
            assert!(cluster.is_over(), "{seed}: it does not end: {:?}", cluster.nodes);
            assert!(cluster.nodes.iter().all(|node| node.departures == 1), "{seed}: {:?}", cluster.nodes);
            whole += 1;
            lost += u32::from(loses.is_some() && cluster.loses.is_none());
        }
    }
    assert!(stopped >= 100 && whole >= 200 && lost >= 30, "{stopped} {whole} {lost}");
}

#[test]
fn without_the_gate_or_without_the_lock_the_simulation_would_notice() {
    // The lock alone: another member of etcd has failed, and nobody looks.
    let mut cluster = Simulation::new(1);
    cluster.nodes.truncate(1);
    let other = SimulatedNode {
        seen: GateNode { name: "other".into(), ..cluster.nodes[0].seen.clone() },
        failed: 5,
        ..cluster.nodes[0].clone()
    };
    cluster.nodes.push(other);
    let name = cluster.nodes[0].seen.name.clone();
    let leaver = DepartingNode { name: &name, now: Timestamp::UNIX_EPOCH, release: target(), retry: false };
    assert_eq!(cluster.lock.decide(&name, target(), false, cluster.now), LockDecision::Take);
    assert_eq!(obstacles(&cluster.seen_by(0), leaver).len(), 2, "the node, and its member of etcd");
    // The gate alone: of two nodes that look at once, each sees the other as it was.
    cluster.nodes[1].failed = 0;
    assert_eq!(obstacles(&cluster.seen_by(0), leaver), []);
    cluster.write_lock(cluster.lock.taken("other", target(), LOCK_TIME, cluster.now));
    let decision = cluster.lock.decide(&name, target(), false, cluster.now);
    assert_eq!(decision, LockDecision::Busy { holder: "other".into() });
}
