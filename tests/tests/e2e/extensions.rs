//! Kernel modules that the base's kernel lacks: built in the build from a package of Debian and from sources in a directory, in the live
//! system, on the node, and signed for machines with Secure Boot.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base::files;
use base::size::ByteSize;
use model::hardware::HardwareCoverage;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{programs, steps};
use serde_json::{Value, json};

/// A driver for a device that no machine has. What it says has the level of an alert, which a quiet kernel shows too.
const SOURCE: &str = r#"#include <linux/module.h>
#include <linux/init.h>
static int __init acme_start(void) { pr_alert("acme: the extension is loaded\n"); return 0; }
static void __exit acme_end(void) { }
module_init(acme_start);
module_exit(acme_end);
MODULE_LICENSE("GPL");
MODULE_VERSION("2.0");
MODULE_DESCRIPTION("A module outside of the kernel's tree");
MODULE_ALIAS("pci:v0000ACE0d00000001sv*sd*bc*sc*i*");
"#;
const SAID: &str = "acme: the extension is loaded";

/// The key that signs the modules, beside the definition.
const KEY: &str = "modules.key";

const MODULES: [&str; 2] = ["acme", "v4l2loopback"];

#[test]
#[ignore = "a build with a compiler, an install and two boots: `make soak` runs it"]
fn modules_built_from_a_package_and_from_sources_are_loaded_in_the_live_system_and_on_the_node() {
    scenario("extensions", |artifacts| {
        let identity = Identity::load()?;
        let document = Document::new("node-ext");
        let medium = Medium::built_with_module_key(KEY, "extensions", |directory| {
            stage(directory, &document.to_json(&identity))
        })?;
        let mut checks = Checks::default();
        check_release(&medium, &mut checks)?;

        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::Uefi).network(MAC).disk(&disk).cdrom(&medium.full);
        let console = steps::install(&live, artifacts)?;
        checks.contains("the console of the live system", &console, SAID);
        check_node(&disk, &identity, artifacts, &mut checks)?;
        check_secure_boot(&disk, &identity, artifacts, &mut checks)?;
        checks.finish("extensions")
    });
}

/// Writes sources, a key and a definition with both ways of building.
fn stage(directory: &Path, config: &Value) -> Result<std::path::PathBuf> {
    let definition = medium::stage(directory, config)?;
    let beside = definition.parent().context("the directory of the definition")?;
    let source = beside.join("acme");
    fs::create_dir_all(&source)?;
    files::write_atomically(&source.join("acme.c"), SOURCE.as_bytes(), 0o644)?;
    files::write_atomically(&source.join("Makefile"), b"obj-m := acme.o\n", 0o644)?;
    let (key, certificate) = (beside.join(KEY), beside.join("modules.pem"));
    if !key.exists() {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]);
        openssl.args(["-subj", "/CN=Modules of a test/", "-keyout"]).arg(&key).arg("-out").arg(&certificate);
        programs::run(&mut openssl, steps::COMMAND_LIMIT)?.success("openssl")?;
    }
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
    value["extensions"] = serde_yaml::to_value(json!([
        { "dkms": "v4l2loopback-dkms", "load": ["v4l2loopback"] },
        { "source": "acme", "initrd": true, "load": ["acme"] },
    ]))?;
    value["kernel"]["module_certificate"] = "modules.pem".into();
    // Any certificate will do for an authority.
    let authorities = beside.join("own/usr/local/share/ca-certificates");
    fs::create_dir_all(&authorities)?;
    fs::copy(&certificate, authorities.join("acme.crt"))?;
    value["overlays"]["rootfs"] = serde_yaml::to_value(["own"])?;
    fs::write(&definition, serde_yaml::to_string(&value)?)?;
    Ok(definition)
}

