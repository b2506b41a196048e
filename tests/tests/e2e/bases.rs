//! Bases other than the Debian packages of the definitions: a base from an OCI layout or from a directory gives the same OS
//! image, and the release of Debian before theirs still becomes a node.
//!
//! The tree is the one that the shared medium was made from, as its build keeps it. An ordinary user builds; the
//! details of the forms are tested with `iso-builder`, without complete trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::size::ByteSize;
use model::release::Purpose;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::builder::BuilderDirectory;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document};
use nqrust_tests::qemu::Firmware;
use nqrust_tests::{paths, programs, steps};
use serde_json::{Value, json};

/// The time limit of unpacking a complete tree.
const UNPACK: Duration = Duration::from_secs(300);

/// The release of Debian before that of the definitions.
const OLDER_SUITE: &str = "bookworm";
/// Packages of the definitions that the older release does not have; its `procps` has what they bring.
const NEWER_PACKAGES: [&str; 1] = ["linux-sysctl-defaults"];

#[test]
fn a_layout_with_layers_and_a_directory_give_the_os_image_of_the_debian_packages() {
    scenario("bases", |artifacts| {
        let identity = Identity::load()?;
        let debian = steps::medium(&identity)?.release()?;
        let base = debian_base()?;
        let place = BuilderDirectory::new()?;
        let definition = medium::stage(&place.path("src"), &Document::new("node-a").to_json(&identity))?;
        let mut checks = Checks::default();
        let mut built = Vec::new();
        for form in ["oci", "directory"] {
            match form {
                "oci" => write_layout(&place.path("tree"), &base)?,
                _ => unpack(&place, &base)?,
            }
            let definition = with_base(&definition, &json!({ form: { "path": place.path("tree") } }))?;
            let mut build = place.build(&definition)?;
            build.args(["--only", "netboot"]);
            let ended = programs::run(&mut build, medium::BUILD_LIMIT)?;
            artifacts.append("build.log", &ended.said())?;
            ended.success(&format!("the build from {form}"))?;
            remove_tree(&place)?;
            let digests =
                ["rootfs.squashfs", "vmlinuz", "initrd"].map(|name| output(&place.path("out"), name));
            built.push(digests.into_iter().collect::<Result<Vec<Digest>>>()?);
        }
        for (number, purpose) in [Purpose::Rootfs, Purpose::Kernel].into_iter().enumerate() {
            let payload = debian.payload(purpose).with_context(|| format!("a medium has {purpose:?}"))?;
            checks.equal(&format!("{purpose:?} from a layout"), built[0][number], payload.sha256);
        }
        // Its files have the times of those of the base: in an import one time for all.
        checks.equal("what a directory gives, initrd included", &built[1], &built[0]);
        checks.finish("bases")
    });
}

#[test]
fn the_release_of_debian_before_that_of_the_definitions_still_builds() {
    scenario("older-debian-build", |_| {
        let medium = older_medium(&Identity::load()?)?;
        let mut checks = Checks::default();
        let told = os_release(&medium.full.with_extension("").display().to_string())?;
        checks.contains("the release of the OS image", &told, OLDER_SUITE);
        checks.finish("the media of the older release")
    });
}

