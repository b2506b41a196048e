//! The benchmark in its short form: a part that no longer works is seen here, and not by whoever needs its figures.

use std::process::Command;
use std::time::Duration;

use nqrust_tests::artifacts::scenario;
use nqrust_tests::programs;

const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn the_short_form_of_the_benchmark_measures_every_part_without_a_machine() {
    scenario("short-benchmark", |artifacts| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_nqrust-bench"));
        let ended = programs::run(bench.arg("--short"), LIMIT)?;
        artifacts.append("figures.txt", &ended.said())?;
        ended.success("nqrust-bench --short").map(drop)
    });
}
