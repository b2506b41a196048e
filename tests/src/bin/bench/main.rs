//! `make bench`: figures of builds, of a validation, of a plan, of customising, of an install, of container
//! images and of the network server, each beside a baseline measured in the same run.
//!
//! Prints a table and writes `target/bench.json`. A figure that misses its limit is marked; the exit code is 1
//! then.

mod builds;
mod customize;
mod figure;
mod images;
mod install;
mod netboot;
mod plan;
mod release;
mod serve;
mod validate;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use figure::Figure;
use installer::files;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::paths;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [word, from, to] if word == images::SEED => images::seed(from, to).map(|()| true),
        _ => measure(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to tell when standard error itself is gone.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything; whether every figure keeps its limit.
fn measure() -> Result<bool> {
    let mut figures = Vec::new();
    let result = measure_into(&mut figures);
    // What was measured before a failure took minutes too.
    let json = serde_json::to_string_pretty(&figures)?;
    files::write_atomically(&paths::target().join("bench.json"), format!("{json}\n").as_bytes(), 0o644)?;
    stdout().write_all(figure::table(&figures).as_bytes()).context("printing the table")?;
    result.map(|()| figures.iter().all(Figure::holds))
}

fn measure_into(figures: &mut Vec<Figure>) -> Result<()> {
    let artifacts = Artifacts::new("bench")?;
    let mut builds = builds::Bench::new(&artifacts)?;
    figures.extend(builds.measure()?);
    figures.push(validate::measure()?);
    figures.push(plan::measure()?);
    figures.extend(customize::measure(&artifacts)?);
    figures.extend(install::measure(&builds.medium()?, &artifacts)?);
    figures.extend(images::measure(&builds, &artifacts)?);
    figures.extend(serve::measure(&artifacts)?);
    figures.extend(netboot::measure(&artifacts)?);
    Ok(())
}
