//! The steps of a node for its version of Kubernetes during and after a change of its OS, on nodes that no boot loader has started: there
//! `installer update` refuses to work.
//!
//! `kubernetes_step keep` is for the moment before another OS image takes the place of this one, `mount` for the start with that,
//! `move` for the step to what it brings. It ends with the exit code of `installer`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use base::command::SystemRunner;
use base::failure::{class_of, render};
use cluster::kept_version::boot::mount_current;
use cluster::rollout::move_alone;
use cluster::version_step::keep_running;
use machine::mount::SystemMounter;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    match step(&std::env::args().nth(1).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", render(&error));
            ExitCode::from(class_of(&error).exit_code())
        }
    }
}

#[allow(clippy::print_stdout)]
fn step(name: &str) -> Result<()> {
    let root = Path::new("/");
    match name {
        "keep" => keep_running(root, &mut |line| println!("{line}")),
        "mount" => {
            mount_current(root, &mut SystemMounter)?.iter().for_each(|note| println!("{note}"));
            Ok(())
        }
        "move" => {
            let done = move_alone(root, &SystemRunner, Duration::ZERO, &mut |line| println!("{line}"))?;
            println!(
                "{}",
                done.map_or("nothing to do".to_owned(), |record| format!("moved to {}", record.to))
            );
            Ok(())
        }
        other => bail!("{other:?} is no step"),
    }
}
