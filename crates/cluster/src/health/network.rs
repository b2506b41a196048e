//! Checks of the management network, up to its gateway and no further: what lies behind is no fault of a release.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::check::{ADDRESS, CheckResult, Finding, GATEWAY};
use crate::observation::addresses;
use crate::observation::neighbours::{self, Neighbour};
use base::command::{Invocation, Runner};
use machine::network::addresses::{WantedNetwork, judge as judge_network};
use machine::network::management_device;
use model::config::InstallConfig;

/// For one run of iproute2.
const LIMIT: Duration = Duration::from_secs(5);
/// A router in the same segment answers within milliseconds.
const ANSWER: Duration = Duration::from_millis(700);

/// One route in the output of `ip -json route`.
#[derive(Debug, Deserialize)]
struct Route {
    gateway: Option<IpAddr>,
    dev: Option<String>,
}

pub(super) fn results(runner: &dyn Runner, config: &InstallConfig) -> Vec<CheckResult> {
    let address = match addresses(runner) {
        Ok(json) => Finding::from(judge_network(&WantedNetwork::of(config), &json).map(drop)),
        Err(why) => Finding::cannot_say(why),
    };
    vec![ADDRESS.found(address), GATEWAY.found(gateway(runner, management_device(config).as_deref()))]
}

/// The gateway of the default route answers ARP, or neighbour discovery.
fn gateway(runner: &dyn Runner, device: Option<&str>) -> Finding {
    let routes = ["-4", "-6"].map(|family| {
        let show = Invocation::new("ip").args(["-json", family, "route", "show", "default"]).limit(LIMIT);
        let json = runner.run(&show.args(device.into_iter().flat_map(|device| ["dev", device])));
        json.map_err(|error| format!("{error:#}"))
    });
    let mut found = Vec::new();
    for routes in &routes {
        match routes {
            // iproute2 leaves the device out of what it was asked for by device.
            Ok(json) => found.extend(serde_json::from_slice::<Vec<Route>>(json).unwrap_or_default()),
            Err(why) => return Finding::cannot_say(why.clone()),
        }
    }
    let route =
        found.into_iter().find_map(|route| Some((route.gateway?, route.dev.or(device.map(str::to_owned))?)));
    let Some((gateway, device)) = route else { return Finding::failing("there is no route to a gateway") };
    match reached(runner, gateway, &device) {
        true => Finding::Healthy,
        false => {
            let asked = if gateway.is_ipv4() { "ARP" } else { "neighbour discovery" };
            Finding::failing(format!("{gateway} does not answer {asked} on {device}"))
        }
    }
}

/// Whether the kernel has heard of it lately; else it is made to ask, and looked at again.
fn reached(runner: &dyn Runner, gateway: IpAddr, device: &str) -> bool {
    let family = if gateway.is_ipv4() { "-4" } else { "-6" };
    let address = gateway.to_string();
    let entry = || neighbours::entries(runner, gateway, Some(device)).into_iter().next();
    let fresh = |entry: &Option<Neighbour>| {
        let state = |state: &String| state == "REACHABLE" || state == "PERMANENT";
        entry.as_ref().is_some_and(|entry| entry.state.iter().any(state))
    };
    let before = entry();
    if fresh(&before) {
        return true;
    }
    // A known machine is asked anew at once; an unknown one as if something were sent to it (`NTF_USE`, rtnetlink(7)).
    let known = before.is_some_and(|entry| entry.lladdr.is_some());
    let (verb, more): (_, &[&str]) =
        if known { ("change", &["nud", "probe"]) } else { ("replace", &["use"]) };
    let ask = Invocation::new("ip").args([family, "neighbour", verb, &address, "dev", device]);
    // That it could not be asked shows in its entry.
    let _ = runner.run(&ask.args(more.iter().copied()).limit(LIMIT));
    thread::sleep(ANSWER);
    fresh(&entry())
}

#[cfg(test)]
mod tests;
