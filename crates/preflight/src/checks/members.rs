//! The paths to the nodes of the cluster to join: how far they are, what is lost, and how large packets may be.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::join::seen;
use super::judge::judge;
use super::servers::at_once;
use crate::check::{CheckOutcome, CheckSubject};
use crate::network::{PathMtu, RoundTrips};
use cluster::join_query::{ClusterPeer, is_server};
use machine::network_trouble::NetworkTrouble;

/// Members of etcd are made for round trips of a tenth of their heartbeat, which is 100 ms (etcd, "Tuning").
const ETCD_LIMIT: Duration = Duration::from_millis(10);
/// One packet can be lost anywhere.
const LOST_MAX: usize = 1;
/// More nodes say nothing new, and would take longer than all checks may.
const TARGETS_MAX: usize = 16;
/// Of the kubelet, which every node has.
const KUBELET_PORT: u16 = 10_250;

/// A machine to which paths are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathTarget {
    /// Its name and its address.
    label: String,
    address: Ipv4Addr,
    /// Whether the node needs it to be a part of the cluster.
    needed: bool,
    /// Whether both have a member of etcd.
    etcd: bool,
}

/// The cluster's own address, and its nodes that are there: those with etcd first.
fn targets(subject: &CheckSubject<'_>) -> Result<Vec<PathTarget>, CheckOutcome> {
    let (join, seen) = seen(subject)?;
    if seen.server.is_err() {
        return Err(CheckOutcome::could_not_run(
            "the cluster cannot be asked for its nodes; see join-server",
        ));
    }
    let server = is_server(subject.node.role);
    let target = |member: &ClusterPeer| {
        let address = *member.addresses.first()?;
        let etcd = server && member.keeps_etcd;
        Some(PathTarget { label: format!("{} ({address})", member.name), address, needed: etcd, etcd })
    };
    let own = |member: &&ClusterPeer| {
        join.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&member.name))
    };
    // Whoever may not list the nodes knows the cluster's address.
    let members = seen.members.iter().flatten().filter(|member| member.ready && !own(member));
    let mut members: Vec<_> = members.filter_map(target).collect();
    members.sort_by_key(|target| !target.etcd);
    let hosts =
        seen.addresses.iter().filter(|address| members.iter().all(|member| member.address != **address));
    let hosts = hosts.map(|address| {
        let label = match join.host.parse::<Ipv4Addr>() {
            Ok(_) => join.host.clone(),
            Err(_) => format!("{} ({address})", join.host),
        };
        PathTarget { label, address: *address, needed: true, etcd: false }
    });
    let mut targets: Vec<_> = hosts.collect();
    targets.extend(members);
    targets.truncate(TARGETS_MAX);
    Ok(targets)
}

/// Measures the path to each of `targets`, all at once.
fn measured<T: Send>(
    targets: &[PathTarget],
    measure: impl Fn(Ipv4Addr) -> Result<T, NetworkTrouble> + Sync,
) -> Vec<Result<T, NetworkTrouble>> {
    let addresses: Vec<_> = targets.iter().map(|target| target.address.to_string()).collect();
    let unknown = |_| NetworkTrouble::Unable("is no address".into());
    let answers = at_once(&addresses, |address| measure(address.parse().map_err(unknown)?));
    answers.into_iter().map(|(_, answer)| answer).collect()
}

pub(super) fn latency(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NEXT: &str = "Check cables, switch ports and the load between this machine and these nodes. Members of etcd belong into one \
                        site. A firewall has to let nodes through to each other.";
    let targets = match targets(subject) {
        Ok(targets) => targets,
        Err(outcome) => return outcome,
    };
    let ports = [subject.node.join.as_ref().map_or(KUBELET_PORT, |join| join.ports.api), KUBELET_PORT];
    let trips = measured(&targets, |address| subject.network.round_trips(address, &ports, subject.until));
    let missing = targets.iter().zip(&trips);
    let missing =
        missing.filter(|(target, trips)| target.needed && matches!(trips, Err(NetworkTrouble::Silent(_))));
    let stops = missing.count() > 0;
    let answers =
        targets.iter().zip(trips).map(|(target, trips)| (target.label.clone(), far_or_lost(target, trips)));
    let outcome = judge(answers.collect(), NEXT);
    if stops { outcome } else { outcome.mild() }
}

fn far_or_lost(
    target: &PathTarget,
    trips: Result<RoundTrips, NetworkTrouble>,
) -> Result<String, NetworkTrouble> {
    let trips = trips?;
    let (median, lost) = (trips.median(), trips.lost());
    let time = format!("{:.1} ms", median.as_secs_f64() * 1000.0);
    if lost > LOST_MAX {
        return Err(NetworkTrouble::Silent(format!("lost {lost} of {} packets", trips.sent)));
    }
    if target.etcd && median > ETCD_LIMIT {
        let limit = ETCD_LIMIT.as_millis();
        return Err(NetworkTrouble::Silent(format!(
            "is {time} away, and members of etcd should be {limit} ms away at most"
        )));
    }
    Ok(format!("is {time} away"))
}

pub(super) fn mtu(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NEXT: &str = "Give all switch ports, VLANs, bonds and network cards on the way the same MTU, or set \
                        install.management_interface.mtu of every node to what arrives.";
    let targets = match targets(subject) {
        Ok(targets) => targets,
        Err(outcome) => return outcome,
    };
    let paths = measured(&targets, |address| subject.network.path_mtu(address, subject.until));
    let answers = targets.iter().zip(paths).map(|(target, path)| (target.label.clone(), narrow(path)));
    judge(answers.collect(), NEXT)
}

fn narrow(path: Result<PathMtu, NetworkTrouble>) -> Result<String, NetworkTrouble> {
    let PathMtu { device, sent, carried } = path?;
    match carried < sent {
        true => Err(NetworkTrouble::Silent(format!(
            "gets packets of {carried} bytes at most, and {device} sends up to {sent}"
        ))),
        false => Ok(format!("gets packets of {carried} bytes, the largest that {device} sends")),
    }
}
