//! Real images for tests.

use std::path::Path;
use std::time::Duration;

use base::command::{Invocation, Runner, SystemRunner};

/// Writes an image of `directory` to `iso` with the options that the builder's media have.
pub fn make_iso(directory: &Path, iso: &Path) {
    make_iso_with(directory, iso, &["-r", "-J", "-iso-level", "3"]);
}

/// Writes an image of `directory` to `iso`.
pub fn make_iso_with(directory: &Path, iso: &Path, options: &[&str]) {
    let invocation = Invocation::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-V", "SAMPLE"])
        .args(options)
        .args(["-o".as_ref(), iso.as_os_str(), directory.as_os_str()])
        .limit(Duration::from_secs(300));
    SystemRunner.run(&invocation).unwrap();
}

/// Writes an image of `directory` to `iso` so that runs of zeros take no space and no disk time.
pub fn make_sparse_iso(directory: &Path, iso: &Path) {
    let script =
        r#"xorriso -as mkisofs -quiet -r -iso-level 3 "$1" | dd of="$2" bs=1M iflag=fullblock conv=sparse"#;
    let invocation = Invocation::new("sh").args(["-c", script, "sh"]).arg(directory).arg(iso);
    SystemRunner.run(&invocation.limit(Duration::from_secs(300))).unwrap();
}

/// Writes an image of `directory` to `iso` in which directories below the eighth level are stored elsewhere.
pub fn make_relocating_iso(directory: &Path, iso: &Path) {
    let invocation = Invocation::new("xorriso")
        .args(["-compliance", "deep_paths_off", "-outdev"])
        .arg(iso)
        .arg("-map")
        .arg(directory)
        .args(["/", "-commit"]);
    SystemRunner.run(&invocation).unwrap();
}
