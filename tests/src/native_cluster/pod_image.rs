//! The images of the pods that tests run, as Docker writes archives.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use base::digest::Digest;
use serde_json::{Value, json};

use super::BaseTree;
use crate::programs;

/// The name of the image in every node's store: busybox alone.
pub const POD_IMAGE: &str = "localhost/nqrust/busybox:1";

const PROGRAMS: [&str; 4] = ["sh", "httpd", "mkdir", "wget"];
const LIMIT: Duration = Duration::from_secs(60);

/// Writes the archive of [`POD_IMAGE`] into `directory`.
pub(super) fn make(directory: &Path, base: &BaseTree) -> Result<PathBuf> {
    let image = directory.join("image");
    let programs_of = image.join("tree/bin");
    place(&base.path().join("usr/bin/busybox"), &programs_of)?;
    for name in PROGRAMS {
        symlink("busybox", programs_of.join(name))?;
    }
    archive(
        &image,
        &image.join("tree"),
        POD_IMAGE,
        &json!({ "Env": ["PATH=/bin"] }),
        &directory.join("busybox.tar"),
    )
}

/// Writes the archive of an image that has `program`, a static one, and nothing else, and starts it.
pub(super) fn make_of_program(directory: &Path, program: &Path, name: &str) -> Result<PathBuf> {
    let image = directory.join("image");
    place(program, &image.join("tree/bin"))?;
    let own = program.file_name().unwrap_or_default().to_string_lossy();
    let config = json!({ "Entrypoint": [format!("/bin/{own}")] });
    archive(&image, &image.join("tree"), name, &config, &directory.join(format!("{own}.tar")))
}

/// Writes the archive of an image that has the files of `tree`, all of them root's.
pub(super) fn make_of_tree(directory: &Path, tree: &BaseTree, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let config = json!({ "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"] });
    archive(directory, tree.path(), name, &config, &directory.join("image.tar"))
}

/// Puts a program into a directory of an image.
fn place(program: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let path = directory.join(program.file_name().unwrap_or_default());
    fs::copy(program, &path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Writes the archive of the image whose files are in `tree`; `image` is a directory for its parts.
fn archive(image: &Path, tree: &Path, name: &str, config: &Value, archive: &Path) -> Result<PathBuf> {
    pack(&image.join("layer.tar"), tree, &["."])?;
    let (digest, _) = Digest::of_reader(fs::File::open(image.join("layer.tar"))?)?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [digest.oci()] },
    });
    fs::write(image.join("config.json"), config.to_string())?;
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    fs::write(image.join("manifest.json"), manifest.to_string())?;
    pack(archive, image, &["manifest.json", "config.json", "layer.tar"])?;
    Ok(archive.to_owned())
}

/// Packs an OCI image layout, as containerd reads it too.
pub(super) fn pack_layout(layout: &Path, archive: &Path) -> Result<PathBuf> {
    pack(archive, layout, &["."])?;
    Ok(archive.to_owned())
}

fn pack(archive: &Path, directory: &Path, files: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--file"]).arg(archive).arg("--directory").arg(directory);
    programs::run(tar.args(files), LIMIT)?.success("tar").map(drop)
}
