//! Updates of a node: releases that it is updated to, and what it says of its slots.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use ::medium::iso::IsoMap;
use ::medium::payload_sources::{IsoFile, PayloadSource};
use ::medium::reader::MediumReader;
use ::medium::signatures;
use anyhow::{Context, Result, bail};
use base::digest::Digest;
use serde_json::{Value, json};

use crate::artifacts::Artifacts;
use crate::deadline::{Deadline, MACHINE_INTERVAL};
use crate::identity::{Identity, USER};
use crate::medium::{self, Medium};
use crate::node::Document;
use crate::qemu::Vm;
use crate::ssh::Ssh;

/// The version of the media under test: the definitions of this repository have that of its programs.
pub const CURRENT: &str = env!("CARGO_PKG_VERSION");
/// The versions of later releases, in their order. No release of ours will ever reach them.
pub const NEXT: &str = "1000.0.0";
pub const BROKEN: &str = "1001.0.0";
pub const LATER: &str = "1002.0.0";

/// For a whole update: writing, reading back, a restart, and the minute for which a boot has to be good; or three starts
/// that fail.
pub const UPDATE_LIMIT: Duration = Duration::from_secs(900);

/// For one attempt to log in to a node that may be starting.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

/// The medium of another version, with these kernel arguments for every boot of it.
pub fn release(identity: &Identity, name: &str, version: &str, arguments: &[&str]) -> Result<Medium> {
    changed_release(identity, name, version, |definition| set_kernel_arguments(definition, arguments))
}

/// The medium of another version whose definition differs by `change`.
pub fn changed_release(
    identity: &Identity,
    name: &str,
    version: &str,
    change: impl FnOnce(&mut serde_yaml::Value) -> Result<()>,
) -> Result<Medium> {
    Medium::built(name, |directory| {
        let definition = medium::stage(directory, &Document::new("node-a").to_json(identity))?;
        set_version(&definition, version, change)?;
        Ok(definition)
    })
}

/// Makes a definition one of another version that differs by `change`.
pub fn set_version(
    definition: &Path,
    version: &str,
    change: impl FnOnce(&mut serde_yaml::Value) -> Result<()>,
) -> Result<()> {
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(definition)?)?;
    value["version"] = version.into();
    change(&mut value)?;
    fs::write(definition, serde_yaml::to_string(&value)?)
        .with_context(|| format!("writing {}", definition.display()))
}

/// Gives a definition these kernel arguments for every boot, if there are any.
pub fn set_kernel_arguments(definition: &mut serde_yaml::Value, arguments: &[&str]) -> Result<()> {
    if !arguments.is_empty() {
        definition["kernel"] = serde_yaml::to_value(json!({ "arguments": arguments }))?;
    }
    Ok(())
}

/// Puts the ISO of a medium into a directory that is served, as `NAME.iso`.
pub fn serve(medium: &Medium, directory: &Path, name: &str) -> Result<()> {
    let place = directory.join(format!("{name}.iso"));
    fs::create_dir_all(directory)?;
    fs::hard_link(&medium.full, &place)
        .or_else(|_| fs::copy(&medium.full, &place).map(drop))
        .with_context(|| format!("putting {} to {}", medium.full.display(), place.display()))
}

/// The arguments of `installer update` for the ISO that [`serve`] has put into `directory`, from the server at `port` of the host. It
/// is http, so the digest of the release belongs to them.
pub fn from_served(directory: &Path, port: u16, name: &str) -> Result<String> {
    let digest = manifest_digest(&directory.join(format!("{name}.iso")))?;
    Ok(format!("--from http://10.0.2.2:{port}/{name}.iso --sha256 {digest}"))
}

/// What a release is named by: the digest of the manifest of the ISO at `path`.
pub fn manifest_digest(path: &Path) -> Result<Digest> {
    Ok(Digest::of(&IsoFile::new(MediumReader::open(path)?).manifest()?))
}

