//! The cluster has to accept the node. The checks share one conversation with it, and each judges a part.

use super::servers::{self, LookupFailure};
use crate::check::{CheckOutcome, CheckSubject};
use crate::planned_node::PlannedJoin;
use cluster::join_query::{
    AuthorityProof, ClusterAnswers, ClusterNetworks, ClusterPeer, JoinQuery, Version, is_server,
};
use machine::clock::CLUSTER_TOLERANCE;
use machine::network_trouble::NetworkTrouble;
use model::config::{Distribution, Token};

/// The cluster to join and its answers; otherwise the outcome of the check.
pub(super) fn seen<'a>(
    subject: &'a CheckSubject<'_>,
) -> Result<(&'a PlannedJoin, &'a ClusterAnswers), CheckOutcome> {
    let node = subject.node.join.as_ref();
    let join = node.ok_or_else(|| CheckOutcome::skipped("the configuration joins no cluster"))?;
    Ok((join, subject.cluster.get_or_init(|| conversation(subject, join))))
}

/// Why the cluster to join cannot take the node yet, if waiting may be enough.
pub(crate) fn awaited(subject: &CheckSubject<'_>) -> Option<String> {
    let (_, seen) = seen(subject).ok()?;
    let server = seen.server.as_ref().err();
    match server.or(seen.authority.as_ref().err())? {
        NetworkTrouble::NotYet(what) => Some(format!("{} {what}", seen.place)),
        NetworkTrouble::Silent(_) | NetworkTrouble::Unable(_) => None,
    }
}

pub(super) fn networks(subject: &CheckSubject<'_>) -> Option<ClusterNetworks> {
    seen(subject).ok().and_then(|(_, seen)| seen.networks)
}

fn conversation(subject: &CheckSubject<'_>, join: &PlannedJoin) -> ClusterAnswers {
    let read = |token: &Option<_>| token.as_ref().and_then(|token| Token::read(token).ok());
    let mut question = JoinQuery {
        host: join.host.clone(),
        addresses: Vec::new(),
        ports: join.ports,
        distribution: join.distribution,
        token: read(&join.token),
        agent_token: read(&join.agent_token),
        server: is_server(subject.node.role),
        name: join.name.clone(),
        now: subject.now,
    };
    match servers::look_up(subject, &join.host) {
        Ok(addresses) if addresses.is_empty() => {
            ClusterAnswers::nothing(&question, NetworkTrouble::Silent("has no IPv4 address".into()))
        }
        Ok(addresses) => {
            question.addresses = addresses;
            subject.network.cluster(&question, subject.until)
        }
        // Names of clusters are often registered when the cluster is up.
        Err(LookupFailure::NoSuchName(what)) => {
            ClusterAnswers::nothing(&question, NetworkTrouble::NotYet(what))
        }
        Err(LookupFailure::NoAnswer(trouble)) => ClusterAnswers::nothing(&question, trouble),
    }
}

/// Returns why there is no answer, or judges it.
macro_rules! told {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(outcome) => return outcome,
        }
    };
}

/// The outcome of an unanswered question to `name`.
fn judge(name: &str, trouble: &NetworkTrouble, next: impl Into<String>) -> CheckOutcome {
    match trouble {
        NetworkTrouble::Silent(what) => CheckOutcome::found(format!("{name} {what}"), next),
        NetworkTrouble::NotYet(what) => CheckOutcome::found(format!("{name} {what}"), next).awaited(),
        NetworkTrouble::Unable(why) => CheckOutcome::could_not_run(format!("{name} {why}")),
    }
}

pub(super) fn server(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    match &seen.server {
        Ok(()) => CheckOutcome::passed(format!("{} answers", seen.place)),
        Err(trouble) => {
            let next = format!(
                "Correct server_url, start the cluster, or let this machine through to TCP port {}.",
                join.ports.supervisor
            );
            judge(&seen.place, trouble, next)
        }
    }
}

fn token_place(join: &PlannedJoin, server: bool) -> String {
    match (join.distribution, server) {
        (Distribution::Kubeadm, true) => {
            "`token` in /oem/node.yaml of the first node of the cluster".to_owned()
        }
        (Distribution::Kubeadm, false) => {
            "`kubernetes.agent_token`, or else in `token`, of /oem/node.yaml of the first node of the cluster"
                .to_owned()
        }
        (distribution, server) => {
            let file = if server { "node-token" } else { "agent-token" };
            format!("/var/lib/rancher/{}/server/{file} on a server of the cluster", distribution.name())
        }
    }
}

