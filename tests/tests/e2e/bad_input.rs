//! Bad input: a clear error, the documented exit code, and nothing written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use model::release::{Payload, Purpose};
use nix::unistd::Uid;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::damage::{invert, place_on};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::paths;
use nqrust_tests::programs::{self, ProgramOutput};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::steps;
use serde_json::{Value, json};

/// The time limit of a command without waits.
const QUICK_LIMIT: Duration = Duration::from_secs(120);

/// From the hint of an error on the console to what follows it there.
const TOLD_LIMIT: Duration = Duration::from_secs(30);

/// Checks that an error has its exit code, contains all the words, and is no panic.
fn refused(checks: &mut Checks, case: &str, ended: &ProgramOutput, code: i32, words: &[&str]) {
    checks.equal(&format!("{case}: the exit code"), ended.code, code);
    for word in words {
        checks.contains(&format!("{case}: standard error"), &ended.stderr, word);
    }
    checks.that(&format!("{case}: there is no panic and no backtrace"), !ended.said().contains("panicked"));
}

#[test]
fn a_definition_that_is_wrong_is_refused_and_nothing_is_written() {
    scenario("bad-definition", |artifacts| {
        let mut checks = Checks::default();
        let definition =
            medium::stage(&artifacts.disk("source"), &Document::new("node").to_json(&Identity::load()?))?;
        let original = fs::read_to_string(&definition)?;
        let mirror =
            json!({ "suite": "bookworm", "mirrors": ["deb http://127.0.0.1:1/debian bookworm main"] });
        let cases = [
            ("an unknown key", format!("{original}volme_label: X\n"), 2, "volme_label"),
            ("an unknown base source", with(&original, "base", &json!({ "floppy": "a.img" }))?, 2, "floppy"),
            ("a missing file", with(&original, "install_config", &json!("absent.yaml"))?, 2, "absent.yaml"),
            ("no YAML", "base: [".to_owned(), 2, "minimal.yaml"),
            ("a mirror that is down", with(&original, "packages", &mirror)?, 5, "127.0.0.1:1"),
        ];
        for (case, text, code, word) in cases {
            fs::write(&definition, text)?;
            let ended = build(&definition, artifacts)?;
            refused(&mut checks, case, &ended, code, &["error: ", word]);
            checks.that(&format!("{case}: no medium is written"), !has_iso(&artifacts.path("out")));
        }
        let absent = artifacts.path("no-such-definition.yaml");
        refused(&mut checks, "no definition", &build(&absent, artifacts)?, 2, &["no-such-definition.yaml"]);
        checks.finish("wrong definitions")
    });
}

fn build(definition: &Path, artifacts: &Artifacts) -> Result<ProgramOutput> {
    let (out, cache) = (artifacts.path("out"), artifacts.disk("cache"));
    programs::run(&mut medium::build_command(definition, &out, &cache)?, QUICK_LIMIT)
}

#[test]
fn a_full_build_disk_is_reported() {
    // A small file system needs a mount, which needs root; it belongs to the test and is unmounted at its end.
    if !Uid::effective().is_root() {
        return;
    }
    scenario("full-disk", |artifacts| {
        let identity = Identity::load()?;
        let definition = medium::stage(&artifacts.disk("source"), &Document::new("node").to_json(&identity))?;
        let cache = artifacts.disk("cache");
        fs::create_dir(&cache)?;
        let build = medium::build_command(&definition, &artifacts.path("out"), &cache)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs -o size=64m none \"$0\" && exec \"$@\""]);
        command.arg(&cache).arg(build.get_program()).args(build.get_args());
        let mut checks = Checks::default();
        let ended = programs::run(&mut command, Duration::from_secs(600))?;
        refused(&mut checks, "a full disk", &ended, 6, &["error: ", "next: "]);
        checks.that("no medium is written", !has_iso(&artifacts.path("out")));
        checks.finish("a full build disk")
    });
}

