//! The programs of Kubernetes from their Go modules, as `make kubernetes` builds them. It takes a quarter of an hour.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::{paths, programs};

use crate::figure::Figure;
use crate::timing::seconds_of;

/// The Debian whose nft is in the image of kube-proxy, as in the Makefile.
const SUITE: &str = "trixie";
const LIMIT: Duration = Duration::from_secs(7200);

/// Measures a build from empty caches of Go beside one with what that has left in them.
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Figure> {
    let go = artifacts.disk("go");
    let empty = build(&go, &artifacts.disk("kubernetes-empty"))?;
    let again = build(&go, &artifacts.disk("kubernetes-again"))?;
    // Go makes the directories of modules read-only.
    let mut clean = Command::new("go");
    clean.args(["clean", "-modcache"]).env("GOPATH", go.join("path"));
    programs::run(&mut clean, LIMIT)?.success("go clean")?;
    let baseline = ("with the caches that it leaves", again);
    Ok(Figure::new("Kubernetes from empty caches of Go", empty, "s", baseline))
}

fn build(go: &Path, out: &Path) -> Result<f64> {
    let mut build = Command::new(paths::workspace().join("configs/kubernetes/build.sh"));
    build.arg(out).arg(SUITE).env("GOPATH", go.join("path")).env("GOCACHE", go.join("cache"));
    build.env_remove("GOMODCACHE");
    seconds_of(&mut build, LIMIT)
}
