//! The checks of a node that joins, against a double of the cluster's servers.

mod admission;
mod kubeadm;
mod nodes;
mod servers;
mod trust;
mod wait;

use std::os::fd::{AsRawFd, IntoRawFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, socket};
use testing::supervisor::{Authorities, Supervisor, SupervisorBehavior};

use super::*;
use crate::SystemNetwork;
use crate::planned_node::PlannedJoin;
use base::digest::Digest;
use cluster::join_query::Ports;
use model::config::{Distribution, Role, Secret};

/// What nobody else may see.
const SERVER: &str = "hush-of-servers";
const AGENT: &str = "hush-of-agents";
/// Of [`Machine::fit`].
const UUID: &str = "4C4C4544-0042-3510-8052-B4C04F4A5A32";

/// A cluster's keys, and where they are.
struct Keys {
    _directory: tempfile::TempDir,
    authorities: Authorities,
}

impl Keys {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authorities = Authorities::make(directory.path()).unwrap();
        Self { _directory: directory, authorities }
    }

    fn start(&self, manner: SupervisorBehavior) -> Supervisor {
        Supervisor::start(&self.authorities, manner).unwrap()
    }

    /// How a full token names the authority.
    fn digest(&self) -> Digest {
        Digest::of(&self.authorities.bundle().unwrap())
    }

    fn token(&self, login: &str) -> String {
        format!("K10{}::{login}", self.digest())
    }
}

/// A server whose agents have the same token as its servers.
fn good() -> SupervisorBehavior {
    SupervisorBehavior {
        server_token: SERVER.into(),
        agent_token: SERVER.into(),
        ..SupervisorBehavior::default()
    }
}

/// A node of this role that joins at the port.
fn joining(role: Role, port: u16, token: &str) -> PlannedNode {
    let join = PlannedJoin {
        host: "127.0.0.1".into(),
        distribution: Distribution::Rke2,
        ports: Ports { supervisor: port, other: closed(), api: port },
        token: Some(Secret::new(token)),
        agent_token: None,
        name: Some("node-2".into()),
        carries_address: role == Role::Management,
        version: None,
    };
    PlannedNode { role, join: Some(join), ..PlannedNode::default() }
}

/// A port where nobody listens, and nobody else will while the tests run: it is taken by a socket that does not.
fn closed() -> u16 {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    getsockname::<SockaddrIn>(socket.into_raw_fd()).unwrap().port()
}

fn with(mut node: PlannedNode, change: impl FnOnce(&mut PlannedJoin)) -> PlannedNode {
    change(node.join.as_mut().unwrap());
    node
}

/// What the checks say to one conversation.
struct Talk {
    facts: MachineFacts,
    node: PlannedNode,
    seen: OnceLock<ClusterAnswers>,
    now: SystemTime,
    until: Instant,
}

impl Talk {
    fn begin(node: PlannedNode) -> Self {
        let facts = Machine::fit().facts();
        let (now, until) = (SystemTime::now(), Instant::now() + Duration::from_secs(60));
        Self { facts, node, seen: OnceLock::new(), now, until }
    }

    fn of(&self, name: &str) -> CheckOutcome {
        let Self { facts, node, seen, now, until } = self;
        let network = &SystemNetwork::default();
        let subject = CheckSubject { facts, node, network, cluster: seen, now: *now, until: *until };
        let outcome = (check(name).run)(&subject);
        let text = format!("{outcome:?} {:?}", seen.get());
        assert!(!text.contains("hush"), "{text}");
        outcome
    }

    #[track_caller]
    fn expect(&self, name: &str, word: &str, part: &str) {
        expect(&self.of(name), word, part);
    }

    /// What to do about a finding.
    fn next(&self, name: &str) -> String {
        let CheckOutcome::Found(finding) = self.of(name) else { panic!("{name} finds nothing") };
        assert!(!finding.next.contains("hush"), "{}", finding.next);
        finding.next
    }
}