fn with(definition: &str, key: &str, value: &Value) -> Result<String> {
    let mut document: serde_yaml::Value = serde_yaml::from_str(definition)?;
    document[key] = serde_yaml::to_value(value)?;
    Ok(serde_yaml::to_string(&document)?)
}

fn has_iso(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().extension().is_some_and(|extension| extension == "iso"))
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_every_mistake_at_its_place() {
    scenario("bad-configuration", |artifacts| {
        let file = artifacts.path("wrong.yaml");
        fs::write(&file, "os:\n  hostnam: node\ninstall:\n  automatic: true\n  colour: red\n")?;
        let ended = installer(&["validate", &file.display().to_string()])?;
        let mut checks = Checks::default();
        let words = ["wrong.yaml:2:3", "hostnam", "hostname", "wrong.yaml:5:3", "colour"];
        refused(&mut checks, "two unknown keys", &ended, 2, &words);
        let ended = installer(&["validate", "/nonexistent/config.yaml"])?;
        refused(&mut checks, "a missing file", &ended, 2, &["/nonexistent/config.yaml"]);
        let ended = installer(&["frobnicate"])?;
        refused(&mut checks, "an unknown command", &ended, 2, &["frobnicate"]);
        checks.finish("wrong configurations")
    });
}

#[test]
fn a_target_disk_that_is_absent_too_small_or_ambiguous_is_refused_by_the_plan() {
    scenario("bad-disk", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let content = artifacts.disk("medium");
        medium.unpack(&content)?;
        let small = vec![disk("vda", ByteSize::gib(4))];
        let two = vec![disk("vda", ByteSize::gib(32)), disk("vdb", ByteSize::gib(32))];
        let mut boot = disk("vda", ByteSize::gib(32));
        boot["boot_medium"] = true.into();
        let cases = [
            ("an absent disk", Some("/dev/vdz"), two.clone(), "/dev/vdz"),
            ("a disk that is too small", Some("/dev/vda"), small, "/dev/vda"),
            ("two disks and no choice", None, two, "/dev/vdb"),
            ("the boot medium", Some("/dev/vda"), vec![boot], "/dev/vda"),
        ];
        let mut checks = Checks::default();
        for (case, device, disks, word) in cases {
            let mut config = Document::new("node").to_json(&identity);
            match device {
                Some(device) => config["install"]["device"] = device.into(),
                None => drop(config["install"].as_object_mut().and_then(|install| install.remove("device"))),
            }
            let (config_file, inventory) = (artifacts.disk("config.yaml"), artifacts.path("inventory.json"));
            fs::write(&config_file, config.to_string())?;
            fs::write(&inventory, json!({ "disks": disks, "nics": [] }).to_string())?;
            let paths = [&config_file, &inventory, &content].map(|path| path.display().to_string());
            let args = ["plan", "--config", &paths[0], "--inventory", &paths[1], "--medium", &paths[2]];
            refused(&mut checks, case, &installer(&args)?, 3, &["error: ", word, "next: "]);
        }
        checks.finish("target disks")
    });
}

/// A disk as in the output of `installer inventory`.
fn disk(name: &str, size: ByteSize) -> Value {
    json!({
        "name": name, "path": format!("/dev/{name}"), "size": size,
        "logical_sector": 512, "physical_sector": 512, "rotational": false, "removable": false,
        "read_only": false, "optical": false, "transport": "virtio", "model": null, "serial": name,
        "wwn": null, "links": [], "boot_medium": false, "holders": [], "partitions": [],
    })
}

fn installer(args: &[&str]) -> Result<ProgramOutput> {
    programs::run(Command::new(paths::installer()?).args(args), QUICK_LIMIT)
}

