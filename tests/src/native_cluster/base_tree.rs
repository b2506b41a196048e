//! Packages of Debian as a tree of files, such as those that a node runs: unpacked once for each suite and kept in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::digest::Digest;

use crate::medium::lock;
use crate::{paths, programs};

/// The packages of programs that the services of a node and the checks call. tini is the first process of a node; busybox is the program of the tests' pods.
const PACKAGES: [&str; 26] = [
    "base-passwd",
    "bash",
    "busybox-static",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "coreutils",
    "curl",
    "findutils",
    "grep",
    "hostname",
    "iproute2",
    "iptables",
    "iputils-ping",
    "keepalived",
    "kmod",
    "mawk",
    "mount",
    "nftables",
    "procps",
    "runc",
    "sed",
    "systemd",
    "tini",
    "util-linux",
    "zstd",
];
/// The work of the packages' own scripts: users, and iptables by way of nftables.
const SETTLED: &str = "cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
sed 's/:.*/:*:1:0:99999:7:::/' etc/passwd >etc/shadow
sed 's/:.*/:*::/' etc/group >etc/gshadow
chmod 600 etc/shadow etc/gshadow
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
  ln -sf xtables-nft-multi usr/sbin/$name
done
ln -sf bash usr/bin/sh
ln -sf mawk usr/bin/awk";
const LIMIT: Duration = Duration::from_secs(600);

/// A tree of files without scripts having run.
#[derive(Clone, Debug)]
pub struct BaseTree(PathBuf);

impl BaseTree {
    /// The tree of a node.
    pub fn cached() -> Result<Self> {
        Self::of(&PACKAGES, SETTLED)
    }

    /// The tree of these packages of the suite of the default image, with what they need. `settled` does the work of the packages' own
    /// scripts, in the directory of the tree.
    pub fn of(packages: &[&str], settled: &str) -> Result<Self> {
        let suite = suite()?;
        let content = Digest::of(format!("{packages:?}{settled}").as_bytes()).to_string();
        let directory = paths::cache()?.join("native-cluster");
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let name = format!("{suite}-{}", &content[..12]);
        let (made, new) = (directory.join(&name), directory.join(format!("{name}.new")));
        let _lock = lock(&directory.join(format!("{name}.lock")))?;
        if !made.exists() {
            if new.exists() {
                fs::remove_dir_all(&new).with_context(|| format!("clearing {}", new.display()))?;
            }
            make(&suite, packages, settled, &new)?;
            fs::rename(&new, &made)?;
        }
        Ok(Self(made))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

fn make(suite: &str, packages: &[&str], settled: &str, directory: &Path) -> Result<()> {
    let mut unpack = Command::new("mmdebstrap");
    unpack.args(["--quiet", "--variant=extract", "--format=directory", "--architectures=amd64"]);
    unpack.arg(format!("--include={}", packages.join(","))).arg(suite).arg(directory);
    programs::run(&mut unpack, LIMIT)?.success("unpacking the packages of Debian")?;
    let mut settle = Command::new("sh");
    settle.args(["-euc", settled]).current_dir(directory);
    programs::run(&mut settle, LIMIT)?.success("settling the packages of Debian").map(drop)
}

/// The suite of the default image, which its definition inherits from that of the minimal one.
fn suite() -> Result<String> {
    let path = paths::workspace().join("configs/images/minimal.yaml");
    let definition: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&path)?)?;
    let suite = definition["packages"]["suite"].as_str().map(str::to_owned);
    suite.with_context(|| format!("{} names no suite", path.display()))
}
