//! `make bench`: figures of builds, of a validation, of a plan, of customising, of an install, of container images, of
//! the network server, of formats of the OS image, of patches between two, of a cluster, of an emulated node and its updates, each beside a baseline measured in the same run.
//!
//! Prints a table and writes `target/bench.json`. A figure that misses its limit is marked; the exit code is 1 then.
//! Arguments select the parts that are measured; without any, all are but `kubernetes-programs`.

mod boots;
mod builds;
mod cluster;
mod corpus;
mod customize;
mod delta;
mod figure;
mod images;
mod install;
mod kubernetes_programs;
mod netboot;
mod os_image;
mod plan;
mod ready;
mod release;
mod serve;
mod update;
mod validate;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::files;
use figure::Figure;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::paths;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [word, from, to] if word == images::SEED_ARGUMENT => images::seed(from, to).map(|()| true),
        [word, old, new, patch] if word == delta::MAKE_ARGUMENT => {
            delta::make_patch(old, new, patch).map(|()| true)
        }
        [word, old, patch, new] if word == delta::APPLY_ARGUMENT => {
            delta::apply_patch(old, patch, new).map(|()| true)
        }
        parts => measure(parts),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If standard error is gone, there is nowhere left to report to.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The parts, in the order in which they are measured.
const PARTS: [&str; 14] = [
    "builds",
    "install",
    "images",
    "validate",
    "corpus",
    "plan",
    "customize",
    "serve",
    "netboot",
    "os-image",
    "delta",
    "cluster",
    "ready",
    "update",
];

/// The part that is measured only where it is named.
const KUBERNETES_PROGRAMS: &str = "kubernetes-programs";

/// Measures the named parts; returns whether every figure keeps its limit.
fn measure(parts: &[String]) -> Result<bool> {
    let known = |part: &str| PARTS.contains(&part) || part == KUBERNETES_PROGRAMS;
    if let Some(unknown) = parts.iter().find(|part| !known(part)) {
        bail!("there is no part {unknown}; there are {}, {KUBERNETES_PROGRAMS}", PARTS.join(", "));
    }
    let mut figures = Vec::new();
    let result = measure_into(&mut figures, parts);
    // Written even after a failure: the measurements before it took minutes.
    let json = serde_json::to_string_pretty(&figures)?;
    files::write_atomically(&paths::target().join("bench.json"), format!("{json}\n").as_bytes(), 0o644)?;
    stdout().write_all(figure::table(&figures).as_bytes()).context("printing the table")?;
    result.map(|()| figures.iter().all(Figure::holds))
}

fn measure_into(figures: &mut Vec<Figure>, parts: &[String]) -> Result<()> {
    let artifacts = Artifacts::new("bench")?;
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| named == part);
    // These parts need the media that the first of them builds.
    if ["builds", "install", "images"].into_iter().any(wanted) {
        let mut builds = builds::BuildBench::new(&artifacts)?;
        figures.extend(builds.measure()?);
        if wanted("install") {
            figures.extend(install::measure(&builds.medium()?, &artifacts)?);
        }
        if wanted("images") {
            figures.extend(images::measure(&builds, &artifacts)?);
        }
    }
    if wanted("validate") {
        figures.push(validate::measure()?);
    }
    if wanted("corpus") {
        figures.extend(corpus::measure()?);
    }
    if wanted("plan") {
        figures.push(plan::measure()?);
    }
    if wanted("customize") {
        figures.extend(customize::measure(&artifacts)?);
    }
    if wanted("serve") {
        figures.extend(boots::measure(&artifacts)?);
        figures.extend(serve::measure(&artifacts)?);
    }
    if wanted("netboot") {
        figures.extend(netboot::measure(&artifacts)?);
    }
    if wanted("os-image") && as_root("os-image", "mount images and empty the kernel's cache")? {
        figures.extend(os_image::measure(&artifacts)?);
    }
    if wanted("delta") && as_root("delta", "give the files of packages their owners")? {
        figures.extend(delta::measure(&artifacts)?);
    }
    if wanted("cluster") && as_root("cluster", "make control groups and devices")? {
        figures.extend(cluster::measure(&artifacts)?);
    }
    if wanted("ready") {
        figures.extend(ready::measure(&artifacts)?);
    }
    if wanted("update") {
        figures.extend(update::measure(&artifacts)?);
    }
    if parts.iter().any(|named| named == KUBERNETES_PROGRAMS) {
        figures.push(kubernetes_programs::measure(&artifacts)?);
    }
    Ok(())
}

/// Whether root measures; otherwise says that `part` is left out, since only root can do `what`.
fn as_root(part: &str, what: &str) -> Result<bool> {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        writeln!(stderr(), "the part {part} is left out: only root can {what}")
            .context("saying what is left out")?;
    }
    Ok(root)
}
