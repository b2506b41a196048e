//! Clock, name servers, time servers and proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, SystemTime};

use super::judge::judge;
use crate::check::{CheckOutcome, CheckSubject};
use crate::network::{DnsAnswer, TimeAnswer};
use crate::planned_node::is_name;
use machine::network_trouble::NetworkTrouble;

/// A clock that is further off than this breaks certificates and leases before the node sets it.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

pub(super) fn clock(subject: &CheckSubject<'_>) -> CheckOutcome {
    const NEXT: &str = "Set the clock in the firmware's setup; with an empty battery it is lost again.";
    let since = subject.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    if subject.node.not_before.is_some_and(|release| since < release) {
        let now = i64::try_from(since).ok().and_then(|since| jiff::Timestamp::from_second(since).ok());
        let now = now.map(|now| now.to_string()).unwrap_or_default();
        return CheckOutcome::found(
            format!("the clock says {now}, which is before the release was made"),
            NEXT,
        );
    }
    let servers = &subject.node.time_servers;
    if servers.is_empty() {
        return CheckOutcome::could_not_run("there is no time server to compare it with");
    }
    let answers = times(subject);
    let offset = answers.into_iter().find_map(|(server, time)| match time {
        Ok(TimeAnswer::Offset(offset)) => Some((server, offset)),
        _ => None,
    });
    match offset {
        None => CheckOutcome::could_not_run("no time server gave the time; see ntp"),
        Some((server, offset)) if offset.by <= CLOCK_TOLERANCE => CheckOutcome::passed(offset.text(&server)),
        Some((server, offset)) => CheckOutcome::found(offset.text(&server), NEXT),
    }
}

pub(super) fn ntp(subject: &CheckSubject<'_>) -> CheckOutcome {
    if subject.node.time_servers.is_empty() {
        return CheckOutcome::skipped("the configuration has no time server");
    }
    let answer = |time| match time {
        Ok(TimeAnswer::Offset(_)) => Ok("gives the time".to_owned()),
        Ok(TimeAnswer::Unsynchronised) => {
            Err(NetworkTrouble::Silent("answers, and does not know the time".into()))
        }
        Err(trouble) => Err(trouble),
    };
    let answers = times(subject).into_iter().map(|(server, time)| (server, answer(time)));
    let next = "Correct os.ntp_servers, or let the node through to UDP port 123.";
    judge(answers.collect(), next)
}

fn times(subject: &CheckSubject<'_>) -> Vec<(String, Result<TimeAnswer, NetworkTrouble>)> {
    at_once(&subject.node.time_servers, |server| {
        let addresses = resolve(subject, server)?;
        let ask = |address: &Ipv4Addr| subject.network.time(*address, subject.until);
        // A name of a pool has several addresses; one that works is enough.
        let answers: Vec<_> = addresses.iter().take(2).map(ask).collect();
        let good = answers.iter().position(Result::is_ok).unwrap_or(0);
        answers
            .into_iter()
            .nth(good)
            .unwrap_or_else(|| Err(NetworkTrouble::Silent("has no IPv4 address".into())))
    })
}

pub(super) fn dns(subject: &CheckSubject<'_>) -> CheckOutcome {
    let names = needed(subject);
    let servers = servers(subject);
    if servers.is_empty() {
        return match (subject.node.dhcp, names.is_empty()) {
            (true, _) => CheckOutcome::could_not_run(
                "the network has announced no name server to this \
                system",
            ),
            (false, true) => CheckOutcome::skipped("the configuration has no name server, and needs none"),
            (false, false) => CheckOutcome::found(
                format!("the configuration has no name server to look up {}", names.join(", ")),
                "Set os.dns_nameservers.",
            ),
        };
    }
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let answers = at_once(&servers, |server| {
        let server = server.parse().map_err(|_| NetworkTrouble::Unable("is no address".into()))?;
        asked_for(subject, server, &names)
    });
    judge(answers, "Correct os.dns_nameservers or the names, or let the node through to UDP port 53.")
}

/// Asks one server for every name; for the root if the configuration has no name.
fn asked_for(subject: &CheckSubject<'_>, server: Ipv4Addr, names: &[&str]) -> Result<String, NetworkTrouble> {
    if names.is_empty() {
        return subject.network.lookup(server, "", subject.until).map(|_| "answers".to_owned());
    }
    for name in names {
        match subject.network.lookup(server, name, subject.until)? {
            DnsAnswer::Addresses(_) => {}
            // Names of clusters are often registered when the cluster is up.
            DnsAnswer::NoSuchName if subject.node.join.as_ref().is_some_and(|join| join.host == *name) => {
                return Err(NetworkTrouble::NotYet(format!("does not know {name}")));
            }
            DnsAnswer::NoSuchName => return Err(NetworkTrouble::Silent(format!("does not know {name}"))),
            DnsAnswer::Unwilling(reason) => {
                return Err(NetworkTrouble::Silent(format!("answers {reason} for {name}")));
            }
        }
    }
    Ok(format!("knows {}", names.join(", ")))
}