/// On BIOS, where the boot loader is made in the build, by the GRUB of the base; with its dracut, kernel and containerd.
#[test]
#[ignore = "an install and a boot more: `make soak` runs it"]
fn the_release_of_debian_before_that_of_the_definitions_installs_on_bios_and_starts() {
    scenario("older-debian", |artifacts| {
        let identity = Identity::load()?;
        let medium = older_medium(&identity)?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        steps::install(&live, artifacts)?;
        let machine = steps::node("first-boot", Firmware::Bios, "").disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        checks.contains("the release", &ssh.run("cat /etc/os-release")?, OLDER_SUITE);
        node::check_document(&ssh, &Document::new("node-a"), &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        node::check_images(&ssh, &medium.release()?, "management", &mut checks)?;
        checks.finish("a node of the older release")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// `os-release` in the OS image of the build whose files begin with `name`.
fn os_release(name: &str) -> Result<String> {
    let mut read = Command::new("unsquashfs");
    read.arg("-cat").arg(format!("{name}-rootfs.squashfs")).arg("usr/lib/os-release");
    programs::run(&mut read, UNPACK)?.success("unsquashfs")
}

/// The media of the definition with the older release.
fn older_medium(identity: &Identity) -> Result<Medium> {
    Medium::built_apart("older-debian", |directory| {
        let definition = medium::stage(directory, &Document::new("node-a").to_json(identity))?;
        let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
        document["packages"]["suite"] = OLDER_SUITE.into();
        let include = document["base"]["debian"]["include"].as_sequence_mut();
        include
            .context("the definition includes packages")?
            .retain(|package| package.as_str().is_none_or(|package| !NEWER_PACKAGES.contains(&package)));
        fs::write(&definition, serde_yaml::to_string(&document)?)?;
        Ok(definition)
    })
}

/// The tree that the shared medium was made from: the newest one, since a new lock makes a new one.
fn debian_base() -> Result<PathBuf> {
    let mut newest = None;
    for entry in fs::read_dir(paths::e2e().join("media/cache/steps"))? {
        let path = entry?.path().join("base.tar");
        if let Ok(metadata) = fs::metadata(&path) {
            newest = newest.max(Some((metadata.modified()?, path)));
        }
    }
    Ok(newest.context("the build of the medium keeps its base")?.1)
}

/// The definition with another base, and without container images, whose packages do not matter here.
fn with_base(definition: &Path, base: &Value) -> Result<PathBuf> {
    let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(definition)?)?;
    document["base"] = serde_yaml::to_value(base)?;
    document["images"]["preload"] = serde_yaml::Value::Sequence(Vec::new());
    let path = definition.with_file_name("other-base.yaml");
    fs::write(&path, serde_yaml::to_string(&document)?)?;
    Ok(path)
}

/// Writes three layers: files that are to disappear, the tree, and whiteouts that make them disappear.
fn write_layout(directory: &Path, base: &Path) -> Result<()> {
    let layout = Layout(directory);
    fs::create_dir_all(directory.join(BLOBS))?;
    let scratch = tempfile::tempdir_in(directory)?;
    let lower = ["opt/gone/file", "opt/opaque/below/file", "usr/bin/ping", "usr/bin/installer.old"];
    let upper = ["opt/.wh.gone", "opt/opaque/.wh..wh..opq", "opt/.wh.opaque", "usr/bin/.wh.installer.old"];
    let mut layers = Vec::new();
    for file in
        [&small_layer(scratch.path(), "lower", &lower)?, base, &small_layer(scratch.path(), "upper", &upper)?]
    {
        layers.push(layout.keep("layer.v1.tar", file)?);
    }
    let config = layout.document("config.v1+json", &json!({ "architecture": "amd64", "os": "linux" }))?;
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let manifest = layout.document("manifest.v1+json", &manifest)?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    Ok(fs::write(directory.join("index.json"), index.to_string())?)
}

/// The directory of a layout's blobs.
const BLOBS: &str = "blobs/sha256";

struct Layout<'a>(&'a Path);

impl Layout<'_> {
    /// Adds a file as a blob and returns its descriptor.
    fn keep(&self, kind: &str, file: &Path) -> Result<Value> {
        let (digest, size) = Digest::of_reader(fs::File::open(file)?)?;
        fs::copy(file, self.0.join(BLOBS).join(digest.to_string()))?;
        let media_type = format!("application/vnd.oci.image.{kind}");
        Ok(json!({ "mediaType": media_type, "digest": digest.oci(), "size": size }))
    }

    fn document(&self, kind: &str, document: &Value) -> Result<Value> {
        let file = tempfile::NamedTempFile::new_in(self.0)?;
        fs::write(file.path(), document.to_string())?;
        self.keep(kind, file.path())
    }
}

/// An archive of `files`, whose content is the layer's name.
fn small_layer(scratch: &Path, name: &str, files: &[&str]) -> Result<PathBuf> {
    let (root, tar) = (scratch.join(name), scratch.join(format!("{name}.tar")));
    for file in files {
        fs::create_dir_all(root.join(file).parent().unwrap_or(&root))?;
        fs::write(root.join(file), name)?;
    }
    let mut pack = Command::new("tar");
    pack.args(["--create", "--owner=0", "--group=0", "--file"]).arg(&tar).arg("--directory").arg(&root);
    programs::run(pack.args(files), UNPACK)?.success("tar")?;
    Ok(tar)
}

/// Unpacks the tree as the ordinary user, with that user's subordinate owners.
fn unpack(place: &BuilderDirectory, base: &Path) -> Result<()> {
    let archive = place.path("base.tar");
    fs::copy(base, &archive)?;
    fs::create_dir(place.path("tree"))?;
    let mut tar = as_root_of_a_namespace(place)?;
    tar.args(["tar", "--extract", "--preserve-permissions", "--same-owner", "--numeric-owner", "--xattrs"]);
    tar.args(["--xattrs-include=*", "--anchored", "--exclude=./dev/*", "--directory"])
        .arg(place.path("tree"));
    programs::run(tar.arg("--file").arg(&archive), UNPACK)?.success("unpacking the base")?;
    fs::remove_file(archive)?;
    Ok(())
}

fn remove_tree(place: &BuilderDirectory) -> Result<()> {
    let mut remove = as_root_of_a_namespace(place)?;
    programs::run(remove.args(["rm", "-rf"]).arg(place.path("tree")), UNPACK)?
        .success("removing the tree")
        .map(drop)
}

fn as_root_of_a_namespace(place: &BuilderDirectory) -> Result<Command> {
    let mut command = place.command("unshare")?;
    command.args(["--user", "--map-auto", "--map-root-user", "--"]);
    Ok(command)
}

/// The digest of the output whose name has this end.
fn output(directory: &Path, end: &str) -> Result<Digest> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            return Ok(Digest::of_reader(fs::File::open(path)?)?.0);
        }
    }
    anyhow::bail!("the build left no {end}")
}
