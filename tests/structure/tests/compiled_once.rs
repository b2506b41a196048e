//! Both programs are made of the same compiled crates: the installer is linked by a call of its own, which takes what the call for both has
//! compiled only if every crate has the same features in it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::process::Command;

use nqrust_structure::workspace::workspace_root;

/// The crates of these packages, each with its features.
fn crates(packages: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(workspace_root()).args(["tree", "--locked", "--offline", "--edges", "normal,build"]);
    tree.args(["--prefix", "none", "--format", "{p} {f}"]);
    for package in packages {
        tree.args(["--package", package]);
    }
    let told = tree.output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let lines = String::from_utf8(told.stdout).unwrap();
    lines.lines().map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", "")).collect()
}

#[test]
fn every_crate_of_the_installer_has_the_features_that_both_programs_together_give_it() {
    let (alone, both) = (crates(&["installer"]), crates(&["installer", "iso-builder"]));
    assert!(alone.len() > 100, "only {} crates", alone.len());
    let compiled_again: Vec<_> = alone.difference(&both).collect();
    assert!(
        compiled_again.is_empty(),
        "these are compiled twice, with all that uses them; installer/Cargo.toml can ask for the same features: {compiled_again:#?}"
    );
}