/// The names in the configuration. Those without a domain need the search list of the node's network.
fn needed<'a>(subject: &'a CheckSubject<'_>) -> Vec<&'a str> {
    let node = subject.node;
    let proxies = node.proxies.iter().map(|proxy| proxy.host.as_str());
    let hosts = node.time_servers.iter().chain(&node.names).map(String::as_str).chain(proxies);
    let mut names: Vec<_> = hosts.filter(|host| is_name(host) && host.contains('.')).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn servers(subject: &CheckSubject<'_>) -> Vec<Ipv4Addr> {
    match subject.node.name_servers.is_empty() && subject.node.dhcp {
        true => subject.network.resolvers(),
        false => subject.node.name_servers.clone(),
    }
}

pub(super) fn proxy(subject: &CheckSubject<'_>) -> CheckOutcome {
    let proxies = &subject.node.proxies;
    if proxies.is_empty() {
        return CheckOutcome::skipped("the configuration has no proxy");
    }
    let label = |host: &str, port: u16| format!("{host}:{port}");
    let labels: Vec<_> = proxies.iter().map(|proxy| label(&proxy.host, proxy.port)).collect();
    let answers = at_once(&labels, |label_of| {
        let proxy = proxies.iter().find(|proxy| label(&proxy.host, proxy.port) == label_of);
        let proxy = proxy.ok_or_else(|| NetworkTrouble::Unable("is unknown".into()))?;
        let address = *resolve(subject, &proxy.host)?
            .first()
            .ok_or_else(|| NetworkTrouble::Silent("has no IPv4 address".into()))?;
        let address = SocketAddr::from((address, proxy.port));
        subject.network.proxy(address, proxy.tls, subject.until).map(|()| "answers".to_owned())
    });
    judge(answers, "Correct the proxy's URL, or let the node through to it.")
}

/// Why a host has no address.
pub(super) enum LookupFailure {
    /// There is no such name, a clause that follows it.
    NoSuchName(String),
    /// No name server answered.
    NoAnswer(NetworkTrouble),
}

/// The addresses of a host. Failing name servers are reported by another check.
fn resolve(subject: &CheckSubject<'_>, host: &str) -> Result<Vec<Ipv4Addr>, NetworkTrouble> {
    look_up(subject, host).map_err(|unknown| match unknown {
        LookupFailure::NoSuchName(what) => NetworkTrouble::Silent(what),
        LookupFailure::NoAnswer(
            NetworkTrouble::Silent(what) | NetworkTrouble::NotYet(what) | NetworkTrouble::Unable(what),
        ) => NetworkTrouble::Unable(what),
    })
}

/// The addresses of a host, by the name servers that the node will have.
pub(super) fn look_up(subject: &CheckSubject<'_>, host: &str) -> Result<Vec<Ipv4Addr>, LookupFailure> {
    let unable = |why: &str| Err(LookupFailure::NoAnswer(NetworkTrouble::Unable(why.into())));
    match host.parse() {
        Ok(IpAddr::V4(address)) => return Ok(vec![address]),
        Ok(IpAddr::V6(_)) => return unable("is an IPv6 address, which is not tried"),
        Err(_) => {}
    }
    if !host.contains('.') {
        return unable("has no domain, so only the node itself can resolve it");
    }
    let mut last = NetworkTrouble::Unable("cannot be looked up: there is no name server".into());
    let unanswered = |what: String| format!("cannot be looked up: {what}");
    for server in servers(subject) {
        last = match subject.network.lookup(server, host, subject.until) {
            Ok(DnsAnswer::Addresses(addresses)) => return Ok(addresses),
            Ok(DnsAnswer::NoSuchName) => {
                return Err(LookupFailure::NoSuchName(format!("is unknown to {server}")));
            }
            Ok(DnsAnswer::Unwilling(reason)) => {
                NetworkTrouble::Silent(unanswered(format!("{server} answers {reason}")))
            }
            Err(NetworkTrouble::Silent(what) | NetworkTrouble::NotYet(what)) => {
                NetworkTrouble::Silent(unanswered(format!("{server} {what}")))
            }
            Err(NetworkTrouble::Unable(why)) => NetworkTrouble::Unable(unanswered(format!("{server} {why}"))),
        };
    }
    Err(LookupFailure::NoAnswer(last))
}

/// Asks about each subject in parallel.
pub(super) fn at_once<T: Send>(
    subjects: &[String],
    ask: impl Fn(&str) -> Result<T, NetworkTrouble> + Sync,
) -> Vec<(String, Result<T, NetworkTrouble>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = subjects.iter().map(|subject| scope.spawn(|| ask(subject))).collect();
        let answers = asked.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(NetworkTrouble::Unable("was not checked: internal error".into())))
        });
        subjects.iter().cloned().zip(answers).collect()
    })
}
