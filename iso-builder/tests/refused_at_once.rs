//! A build reports mistakes before its work: nothing is downloaded, and no file is written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use testing::elf;

/// A definition whose mirror counts who asks it.
struct Bench {
    directory: tempfile::TempDir,
    mirror: TcpListener,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mirror = TcpListener::bind("127.0.0.1:0").unwrap();
        mirror.set_nonblocking(true).unwrap();
        let text = format!(
            "extends: minimal\npackages: {{mirrors: [deb http://{} trixie main]}}\n",
            mirror.local_addr().unwrap()
        );
        fs::write(directory.path().join("image.yaml"), text).unwrap();
        fs::write(directory.path().join("README.md"), "# Not a program\n").unwrap();
        fs::create_dir(directory.path().join("empty")).unwrap();
        Self { directory, mirror }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The exit code of a build with these options, and what it says.
    fn build(&self, options: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_iso-builder"))
            .args(["build", "image.yaml", "--output", "out", "--cache-dir", "cache"])
            .args(options)
            .env("NQRUST_INSTALLER", elf::installer(self.path()))
            .current_dir(self.path())
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn is_untouched(&self) -> bool {
        let lock = self.path().join("image.yaml.lock");
        !lock.exists() && !self.path().join("out").exists() && self.mirror.accept().is_err()
    }
}

#[test]
fn mistakes_in_options_end_a_build_before_the_network_and_before_any_file() {
    let bench = Bench::new();
    for (options, words) in [
        (&["--summary-file", "gone/summary.md"][..], "gone/summary.md"),
        (&["--metrics", "gone/image.prom"], "gone/image.prom"),
        (&["--metrics", "empty"], "empty"),
        (&["--installer", "README.md"], "README.md"),
        (&["--installer", "gone"], "gone"),
        (&["--module-key", "README.md"], "the definition names no certificate"),
    ] {
        let (code, told) = bench.build(options);
        assert!([2, 3].contains(&code) && told.contains(words), "{options:?}: {code} {told}");
        assert!(told.contains("error: ") && bench.is_untouched(), "{options:?}: {told}");
    }
    // A definition that no build can follow.
    for (text, words) in [
        ("extends: minimal\nbase: {debian: {include: {remove: [systemdd]}}}\n", "systemdd"),
        ("extends: minimal\ninstall_config: node.yaml\n", "node.yaml"),
        (
            "extends: minimal\nextensions: [{dkms: v4l2loopback-utils}]\n",
            "is not a package of sources for DKMS",
        ),
        ("extends: minimal\nextensions: [{source: empty}]\n", "it has neither a Kbuild nor a Makefile"),
        ("extends: minimal\nextensions: [{modules: empty}]\n", "empty has no kernel module"),
        ("extends: minimal\npackages: {files: [README.md]}\n", "is not the file of a Debian package"),
    ] {
        fs::write(bench.path().join("image.yaml"), text).unwrap();
        let (code, told) = bench.build(&[]);
        assert!(code == 2 && told.contains(words) && bench.is_untouched(), "{code} {told}");
    }
}