/// Makes the ISO at `path` an unsigned one, as the build leaves it that has no key.
pub fn remove_signatures(path: &Path) -> Result<()> {
    let medium = MediumReader::open(path)?;
    let release = medium.release()?;
    let map = IsoMap::of(&release, medium.manifest())?.context("an ISO of this builder")?;
    let unsigned = signatures::padded(None)?;
    let file = File::options().write(true).open(path)?;
    Ok(file.write_all_at(&unsigned, map.signatures.0)?)
}

/// The output of `installer update status`.
pub fn status(ssh: &Ssh) -> Result<Value> {
    let told = ssh.attempt("sudo -n installer --format json update status", Duration::from_secs(60))?;
    if ![0, 9].contains(&told.code) {
        bail!("installer update status ended with exit code {}: {}", told.code, told.stderr);
    }
    serde_json::from_str(&told.stdout).context("the status of updates")
}

pub fn running(ssh: &Ssh) -> Result<String> {
    Ok(status(ssh)?["running"].as_str().unwrap_or_default().to_owned())
}

/// The version and the state of a slot.
#[must_use]
pub fn slot(status: &Value, name: &str) -> (String, String) {
    let slots = status["slots"].as_array().cloned().unwrap_or_default();
    let found = slots.into_iter().find(|slot| slot["slot"] == name).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["release"]["version"]), text(&found["state"]))
}

/// Waits until this boot is known to be good.
pub fn settled(ssh: &Ssh) -> Result<Value> {
    awaited(ssh, UPDATE_LIMIT, "a boot that is known to be good", |status| status["state"] == "idle")
}

/// Waits for something to be true of the status.
pub fn awaited(ssh: &Ssh, limit: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    Deadline::after(limit).every(MACHINE_INTERVAL).poll(what, || {
        let status = status(ssh)?;
        Ok(holds(&status).then_some(status))
    })
}

/// The files of the EFI system partition but the boot record, each with its digest.
pub fn boot_files(ssh: &Ssh) -> Result<String> {
    ssh.run(
        "sudo -n sh -euc 'at=$(mktemp -d); mount -o ro /dev/disk/by-partlabel/esp $at; cd $at; \
         find . -type f ! -name grubenv -exec sha256sum {} + | sort; cd /; umount $at'",
    )
}

/// Tells the starts of a node apart (random(4)).
pub fn boot_id(ssh: &Ssh) -> Result<String> {
    ssh.run("cat /proc/sys/kernel/random/boot_id")
}

/// Logs in until a system answers for which `holds`; one that cannot be asked counts as another.
pub fn logged_in_where(
    vm: &mut Vm,
    (identity, artifacts): (&Identity, &Artifacts),
    (what, limit): (&str, Duration),
    holds: impl Fn(&Ssh) -> Result<bool>,
) -> Result<Ssh> {
    let port = vm.ssh_port()?;
    Deadline::after(limit).every(MACHINE_INTERVAL).poll(what, || {
        let Ok(ssh) = Ssh::connect(port, USER, identity, artifacts, LOGIN_LIMIT) else {
            return Ok(None);
        };
        Ok(holds(&ssh).is_ok_and(|holds| holds).then_some(ssh))
    })
}

/// Runs a command that ends in a restart, and logs in to the system after it for which `holds`: one that does not start, or not for
/// long, is passed over.
pub fn restarted_where(
    vm: &mut Vm,
    ssh: &Ssh,
    command: &str,
    tools: (&Identity, &Artifacts),
    (what, limit): (&str, Duration),
    holds: impl Fn(&Ssh) -> Result<bool>,
) -> Result<Ssh> {
    let before = boot_id(ssh)?;
    let ended = ssh.attempt(command, limit)?;
    // The connection may break before the command has ended: 255.
    if ![0, 255].contains(&ended.code) {
        bail!("`{command}` ended with exit code {}: {}", ended.code, ended.stderr);
    }
    logged_in_where(vm, tools, (what, limit), |ssh| Ok(boot_id(ssh)? != before && holds(ssh)?))
}

/// As [`restarted_where`], to whatever system comes next.
pub fn restarted(
    vm: &mut Vm,
    ssh: &Ssh,
    command: &str,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<Ssh> {
    let wanted = ("the system after the restart", UPDATE_LIMIT);
    restarted_where(vm, ssh, command, (identity, artifacts), wanted, |_| Ok(true))
}
