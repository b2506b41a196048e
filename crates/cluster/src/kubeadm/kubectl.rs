//! kubectl on a node with a control plane.

use std::time::Duration;

use anyhow::Result;

use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};

/// The access of administrators, on every node with a control plane.
pub(super) const ADMIN: &str = "/etc/kubernetes/admin.conf";
/// The API server of the node itself, whatever address the cluster has.
const LOCAL: &str = "https://127.0.0.1:6443";
const KUBECTL_LIMIT: Duration = Duration::from_secs(120);
const ATTEMPTS: u32 = 600;
const INTERVAL: Duration = Duration::from_secs(2);

/// kubectl with its cache in memory.
pub(crate) fn kubectl(arguments: &[&str]) -> Invocation {
    Invocation::new("kubectl").args(arguments).env("HOME", "/run/nqrust").limit(KUBECTL_LIMIT)
}

/// kubectl as an administrator at the API server of this node.
pub(super) fn locally(runner: &dyn Runner, arguments: &[&str]) -> Result<Vec<u8>> {
    let all = ["--kubeconfig", ADMIN, "--server", LOCAL].into_iter().chain(arguments.iter().copied());
    runner.run(&kubectl(&all.collect::<Vec<_>>()).without_proxies())
}

pub(super) fn await_api(runner: &dyn Runner) -> Result<()> {
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(INTERVAL);
        }
        match locally(runner, &["get", "--raw", "/readyz"]) {
            Ok(_) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    let failure = Failure::new(Class::Join, "the API server of this node is not ready");
    Err(match last {
        Some(error) => failure.because(error),
        None => failure,
    }
    .into())
}
