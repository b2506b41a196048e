//! A release of K3s for the medium of a cluster: a real program where `NQRUST_K3S_BINARY` names one, else one that writes
//! down how it was started and runs on.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use installer::digest::Digest;
use serde_json::json;

use crate::medium::{copy_tree, lock};
use crate::paths;
use crate::programs;
use crate::registry::Layout;

/// The release that the program claims to be.
const VERSION: &str = "v1.33.1+k3s1";
/// Where the program that stands for K3s writes its arguments.
pub const ARGUMENTS: &str = "/run/e2e-k3s-arguments";

const IMAGES: &str = "k3s-airgap-images-amd64.tar.zst";
const LIMIT: Duration = Duration::from_secs(120);

/// The real program, if there is one.
#[must_use]
pub fn real() -> Option<PathBuf> {
    env::var_os("NQRUST_K3S_BINARY").map(PathBuf::from)
}

/// The release that the program is.
pub fn version() -> Result<String> {
    let Some(program) = real() else { return Ok(VERSION.into()) };
    let said = programs::run(Command::new(program).arg("--version"), LIMIT)?.success("k3s --version")?;
    said.split_whitespace().nth(2).map(str::to_owned).context("reading the version of NQRUST_K3S_BINARY")
}

/// Puts the release beside `definition` and names it there; what the definition embeds is left out.
pub fn add(definition: &Path) -> Result<()> {
    let made = paths::e2e().join("k3s-release");
    {
        let _lock = lock(&paths::e2e().join("k3s-release.lock"))?;
        // Kept: the image has the time at which it was made, and the medium would be built anew each time.
        if !made.join("done").exists() {
            make(&made)?;
        }
    }
    let beside = definition.parent().context("the directory of the definition")?;
    copy_tree(&made, &beside.join("k3s-release"))?;
    let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(definition)?)?;
    let kubernetes = json!({ "distribution": "k3s", "version": version()?, "artifacts": "k3s-release" });
    document["kubernetes"] = serde_yaml::to_value(kubernetes)?;
    fs::write(beside.join("k3s-defaults.yaml"), "kubernetes: {distribution: k3s}\n")?;
    document["install_defaults"] = "k3s-defaults.yaml".into();
    document.as_mapping_mut().context("a definition")?.remove("install_config");
    Ok(fs::write(definition, serde_yaml::to_string(&document)?)?)
}

fn make(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let program = directory.join("k3s");
    match real() {
        Some(real) => drop(fs::copy(real, &program)?),
        None => fs::write(&program, script())?,
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    images(directory)?;
    let mut sums = String::new();
    for name in ["k3s", IMAGES] {
        let (digest, _) = Digest::of_reader(fs::File::open(directory.join(name))?)?;
        sums.push_str(&format!("{digest}  {name}\n"));
    }
    fs::write(directory.join("sha256sum-amd64.txt"), sums)?;
    Ok(fs::write(directory.join("done"), "")?)
}

/// An archive with the image that carries the virtual address, which every medium with a distribution has to hold.
fn images(directory: &Path) -> Result<()> {
    let scratch = tempfile::tempdir_in(directory)?;
    let layout = Layout::new(&scratch.path().join("layout"))?;
    layout.image("vip", None, &[("e2e-vip", b"vip")])?;
    let archive = scratch.path().join("images.tar");
    let name = installer::node::cluster::vip_image()?;
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--quiet"]).arg(layout.source("vip"));
    skopeo.arg(format!("docker-archive:{}:{name}", archive.display()));
    programs::run(&mut skopeo, LIMIT)?.success("skopeo copy")?;
    let mut zstd = Command::new("zstd");
    zstd.args(["-q", "-o"]).arg(directory.join(IMAGES)).arg(&archive);
    programs::run(&mut zstd, LIMIT)?.success("zstd").map(drop)
}

fn script() -> String {
    format!(
        "#!/bin/sh\n\
         case \"$1\" in\n\
         --version) echo 'k3s version {VERSION} (e2e)' ;;\n\
         *) printf '%s\\n' \"$*\" > {ARGUMENTS}; systemd-notify --ready; exec sleep infinity ;;\n\
         esac\n"
    )
}
