//! `installer update repair`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::app::gather::kernel_command_line;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::Context;
use model::boot::BootParameters;
use node::recovery::{RepairFinding, RepairState, repair};
use node::update::{UpdateLock, UpdatedNode};

/// Checks everything that a start of this node needs and prints the findings; an error if something stays damaged.
pub(crate) fn repair_node(yes: bool, wait: Duration, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, wait)?;
    let mut node = UpdatedNode::read(root)?;
    let installed =
        BootParameters::parse(&kernel_command_line()?)?.context("this is not an installed node")?;
    let findings = repair(&mut node, &installed, yes, &SystemRunner, &context.progress)?;
    context.show(&findings, || findings.iter().map(line).collect())?;
    let damaged: Vec<_> = findings
        .iter()
        .filter(|one| one.state == RepairState::Damaged)
        .map(|one| one.subject.as_str())
        .collect();
    if damaged.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Class::DiskIo, format!("damaged: {}", damaged.join(", ")))
        .hint("A slot is written anew by: installer update apply --from MEDIUM. For file systems: --yes")
        .into())
}

fn line(finding: &RepairFinding) -> String {
    let RepairFinding { subject, state, text } = finding;
    let state = match state {
        RepairState::Whole => "whole",
        RepairState::Repaired => "repaired",
        RepairState::Damaged => "DAMAGED",
        RepairState::Unchecked => "-",
    };
    format!("{}\n", format!("{subject:<26} {state:<9} {text}").trim_end())
}