/// The release says what it has: in its coverage, its bill of materials and its report.
fn check_release(medium: &Medium, checks: &mut Checks) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("hardware.json");
    programs::xorriso(&medium.full, &["-extract", "/hardware.json", &file.display().to_string()])?;
    let coverage = HardwareCoverage::parse(&fs::read(&file)?)?;
    let covered: Vec<_> = coverage
        .drivers("pci:v0000ACE0d00000001sv0sd0bc0sc0i0")
        .map(|module| (&*module.name, module.initrd))
        .collect();
    checks.equal("what drives the device of the extension", covered, vec![("acme", true)]);
    checks.that(
        "the initrd lacks the module that it was not asked for",
        coverage.module("v4l2loopback").is_some_and(|module| !module.initrd),
    );
    let beside = medium.full.parent().context("the directory of the medium")?;
    let sbom = fs::read_to_string(beside.join("sbom.spdx.json"))?;
    for package in ["pkg:deb/debian/v4l2loopback-dkms@", "pkg:generic/acme@2.0?arch=amd64"] {
        checks.contains("the bill of materials", &sbom, package);
    }
    for tool in ["gcc@", "make@", "dkms@", "linux-headers"] {
        checks.that(&format!("no {tool} in the OS image"), !sbom.contains(&format!("pkg:deb/debian/{tool}")));
    }
    let report: Value = serde_json::from_slice(&fs::read(beside.join("build-report.json"))?)?;
    let built = report["inputs"]["extensions"].as_array().context("a report with extensions")?;
    let signed: Vec<_> =
        built.iter().flat_map(|extension| extension["modules"].as_array()).flatten().collect();
    ensure!(signed.len() == MODULES.len(), "{report}");
    checks.that("both modules are signed", signed.iter().all(|module| module["signed"] == true));
    Ok(())
}

/// The lines of `modinfo` for a field of a module.
fn field(ssh: &Ssh, field: &str, module: &str) -> Result<String> {
    Ok(ssh.run(&format!("/usr/sbin/modinfo -F {field} {module}"))?.trim().to_owned())
}

fn check_node(disk: &Disk, identity: &Identity, artifacts: &Artifacts, checks: &mut Checks) -> Result<()> {
    let machine = steps::node("first-boot", Firmware::Uefi, "").disk(disk);
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let kernel = ssh.run("uname -r")?.trim().to_owned();
    let loaded = ssh.run("lsmod")?;
    for module in MODULES {
        checks.that(
            &format!("{module} is loaded"),
            loaded.lines().any(|line| line.starts_with(&format!("{module} "))),
        );
        checks.that(
            &format!("{module} is for the kernel that runs"),
            field(&ssh, "vermagic", module)?.starts_with(&format!("{kernel} ")),
        );
        checks.equal(&format!("the signer of {module}"), field(&ssh, "signer", module)?, "Modules of a test");
        checks.contains(
            "its place",
            &field(&ssh, "filename", module)?,
            &format!("/{kernel}/updates/{module}.ko"),
        );
    }
    checks.contains("the kernel's log", &ssh.run("sudo -n dmesg")?, SAID);
    let certificate = ssh.run("head -c 2 /usr/share/nqrust/modules.der | od -An -tx1")?;
    checks.equal("the certificate for mokutil", certificate.trim(), "30 82");
    let trusted = ssh
        .run("openssl verify -CApath /etc/ssl/certs /usr/local/share/ca-certificates/acme.crt 2>&1; true")?;
    checks.contains("the authority of the overlay", &trusted, "OK");
    let tools = ssh.run("ls -d /usr/bin/gcc* /usr/src/* /usr/sbin/dkms /var/lib/dkms 2>/dev/null || true")?;
    checks.equal("compiler and headers on the node", tools.trim(), "");
    steps::collect_logs(&ssh, artifacts, "first-boot")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

/// A key that the machine does not know: the kernel refuses the modules, and the node starts without them.
fn check_secure_boot(
    disk: &Disk,
    identity: &Identity,
    artifacts: &Artifacts,
    checks: &mut Checks,
) -> Result<()> {
    let machine = steps::node("secure-boot", Firmware::SecureBoot, "").disk(disk);
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let log = ssh.run("sudo -n dmesg")?;
    checks.contains("the log of a machine with Secure Boot", &log, "Secure boot enabled");
    checks.that("no module is loaded", !log.contains(SAID));
    let refused = ssh.run("sudo -n modprobe acme 2>&1 || true")?;
    checks.contains("what modprobe says", &refused, "Key was rejected by service");
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}
