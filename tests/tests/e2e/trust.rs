//! What signed releases and customizations are worth on a machine: a node takes no release below its floor, which its updates raise, and
//! none that is revoked or of a revoked key; an install that demands signed customizations refuses others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base::files;
use base::size::ByteSize;
use formats::minisign::PublicKey;
use model::rollback_index::RollbackIndex;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium;
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::secrets;
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    self, BROKEN, CURRENT, LATER, NEXT, UPDATE_LIMIT, awaited, boot_files, boot_id, changed_release,
    from_served, manifest_digest, release, restarted, serve, settled, slot,
};
use serde_json::{Value, json};
use trust::{Revocations, TrustMemory};

use crate::bad_input::refused_in_vm;
use crate::broken_release::drop_in;

/// The rollback index of the release that is installed, and so the floor of its node. Other releases have 0.
const FLOOR: RollbackIndex = RollbackIndex(2);
/// That of releases which the node takes.
const ABOVE: RollbackIndex = RollbackIndex(3);

const SIZE: ByteSize = ByteSize::gib(24);

/// A key of somebody else than the user of the builder, without a passphrase. It is made once for a target directory, so that media whose
/// definitions name it stay usable between runs.
struct OtherKey {
    directory: PathBuf,
    name: &'static str,
    public: PublicKey,
}

impl OtherKey {
    fn load(name: &'static str) -> Result<Self> {
        let directory = paths::e2e().join("keys");
        files::make_directory(&directory, 0o700)?;
        let _lock = medium::lock(&directory.join("lock"))?;
        let public = directory.join(format!("{name}.pub"));
        if !public.exists() {
            let mut make = programs::iso_builder()?;
            make.args(["keys", "new", name, "--no-passphrase", "--keys"]).arg(&directory);
            programs::run(&mut make, steps::COMMAND_LIMIT)?.success("iso-builder keys new")?;
        }
        let public = PublicKey::parse(&fs::read_to_string(&public)?).context("reading a public key")?;
        Ok(Self { directory, name, public })
    }

    /// Makes `command`, one of `iso-builder`, sign with this key.
    fn sign(&self, command: &mut Command) {
        command.args(["--sign-with", self.name, "--keys"]).arg(&self.directory);
    }

    /// How a node and an install name the key.
    fn id(&self) -> String {
        format!("key {}", self.public.id())
    }
}

fn set_trust(definition: &mut serde_yaml::Value, trust: &Value) -> Result<()> {
    definition["trust"] = serde_yaml::to_value(trust)?;
    Ok(())
}