pub(super) fn authority(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let source = token_place(join, true);
    match &seen.authority {
        Ok(found) => {
            let (place, digest) = (&seen.place, found.authority.digest);
            match found.proof {
                AuthorityProof::Named => {
                    CheckOutcome::passed(format!("{place} has the authority that the token names, {digest}"))
                }
                AuthorityProof::Signed => {
                    CheckOutcome::passed(format!("{place} knows the token, and has the authority {digest}"))
                }
                AuthorityProof::FirstUse => CheckOutcome::found(
                    format!(
                        "the token does not say which authority the cluster has; {place} has {digest}, and is trusted from now on"
                    ),
                    format!(
                        "Compare that with what follows K10 in {source}; \
                         with the whole of that as token nothing has to be trusted."
                    ),
                )
                .mild(),
            }
        }
        Err(NetworkTrouble::Unable(why)) => {
            CheckOutcome::could_not_run(format!("the authority of the cluster {why}"))
        }
        Err(trouble) => {
            let next = format!(
                "Correct server_url if this is another cluster; a token of the cluster is in {source}."
            );
            judge(&seen.place, trouble, next)
        }
    }
}

pub(super) fn token(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let next = format!("Use the token in {}.", token_place(join, is_server(subject.node.role)));
    let given = [("the token", &join.token), ("kubernetes.agent_token", &join.agent_token)];
    for (name, token) in given {
        if let Some(Err(wrong)) = token.as_ref().map(Token::read) {
            return CheckOutcome::found(format!("{name} {wrong}"), next);
        }
    }
    if join.token.is_none() {
        return CheckOutcome::could_not_run("the configuration does not hold the token itself");
    }
    let agents = seen.agent_token.as_ref().map(|answer| ("kubernetes.agent_token", answer));
    for (name, answer) in [("the token", &seen.token)].into_iter().chain(agents) {
        if let Err(trouble) = answer {
            return judge(name, trouble, next);
        }
    }
    let role = subject.node.role.name();
    CheckOutcome::passed(format!("{} accepts the token for role {role}", seen.place))
}

pub(super) fn clock(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (_, seen) = told!(seen(subject));
    match (&seen.server, seen.clock) {
        (Err(_), _) => {
            CheckOutcome::could_not_run("the cluster's clock cannot be asked for; see join-server")
        }
        (Ok(()), None) => CheckOutcome::could_not_run(format!("{} does not report its time", seen.place)),
        (Ok(()), Some(offset)) => {
            let text = offset.text(&seen.place);
            let next =
                "Set the clock that is wrong: in this machine's firmware, or by time servers on all nodes.";
            if offset.by <= CLUSTER_TOLERANCE {
                CheckOutcome::passed(text)
            } else {
                CheckOutcome::found(text, next)
            }
        }
    }
}

fn members(seen: &ClusterAnswers) -> Result<&[ClusterPeer], CheckOutcome> {
    match &seen.members {
        Ok(members) => Ok(members),
        Err(trouble) => Err(judge("the list of the cluster's nodes", trouble, "")),
    }
}

pub(super) fn hostname(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let Some(name) = &join.name else {
        return CheckOutcome::skipped("the configuration does not name the node (os.hostname)");
    };
    let namesake = match &seen.namesake {
        Ok(namesake) => namesake,
        Err(trouble) => return judge("the nodes of the cluster", trouble, ""),
    };
    let Some(member) = namesake else {
        return CheckOutcome::passed(format!("no node of the cluster is called {name}"));
    };
    let forget = forget(join, &member.name);
    let uuid = subject.facts.uuid.as_ref().ok().and_then(Option::as_ref);
    let is_this_machine = uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(&member.uuid));
    if join.distribution == Distribution::Kubeadm && !member.ready {
        return replaced(member, is_this_machine, &forget);
    }
    match is_this_machine {
        true => CheckOutcome::found(
            format!("{name} is a node of the cluster already: this machine, as it was installed before"),
            format!("Let the cluster forget it, then install: {forget}"),
        ),
        false => CheckOutcome::found(
            format!("{name} is the name of another node of the cluster{}", at(member)),
            format!("Choose another os.hostname. If that node is gone for good: {forget}"),
        ),
    }
}

