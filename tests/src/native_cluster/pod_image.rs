//! The image of the pods that tests run: busybox alone, as Docker writes archives.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use base::digest::Digest;
use serde_json::json;

use super::BaseTree;
use crate::programs;

/// The name of the image in every node's store.
pub const POD_IMAGE: &str = "localhost/nqrust/busybox:1";

const PROGRAMS: [&str; 4] = ["sh", "httpd", "mkdir", "wget"];
const LIMIT: Duration = Duration::from_secs(60);

/// Writes the archive into `directory`.
pub(super) fn make(directory: &Path, base: &BaseTree) -> Result<PathBuf> {
    let image = directory.join("image");
    let programs_of = image.join("tree/bin");
    fs::create_dir_all(&programs_of)?;
    fs::copy(base.path().join("usr/bin/busybox"), programs_of.join("busybox"))?;
    fs::set_permissions(programs_of.join("busybox"), fs::Permissions::from_mode(0o755))?;
    for name in PROGRAMS {
        symlink("busybox", programs_of.join(name))?;
    }
    pack(&image.join("layer.tar"), &image.join("tree"), &["."])?;
    let (digest, _) = Digest::of_reader(fs::File::open(image.join("layer.tar"))?)?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [digest.oci()] },
    });
    fs::write(image.join("config.json"), config.to_string())?;
    let manifest = json!([{ "Config": "config.json", "RepoTags": [POD_IMAGE], "Layers": ["layer.tar"] }]);
    fs::write(image.join("manifest.json"), manifest.to_string())?;
    let archive = directory.join("busybox.tar");
    pack(&archive, &image, &["manifest.json", "config.json", "layer.tar"])?;
    Ok(archive)
}

fn pack(archive: &Path, directory: &Path, files: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--file"]).arg(archive).arg("--directory").arg(directory);
    programs::run(tar.args(files), LIMIT)?.success("tar").map(drop)
}