#[test]
#[ignore = "an install and two updates: `make soak` runs it"]
fn a_node_takes_no_release_below_its_floor_and_none_that_is_revoked_or_of_a_revoked_key() {
    scenario("trust-floor", |artifacts| {
        let identity = Identity::load()?;
        let retired = OtherKey::load("retired")?;
        let revoked = json!({ "keys": [retired.public.id().to_string()] });
        let installed = changed_release(&identity, "trust-floor", CURRENT, |definition| {
            set_trust(definition, &json!({ "rollback_index": FLOOR, "revoked": revoked }))
        })?;
        let below = release(&identity, "update-next", NEXT, &[])?;
        let with_index = |name: &str, version: &str, trust: &Value| {
            let trust = trust.clone();
            changed_release(&identity, name, version, move |definition| set_trust(definition, &trust))
        };
        let recalled = with_index("trust-recalled", BROKEN, &json!({ "rollback_index": ABOVE }))?;
        let recalled_digest = manifest_digest(&recalled.full)?;
        let above = with_index(
            "trust-above",
            NEXT,
            &json!({ "rollback_index": ABOVE, "revoked": { "releases": [recalled_digest.to_string()] } }),
        )?;
        let later = with_index("trust-later", LATER, &json!({ "rollback_index": ABOVE }))?;
        let served = artifacts.disk("www");
        let offered = [
            ("installed", &installed),
            ("below", &below),
            ("above", &above),
            ("recalled", &recalled),
            ("later", &later),
        ];
        for (name, medium) in offered {
            serve(medium, &served, name)?;
        }
        // The same release but for its signature.
        let resigned = served.join("revoked.iso");
        fs::copy(&above.full, &resigned)?;
        updates::remove_signatures(&resigned)?;
        let mut sign = programs::iso_builder()?;
        sign.args(["keys", "sign"]).arg(&resigned);
        retired.sign(&mut sign);
        programs::run(&mut sign, steps::COMMAND_LIMIT)?.success("iso-builder keys sign")?;
        let server = Server::start(&served, 0)?;

        let disk = Disk::empty(artifacts.disk("node.qcow2"), SIZE)?;
        let machine = |purpose: &str| Machine::new(purpose, Firmware::Bios).network(MAC).disk(&disk);
        steps::install(&machine("install").cdrom(&installed.full), artifacts)?;
        let (mut vm, ssh) = steps::boot(&machine("node").reboots(), &identity, artifacts)?;
        let mut checks = Checks::default();
        settled(&ssh)?;
        let before = remembering(&ssh, FLOOR)?;
        let keys: BTreeSet<_> = [retired.public.id()].into();
        let revoked = Revocations { keys, ..Revocations::default() };
        let expected = TrustMemory { floor: FLOOR, revoked: revoked.clone() };
        checks.equal("what the node remembers", &memory(&ssh)?, &expected);
        checks.contains("the status", &ssh.run("sudo -n installer status")?, &expected.to_string());
        let state = || Ok::<_, anyhow::Error>((boot_id(&ssh)?, boot_files(&ssh)?, kept(&ssh)?));
        let untouched = state()?;

        let too_old =
            format!("its rollback index is {}, and the floor of the node is {FLOOR}", RollbackIndex(0));
        let reasons = [
            ("below", too_old),
            ("revoked", format!("it is signed with the {}, which is revoked", retired.id())),
        ];
        for (name, reason) in reasons {
            refused(&ssh, &served, &server, name, &reason, &mut checks)?;
        }
        checks.equal("the status after that", updates::status(&ssh)?, before);
        checks.equal("the start, the boot files and what is kept of updates", state()?, untouched);

        let update = |what: &str, name: &str| {
            format!("sudo -n installer update {what} --from http://10.0.2.2:{}/{name}.iso", server.port())
        };
        // Not revoked yet, so a node may have it.
        for (name, version) in [("recalled", BROKEN), ("above", NEXT)] {
            let offered = ssh.attempt(&update("check", name), UPDATE_LIMIT)?;
            checks.equal("the exit code for a release above the floor", offered.code, 0);
            checks.contains("its plan", &offered.stdout, &format!("{version} in place of {CURRENT}"));
            checks.contains("its plan", &offered.stdout, &format!("rollback index {ABOVE}"));
        }

        // With the first release that has the higher index, the slot of the install can still start, so the floor stays.
        let ssh = updated(&mut vm, &ssh, &update("apply --wait 600", "above"), NEXT, (&identity, artifacts))?;
        remembering(&ssh, FLOOR)?;
        let revoked = Revocations { releases: [recalled_digest].into(), ..revoked };
        let expected = TrustMemory { floor: FLOOR, revoked: revoked.clone() };
        checks.equal("what the node remembers of the release", &memory(&ssh)?, &expected);
        refused(&ssh, &served, &server, "recalled", "the release is revoked", &mut checks)?;
        let back = ssh.attempt(&update("check --allow-downgrade", "installed"), UPDATE_LIMIT)?;
        checks.equal("the exit code for the release of the install", back.code, 0);

        // With the second, nothing below it can start any more. What the release before had revoked stays so.
        let ssh =
            updated(&mut vm, &ssh, &update("apply --wait 600", "later"), LATER, (&identity, artifacts))?;
        remembering(&ssh, ABOVE)?;
        checks.equal(
            "what the node remembers in the end",
            &memory(&ssh)?,
            &TrustMemory { floor: ABOVE, revoked },
        );
        let too_old = format!("its rollback index is {FLOOR}, and the floor of the node is {ABOVE}");
        refused(&ssh, &served, &server, "installed", &too_old, &mut checks)?;
        refused(&ssh, &served, &server, "recalled", "the release is revoked", &mut checks)?;
        let ssh = updated(&mut vm, &ssh, "sudo -n installer update rollback", NEXT, (&identity, artifacts))?;
        checks.equal("the floor with the other slot", &memory(&ssh)?.floor, &ABOVE);
        steps::collect_journal(&ssh, artifacts, "after")?;
        checks.finish("the floor and what is revoked")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// Waits until the recovery system is that of the release that runs and the node remembers this floor.
fn remembering(ssh: &Ssh, floor: RollbackIndex) -> Result<Value> {
    awaited(ssh, UPDATE_LIMIT, &format!("a node that remembers the floor {floor}"), |status| {
        let running = slot(status, status["running"].as_str().unwrap_or_default());
        slot(status, "recovery").0 == running.0 && status["trust"]["remembers"]["floor"] == json!(floor)
    })
}

fn memory(ssh: &Ssh) -> Result<TrustMemory> {
    Ok(TrustMemory::parse(ssh.run("sudo -n cat /oem/trust-memory.json")?.as_bytes())?)
}

/// Runs a command of `installer update` after which the node restarts into a good release of this version.
fn updated(
    vm: &mut Vm,
    ssh: &Ssh,
    command: &str,
    version: &str,
    (identity, artifacts): (&Identity, &Artifacts),
) -> Result<Ssh> {
    let ssh = restarted(vm, ssh, command, identity, artifacts)?;
    let status = settled(&ssh)?;
    let running = slot(&status, status["running"].as_str().unwrap_or_default());
    ensure!(running == (version.into(), "good".into()), "{version} does not run: {status}");
    Ok(ssh)
}

/// Checks that the node refuses the release that is served by this name, whatever a person allows.
fn refused(
    ssh: &Ssh,
    served: &Path,
    server: &Server,
    name: &str,
    reason: &str,
    checks: &mut Checks,
) -> Result<()> {
    let url = format!("--from http://10.0.2.2:{}/{name}.iso", server.port());
    let digest = from_served(served, server.port(), name)?;
    for words in [
        format!("check {url}"),
        format!("apply --wait 600 {url}"),
        format!("apply --wait 600 --allow-unsigned --allow-downgrade --retry {digest}"),
    ] {
        let ended = ssh.attempt(&format!("sudo -n installer update {words}"), UPDATE_LIMIT)?;
        checks.equal(&format!("the exit code of `{words}`"), ended.code, 4);
        checks.contains(&format!("the error of `{words}`"), &ended.stderr, reason);
    }
    Ok(())
}

/// The names of what the node keeps of updates.
fn kept(ssh: &Ssh) -> Result<String> {
    ssh.run("sudo -n find /var/lib/nqrust/update | sort")
}

#[test]
#[ignore = "starts a medium twice: `make soak` runs it"]
fn an_install_that_demands_signed_customizations_refuses_others() {
    scenario("trust-customization", |artifacts| {
        let identity = Identity::load()?;
        let site = OtherKey::load("site")?;
        let medium = changed_release(&identity, "trust-customization", CURRENT, |definition| {
            let development = PublicKey::parse(&fs::read_to_string(paths::keys().join("development.pub"))?)?;
            let keys = [("development", development), (site.name, site.public)];
            let keys = keys.map(|(name, key)| json!({ "name": name, "key": key.to_string() }));
            set_trust(definition, &json!({ "keys": keys, "customization": "signed" }))
        })?;
        let unsigned = customized(&medium.full, None, &identity, artifacts)?;
        let signed = customized(&medium.full, Some(&site), &identity, artifacts)?;

        // Neither that configuration is installed nor the one that the medium was built with.
        let live = steps::node("unsigned", Firmware::Bios, "");
        let words = [
            "the customization of the medium at /run/initramfs/live is not trusted",
            "it is not signed",
            "the install has exited with 4",
        ];
        refused_in_vm("unsigned", live, &|live| live.cdrom(&unsigned), SIZE, &words, artifacts)?;

        let disk = Disk::empty(artifacts.disk("signed.qcow2"), SIZE)?;
        let live = steps::node("signed", Firmware::Bios, "").disk(&disk).cdrom(&signed);
        let mut vm = live.start(artifacts)?;
        let signer = format!("The customization of the medium is signed by site ({})", site.id());
        steps::expect(&mut vm, &signer, steps::INSTALL_LIMIT)?;
        vm.kill()?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// A copy of the ISO with a configuration, signed with `key`, if there is one. The install that it starts says on the console how it has
/// ended.
fn customized(
    original: &Path,
    key: Option<&OtherKey>,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<PathBuf> {
    let name = if key.is_some() { "signed" } else { "unsigned" };
    let (iso, document) = (artifacts.disk(&format!("{name}.iso")), artifacts.disk(&format!("{name}.yaml")));
    fs::write(&document, Document::new("node-of-the-site").to_json(identity).to_string())?;
    let told = "echo the install has $EXIT_CODE with $EXIT_STATUS > /dev/ttyS0";
    let drop_in =
        drop_in("nqrust-install.service", &format!("[Service]\nExecStopPost=/bin/sh -c '{told}'\n"));
    let mut command = programs::iso_builder()?;
    command.args(["customize", "--progress", "plain"]).arg(original).arg("-o").arg(&iso);
    command.arg("--config").arg(&document).args(["--kernel-argument", &drop_in]);
    if let Some(key) = key {
        key.sign(&mut command);
    }
    programs::run(&mut command, steps::COMMAND_LIMIT)?.success("iso-builder customize")?;
    Ok(iso)
}