/// A node that is not ready gives way to one of its name that kubeadm joins: there is no password of a node that would tell them
/// apart.
fn replaced(member: &ClusterPeer, is_this_machine: bool, forget: &str) -> CheckOutcome {
    let name = &member.name;
    match is_this_machine {
        true => CheckOutcome::passed(format!(
            "{name} is this machine, as it was installed before; it takes its place in the cluster again"
        )),
        false => CheckOutcome::found(
            format!(
                "{name} is the name of another node of the cluster{}, which is not ready; this node would take its place",
                at(member)
            ),
            format!("Choose another os.hostname if that node comes back. If it is gone for good: {forget}"),
        )
        .mild(),
    }
}

/// The commands that make a cluster forget a node, and the node's password where there is one.
fn forget(join: &PlannedJoin, name: &str) -> String {
    let node = format!("kubectl delete node {name}");
    match join.distribution {
        Distribution::Kubeadm => node,
        distribution => format!(
            "{node}; kubectl -n kube-system delete secret --ignore-not-found {name}.node-password.{}",
            distribution.name()
        ),
    }
}

fn at(member: &ClusterPeer) -> String {
    match member.addresses.first() {
        Some(address) => format!(" ({address})"),
        None => String::new(),
    }
}

pub(super) fn witness(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let members = told!(members(seen));
    // A reinstalled witness is judged by join-hostname.
    let own =
        |member: &ClusterPeer| join.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&member.name));
    match members.iter().find(|member| member.witness && !own(member)) {
        None => CheckOutcome::passed(format!("none of the {} nodes is a witness", members.len())),
        Some(member) => CheckOutcome::found(
            format!("{}{} is the witness of the cluster, and there can be one only", member.name, at(member)),
            format!(
                "Choose another install.role. If that node is gone for good: {}",
                forget(join, &member.name)
            ),
        ),
    }
}

pub(super) fn vip(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    if !join.carries_address {
        return CheckOutcome::skipped("the node will not answer for the address in server_url");
    }
    let members = told!(members(seen));
    let holder = members.iter().find_map(|member| {
        let own = member.addresses.iter().find(|address| seen.addresses.contains(address))?;
        Some((member, own))
    });
    match holder {
        None => CheckOutcome::passed(format!("{} is no node's own address", join.host)),
        Some((member, address)) => CheckOutcome::found(
            format!(
                "{address} in server_url is the own address of {}; this node would take it over",
                member.name
            ),
            "Set server_url to the virtual address of the cluster, or to a name of that.",
        ),
    }
}

pub(super) fn version(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let running = match &seen.version {
        Ok(version) => version,
        Err(trouble) => return judge("the version of the cluster", trouble, ""),
    };
    let own = join.distribution;
    if let Some(another) =
        Distribution::ALL.into_iter().find(|other| *other != own && running.is_of(other.name()))
    {
        let (own, another) = (own.name(), another.name());
        return CheckOutcome::found(
            format!("the cluster runs {running}, which is {another}, and this node is to run {own}"),
            format!("Set kubernetes.distribution: {another}, and use an image with it."),
        );
    }
    match &join.version {
        None => CheckOutcome::passed(format!("the cluster runs {running}")),
        Some(version) if own == Distribution::Kubeadm => same_series(running, version),
        Some(version) => not_newer(running, version),
    }
}

/// A kubelet may be as new as the API server, patches aside (Kubernetes' version skew policy).
fn not_newer(running: &Version, version: &Version) -> CheckOutcome {
    if version <= running {
        return CheckOutcome::passed(format!("the cluster runs {running}"));
    }
    let finding = CheckOutcome::found(
        format!("the cluster runs {running}, and this node is to run {version}, which is newer"),
        "Bring the servers of the cluster to that version first, or install from an image with theirs.",
    );
    if running.is_of_older_series(version) { finding } else { finding.mild() }
}

/// kubeadm joins nodes to clusters of its own series (Kubernetes, "Creating a cluster with kubeadm", version skew policy), and starts
/// the images of the cluster's version, which are not those of the medium.
fn same_series(running: &Version, version: &Version) -> CheckOutcome {
    let next = format!("Install from a medium with Kubernetes {running}.");
    if !version.is_of_same_series(running) {
        let what = format!(
            "the cluster runs {running}, and this node is to run {version}: kubeadm joins the same series only"
        );
        return CheckOutcome::found(what, next);
    }
    if version == running {
        return CheckOutcome::passed(format!("the cluster runs {running}"));
    }
    let what = format!(
        "the cluster runs {running}, and this node brings {version}: images of {running} have to come from a registry"
    );
    CheckOutcome::found(what, next).mild()
}
