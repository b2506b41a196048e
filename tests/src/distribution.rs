//! The release of a Kubernetes distribution for the medium of a cluster. `NQRUST_K3S_BINARY` names a real K3s (the
//! program `k3s`), `NQRUST_RKE2_DIR` a real RKE2 (a directory with the files of a release). Otherwise a stand-in
//! program takes the place of K3s: it records how it was started and keeps running.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::digest::Digest;
use model::config::Distribution;
use serde_json::json;

use crate::medium::{copy_tree, lock};
use crate::paths;
use crate::programs;
use crate::registry::Layout;

/// The version that the stand-in program reports.
const VERSION: &str = "v1.33.1+k3s1";
/// Where the stand-in program writes its arguments.
pub const ARGUMENTS: &str = "/run/e2e-k3s-arguments";

const IMAGES: &str = "k3s-airgap-images-amd64.tar.zst";
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub enum RealRelease {
    K3s(PathBuf),
    /// The directory of its files.
    Rke2(PathBuf),
}

/// The real release, if there is one.
#[must_use]
pub fn real() -> Option<RealRelease> {
    let named = |variable: &str| env::var_os(variable).map(PathBuf::from);
    named("NQRUST_RKE2_DIR")
        .map(RealRelease::Rke2)
        .or_else(|| named("NQRUST_K3S_BINARY").map(RealRelease::K3s))
}

#[must_use]
pub fn distribution() -> Distribution {
    match real() {
        Some(RealRelease::Rke2(_)) => Distribution::Rke2,
        Some(RealRelease::K3s(_)) | None => Distribution::K3s,
    }
}

/// The version that the program reports.
pub fn version() -> Result<String> {
    let (program, _unpacked) = match real() {
        None => return Ok(VERSION.into()),
        Some(RealRelease::K3s(program)) => (program, None),
        Some(RealRelease::Rke2(directory)) => {
            let unpacked = tempfile::tempdir()?;
            let mut tar = Command::new("tar");
            tar.arg("--extract").arg("--file").arg(directory.join("rke2.linux-amd64.tar.gz"));
            tar.arg("--directory").arg(unpacked.path()).arg("bin/rke2");
            programs::run(&mut tar, LIMIT)?.success("unpacking rke2")?;
            (unpacked.path().join("bin/rke2"), Some(unpacked))
        }
    };
    let said =
        programs::run(Command::new(program).arg("--version"), LIMIT)?.success("asking for the version")?;
    said.split_whitespace().nth(2).map(str::to_owned).context("reading the version of the distribution")
}

/// Puts the release beside `definition` and names it there; embedded configurations are removed.
pub fn add(definition: &Path) -> Result<()> {
    let made = paths::e2e().join("k3s-release");
    let identity = format!("{} {}", real().is_some(), version()?);
    {
        let _lock = lock(&paths::e2e().join("k3s-release.lock"))?;
        // Kept, because the image has the time at which it was made: a new one would change the medium each time.
        if !fs::read_to_string(made.join("done")).is_ok_and(|kept| kept == identity) {
            make(&made)?;
            fs::write(made.join("done"), &identity)?;
        }
    }
    let beside = definition.parent().context("the directory of the definition")?;
    let name = distribution().name();
    let artifacts = match real() {
        Some(RealRelease::Rke2(directory)) => directory,
        _ => {
            copy_tree(&made, &beside.join("k3s-release"))?;
            "k3s-release".into()
        }
    };
    let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(definition)?)?;
    let kubernetes = json!({ "distribution": name, "version": version()?, "artifacts": artifacts });
    document["kubernetes"] = serde_yaml::to_value(kubernetes)?;
    fs::write(beside.join("defaults.yaml"), format!("kubernetes: {{distribution: {name}}}\n"))?;
    document["install_defaults"] = "defaults.yaml".into();
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
        Some(RealRelease::K3s(real)) => drop(fs::copy(real, &program)?),
        Some(RealRelease::Rke2(_)) | None => fs::write(&program, script())?,
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    images(directory)?;
    let mut sums = String::new();
    for name in ["k3s", IMAGES] {
        let (digest, _) = Digest::of_reader(fs::File::open(directory.join(name))?)?;
        sums.push_str(&format!("{digest}  {name}\n"));
    }
    Ok(fs::write(directory.join("sha256sum-amd64.txt"), sums)?)
}

/// An archive with the image that carries the virtual address, which every medium with a distribution needs. A real
/// cluster needs the real image, which the build pulls from its registry like the others.
fn images(directory: &Path) -> Result<()> {
    let scratch = tempfile::tempdir_in(directory)?;
    let layout = Layout::new(&scratch.path().join("layout"))?;
    layout.image("vip", None, &[("e2e-vip", b"vip")])?;
    let archive = scratch.path().join("images.tar");
    let name = match real() {
        Some(_) => "localhost/e2e/none:1".to_owned(),
        None => model::os_image::vip_image()?.to_string(),
    };
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
