//! Whether a cluster will accept the node. The checks share one conversation with it, and each judges a part.

use std::time::Duration;

use super::servers::{self, LookupFailure};
use crate::preflight::check::{CheckOutcome, CheckSubject};
use crate::preflight::intent::Join;
use crate::preflight::join::{ClusterPeer, Question, Seen, Token, is_server, other};
use crate::preflight::trouble::NetworkTrouble;

/// An API server accepts a service account token up to a minute before its issue time, and no earlier. Half of that leaves room
/// for the clocks to drift before they are set, and for a Date in whole seconds.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(30);

/// The cluster to join and its answers; otherwise the outcome of the check.
fn seen<'a>(subject: &'a CheckSubject<'_>) -> Result<(&'a Join, &'a Seen), CheckOutcome> {
    let intent = subject.intent.join.as_ref();
    let join = intent.ok_or_else(|| CheckOutcome::skipped("the configuration joins no cluster"))?;
    Ok((join, subject.cluster.get_or_init(|| conversation(subject, join))))
}

fn conversation(subject: &CheckSubject<'_>, join: &Join) -> Seen {
    let read = |token: &Option<_>| token.as_ref().and_then(|token| Token::read(token).ok());
    let mut question = Question {
        host: join.host.clone(),
        addresses: Vec::new(),
        ports: join.ports,
        distribution: join.distribution,
        token: read(&join.token),
        agent_token: read(&join.agent_token),
        server: is_server(subject.intent.role),
        now: subject.now,
    };
    match servers::look_up(subject, &join.host) {
        Ok(addresses) if addresses.is_empty() => {
            Seen::nothing(&question, NetworkTrouble::Silent("has no IPv4 address".into()))
        }
        Ok(addresses) => {
            question.addresses = addresses;
            subject.network.cluster(&question, subject.until)
        }
        Err(LookupFailure::NoSuchName(what)) => Seen::nothing(&question, NetworkTrouble::Silent(what)),
        Err(LookupFailure::NoAnswer(trouble)) => Seen::nothing(&question, trouble),
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

pub(super) fn authority(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let file = format!("/var/lib/rancher/{}/server/node-token", join.distribution.name());
    match &seen.authority {
        Ok((authority, true)) => CheckOutcome::passed(format!(
            "{} has the authority that the token names, {}",
            seen.place, authority.digest
        )),
        Ok((authority, false)) => CheckOutcome::found(
            format!(
                "the token does not say which authority the cluster has; {} has {}, and is trusted from now on",
                seen.place, authority.digest
            ),
            format!(
                "Compare that with what follows K10 in {file} on a server; \
                 with the whole of that as token nothing has to be trusted."
            ),
        )
        .mild(),
        Err(NetworkTrouble::Unable(why)) => {
            CheckOutcome::could_not_run(format!("the authority of the cluster {why}"))
        }
        Err(trouble) => {
            let next = format!(
                "Correct server_url if this is another cluster; a token of this one is in {file} on a server."
            );
            judge(&seen.place, trouble, next)
        }
    }
}

pub(super) fn token(subject: &CheckSubject<'_>) -> CheckOutcome {
    let (join, seen) = told!(seen(subject));
    let file = match is_server(subject.intent.role) {
        true => "node-token",
        false => "agent-token",
    };
    let next = format!(
        "Use the token in /var/lib/rancher/{}/server/{file} on a server of the cluster.",
        join.distribution.name()
    );
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
    let role = subject.intent.role.name();
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
            let text = servers::offset_text(&seen.place, offset);
            let next =
                "Set the clock that is wrong: in this machine's firmware, or by time servers on all nodes.";
            if offset.by <= CLOCK_TOLERANCE {
                CheckOutcome::passed(text)
            } else {
                CheckOutcome::found(text, next)
            }
        }
    }
}

fn members(seen: &Seen) -> Result<&[ClusterPeer], CheckOutcome> {
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
    let members = told!(members(seen));
    let Some(member) = members.iter().find(|member| member.name.eq_ignore_ascii_case(name)) else {
        return CheckOutcome::passed(format!("none of the {} nodes is called {name}", members.len()));
    };
    let forget = forget(join, &member.name);
    let uuid = subject.facts.uuid.as_ref().ok().and_then(Option::as_ref);
    match uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(&member.uuid)) {
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

/// The commands that make a cluster forget a node and the node password.
fn forget(join: &Join, name: &str) -> String {
    format!(
        "kubectl delete node {name}; kubectl -n kube-system delete secret --ignore-not-found {name}.node-password.{}",
        join.distribution.name()
    )
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
                "{address} in server_url is the own address of {}; this node would take it from it",
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
    let (own, another) = (join.distribution.name(), other(join.distribution).name());
    if running.is_of(another) {
        return CheckOutcome::found(
            format!("the cluster runs {running}, which is {another}, and this node is to run {own}"),
            format!("Set kubernetes.distribution: {another}, and use an image with it."),
        );
    }
    let Some(version) = join.version.as_ref().filter(|version| *version > running) else {
        return CheckOutcome::passed(format!("the cluster runs {running}"));
    };
    let finding = CheckOutcome::found(
        format!("the cluster runs {running}, and this node is to run {version}, which is newer"),
        "Bring the servers of the cluster to that version first, or install from an image with theirs.",
    );
    // A kubelet may be as new as the API server, patches aside (Kubernetes' version skew policy).
    if running.is_of_older_series(version) { finding } else { finding.mild() }
}
