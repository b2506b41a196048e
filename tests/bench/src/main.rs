//! `make bench`: figures of builds, of a validation, of a plan, of customizing, of an install, of container images, of
//! the network server, of patches between two, of a cluster, of an emulated node and its updates, each beside a baseline measured in the same run.
//!
//! Prints a table and writes `target/bench.json`. A figure that misses its limit is marked; the exit code is 1 then. A part that
//! fails does not keep the others from being measured: its error is reported at the end, and the exit code is 1, too.
//! Arguments select the parts that are measured; without any, all are but `first-build` and `kubernetes-programs`. `--short` measures with small
//! inputs, judges nothing and writes no file: a test runs it, so that the parts cannot break unseen.

mod boots;
mod builds;
mod cluster;
mod corpus;
mod customize;
mod default_medium;
mod delta;
mod figure;
mod first_build;
mod fleet_page;
mod images;
mod install;
mod kubernetes_programs;
mod load;
mod netboot;
mod parts;
mod plan;
mod ready;
mod root;
mod scale;
mod serve;
mod signatures;
mod timing;
mod update;
mod validate;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::files;
use figure::Figure;
use nqrust_tests::paths;
use parts::{Bench, Part};
use scale::Scale;

/// As the first argument, asks for the short form.
const SHORT_ARGUMENT: &str = "--short";

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
        [word, parts @ ..] if word == SHORT_ARGUMENT => measure(parts, Scale::Short),
        parts => measure(parts, Scale::Full),
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

/// Measures the named parts; returns whether all were measured and every figure keeps its limit.
fn measure(names: &[String], scale: Scale) -> Result<bool> {
    let parts = selected(names, scale)?;
    let mut bench = Bench::new(scale)?;
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
    for part in parts {
        match part.measure(&mut bench) {
            Ok(measured) => figures.extend(measured),
            Err(error) => failures.push((part.name, error)),
        }
    }
    if scale == Scale::Short {
        figures = figures.into_iter().map(Figure::without_limit).collect();
    } else {
        // Written even after a failure: the other measurements took minutes.
        let json = serde_json::to_string_pretty(&figures)?;
        files::write_atomically(&paths::target().join("bench.json"), format!("{json}\n").as_bytes(), 0o644)?;
    }
    stdout().write_all(figure::table(&figures).as_bytes()).context("printing the table")?;
    for (part, error) in &failures {
        writeln!(stderr(), "error: the part {part} failed: {error:#}").context("reporting a failure")?;
    }
    Ok(failures.is_empty() && figures.iter().all(Figure::holds))
}

/// The parts with these names; without any, all that are measured unnamed at this scale.
fn selected(names: &[String], scale: Scale) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = names.iter().find(|name| parts::PARTS.iter().all(|part| part.name != **name)) {
        let known: Vec<_> = parts::PARTS.iter().map(|part| part.name).collect();
        bail!("there is no part {unknown}; there are {}", known.join(", "));
    }
    let wanted = |part: &&Part| match names {
        [] => part.runs_unnamed(scale),
        _ => names.iter().any(|name| part.name == name),
    };
    Ok(parts::PARTS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_part_is_refused_with_the_names_of_all() {
        let error = selected(&["build".into()], Scale::Full).err().unwrap().to_string();
        assert!(error.starts_with("there is no part build; there are builds, install, "), "{error}");
    }

    #[test]
    fn every_part_but_two_of_quarters_of_an_hour_is_measured_by_default() {
        let all = selected(&[], Scale::Full).unwrap();
        assert_eq!(all.len(), parts::PARTS.len() - 2);
        assert!(all.iter().all(|part| !["first-build", "kubernetes-programs"].contains(&part.name)));
    }
}
