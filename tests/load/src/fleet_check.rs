//! What the servers themselves say of the machines of a run: the list of their fleet.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use hyper::header::AUTHORIZATION;
use serde_json::Value;
use tokio::runtime::Builder;

use crate::http_client::{ClientRequest, HttpClient};
use crate::run::LoadPlan;
use crate::servers::Servers;
use crate::virtual_machine::VirtualMachine;

/// The token in the address of the fleet page, as the server writes it to `fleet-url`.
pub fn token(url: &str) -> Result<&str> {
    let token = url.trim().split_once("?token=").map(|(_, token)| token);
    token.context("the address of the fleet page has no token")
}

/// The machines of the run that are not in `stage`, or not once.
pub fn not_in_stage(plan: &LoadPlan, servers: Servers, token: &str, stage: &str) -> Result<Vec<String>> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting a thread")?;
    let list = runtime.block_on(async {
        let mut client = HttpClient::new(servers.into(), None);
        let request = ClientRequest::get("/v1/fleet").with(AUTHORIZATION, &format!("Bearer {token}"));
        let (head, body) = client.ask(&request).await.context("asking for the list of machines")?;
        ensure!(head.status.is_success(), "the list of machines was answered with {}", head.status);
        serde_json::from_slice::<Value>(&body).context("reading the list of machines")
    })?;
    Ok(missing(plan, &list, stage))
}

fn missing(plan: &LoadPlan, list: &Value, stage: &str) -> Vec<String> {
    let mut found = BTreeMap::<&str, Vec<&str>>::new();
    for row in list["machines"].as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        found.entry(text("name")).or_default().push(text("stage"));
    }
    let machines = (plan.first..plan.first + plan.machines).map(|number| VirtualMachine::new(number, 1));
    let wrong = machines.filter_map(|machine| {
        let name = machine.hostname();
        let stages = found.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        (stages != [stage]).then(|| format!("{name} is in {stages:?} and not in {stage}"))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_machine_has_to_be_listed_once_in_the_stage() {
        let row = |name: &str, stage: &str| json!({ "name": name, "stage": stage });
        let list = json!({ "machines": [
            row("node-0", "joined"), row("node-1", "rebooting"), row("node-2", "joined"), row("node-2", "joined"),
        ]});
        let plan = LoadPlan { machines: 4, ..LoadPlan::default() };
        let missing = missing(&plan, &list, "joined");
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(missing[0].starts_with("node-1 is in [\"rebooting\"]"), "{missing:?}");
    }

    #[test]
    fn the_token_is_that_of_the_page() {
        assert_eq!(token("http://192.0.2.1/fleet?token=abc\n").unwrap(), "abc");
        assert!(token("http://192.0.2.1/fleet").is_err());
    }
}
