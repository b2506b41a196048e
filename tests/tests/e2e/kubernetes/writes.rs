//! A client that writes to the API once a second, at the virtual address, whatever happens to the nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use nqrust_tests::native_cluster::TestCluster;

/// The longest time in seconds without a good write that is right while one server is away: another one gets the virtual address, a
/// leader is elected, or an API server starts again.
pub(super) const WITHOUT_WRITE_MAX: f64 = 30.0;

/// Writes to the cluster once a second.
pub(super) struct Writer {
    process: Child,
    log: PathBuf,
}

impl Writer {
    pub(super) fn start(cluster: &TestCluster, log: &Path) -> Result<Self> {
        let mut shell = cluster.switch.command("setpriv");
        let kubectl = cluster.kubectl();
        let (program, access) = kubectl.parts();
        let one = format!(
            "'{}' --kubeconfig '{}' create configmap write-$n --from-literal=n=$n --request-timeout=2s",
            program.display(),
            access.display()
        );
        let all = format!(
            "n=0; while :; do n=$((n + 1)); if {one} >/dev/null 2>&1; then end=good; else end=bad; fi; \
             echo \"$(date +%s.%N) $end\" >>'{}'; sleep 1; done",
            log.display()
        );
        shell.args(["--pdeathsig", "KILL", "sh", "-c", &all]).env("HOME", "/nonexistent");
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: shell.spawn().context("starting the writes")?, log: log.to_owned() })
    }

    /// The longest time between two good writes in seconds, and how many there were.
    pub(super) fn end(mut self) -> Result<(f64, usize)> {
        self.process.kill()?;
        self.process.wait()?;
        let text = fs::read_to_string(&self.log)?;
        let good: Vec<f64> =
            text.lines().filter_map(|line| line.strip_suffix(" good")?.parse().ok()).collect();
        ensure!(good.len() > 10, "writes never went on: {text}");
        let longest = good.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        Ok((longest, good.len()))
    }
}
