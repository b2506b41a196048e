//! Tests that need root.

/// Whether root runs the tests: only root can give files to others. Where the tests count, root has to.
#[must_use]
pub fn root_runs() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "tests of files of other users need root");
    root
}