#[test]
fn verify_names_every_damaged_payload_of_a_medium() {
    scenario("damaged-medium", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let iso = artifacts.disk("damaged.iso");
        fs::copy(&medium.full, &iso)?;
        let release = medium.release()?;
        let mut checks = Checks::default();
        let whole = verify(&iso)?;
        checks.equal("the exit code for a whole medium", whole.code, 0);
        let rootfs = release.payload(Purpose::Rootfs).context("a medium has a rootfs")?;
        let blob = largest_blob(&medium)?;
        for payload in [rootfs, &blob] {
            damage(&iso, payload)?;
        }
        let ended = verify(&iso)?;
        refused(&mut checks, "two damaged payloads", &ended, 4, &["error: "]);
        for payload in [rootfs, &blob] {
            checks.contains("what verify says", &ended.said(), &payload.path);
        }
        checks.finish("verifying a medium")
    });
}

fn verify(iso: &Path) -> Result<ProgramOutput> {
    let mut command = programs::iso_builder()?;
    programs::run(command.arg("verify").arg(iso), Duration::from_secs(300))
}

#[test]
fn an_install_from_a_damaged_medium_and_one_to_a_small_disk_leave_the_disk_untouched() {
    scenario("bad-install", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;

        // A blob, since the live system runs from the rootfs and would itself be damaged.
        let iso = artifacts.disk("damaged.iso");
        fs::copy(&medium.full, &iso)?;
        let blob = largest_blob(&medium)?;
        damage(&iso, &blob)?;
        let digest = blob.sha256.to_string();
        let boot = |case: &str, iso: &Path, size: ByteSize, word: &str| {
            let live = steps::node(case, Firmware::Bios, "");
            refused_in_vm(case, live, &|live| live.cdrom(iso), size, &[word], artifacts)
        };
        boot("damaged-payload", &iso, ByteSize::gib(32), &digest[..12])?;
        boot("small-disk", &medium.full, ByteSize::gib(4), "/dev/vda")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Boots what `attach` adds to `live` beside a disk with data on it; the console has to show `error:` and then all of `words`,
/// and the disk has to stay unchanged.
pub(crate) fn refused_in_vm(
    case: &str,
    live: Machine,
    attach: &dyn Fn(Machine) -> Machine,
    size: ByteSize,
    words: &[&str],
    artifacts: &Artifacts,
) -> Result<()> {
    let before = Disk::raw(artifacts.disk(&format!("{case}-before.img")));
    let file = fs::File::create(&before.path)?;
    file.set_len(size.get())?;
    // Old data where a partition table would be written, at both ends.
    for offset in [0, size.get() - 4096] {
        file.write_all_at(&[0xA5; 4096], offset)?;
    }
    let disk = before.overlay(artifacts.disk(&format!("{case}.qcow2")), None)?;
    let mut vm = attach(live.disk(&disk)).start(artifacts)?;
    let (end, _) = vm.serial.wait_for_any(&["\n  next: ", steps::INSTALL_COMPLETE], steps::INSTALL_LIMIT)?;
    let mut checks = Checks::default();
    checks.that(&format!("{case}: the install is refused"), end == 0);
    // An install that went on in spite of its error would write meanwhile.
    drop(vm.serial.rest(Duration::from_secs(5)));
    for word in words {
        let told = Deadline::after(TOLD_LIMIT)
            .poll("the error on the console", || Ok(tells(&vm.serial.text(), word).then_some(())));
        checks.that(&format!("{case}: the console tells an error about {word}"), told.is_ok());
    }
    vm.kill()?;
    checks.that(&format!("{case}: the disk is as it was"), disk.same_bytes_as(&before)?);
    checks.finish(case)
}

/// True if an error on the console, or the lines that belong to it, contain `word`.
fn tells(console: &str, word: &str) -> bool {
    console.rsplit_once("\nerror: ").is_some_and(|(_, error)| error.contains(word))
}

fn largest_blob(medium: &Medium) -> Result<Payload> {
    let release = medium.release()?;
    let largest = release.payloads(Purpose::ImageBlob).max_by_key(|payload| payload.size);
    largest.cloned().context("a full medium has image blobs")
}

/// Changes one byte in the middle of a payload on an ISO.
fn damage(iso: &Path, payload: &Payload) -> Result<()> {
    invert(iso, place_on(iso, payload)? + payload.size / 2)
}
