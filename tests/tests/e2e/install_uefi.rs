//! The net-install ISO as a USB stick on UEFI; its blobs come from a web server.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, HOOK, MAC};
use nqrust_tests::paths;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::steps;

#[test]
fn a_net_install_stick_installs_on_uefi_from_a_web_server_and_boots_with_secure_boot() {
    scenario("install-uefi", |artifacts| {
        let identity = Identity::load()?;
        let content = artifacts.disk("www");
        let server = serve(&content)?;
        let document = Document {
            medium: Some(format!("http://10.0.2.2:{}/", server.port())),
            data_disk: Some("/dev/vdb".into()),
            ..Document::new("node-b")
        };
        let medium = Medium::shared("node-b", &document.to_json(&identity))?;
        medium.unpack(&content)?;
        for event in ["started", "succeeded"] {
            fs::write(content.join(format!("{HOOK}{event}")), "")?;
        }
        let release = medium.release()?;

        let iso = medium.net_install.clone().context("the build left no net-install ISO")?;
        check_build_metrics(&iso)?;
        // Larger than its content, like a stick that an ISO was written to.
        let stick = Disk::raw(iso).overlay(artifacts.disk("stick.qcow2"), Some(ByteSize::gib(16)))?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let data = Disk::empty(artifacts.disk("data.qcow2"), ByteSize::gib(8))?;
        let live = Machine::new("install", Firmware::Uefi).network(MAC).disk(&disk).disk(&data).usb(&stick);
        steps::install(&live, artifacts)?;
        let asked = server.requests();
        for path in ["GET /images/blobs/", "GET /hook-started?node=", "GET /hook-succeeded?node="] {
            if !asked.iter().any(|request| request.starts_with(path)) {
                bail!("the install did not ask the web server for {path:?}: {asked:?}");
            }
        }
        drop(server);

        let machine = steps::node("first-boot", Firmware::SecureBoot, "").disk(&disk).disk(&data);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        checks.that("Secure Boot is on", ssh.run("sudo -n dmesg")?.contains("Secure boot enabled"));
        node::check_document(&ssh, &document, &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        node::check_images(&ssh, &release, "management", &mut checks)?;
        node::check_metrics(&ssh, &release, &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Checks that the build of the medium told of its success, and how large the ISO is.
fn check_build_metrics(iso: &Path) -> Result<()> {
    let metrics = fs::read_to_string(medium::metrics_file("node-b"))?;
    let size = fs::metadata(iso)?.len();
    let mut checks = Checks::default();
    let image = "definition=\"minimal\",variant=\"\",architecture=\"amd64\"";
    for line in [
        format!("nqrust_image_build_success{{{image}}} 1\n"),
        format!("nqrust_image_build_exit_code{{{image}}} 0\n"),
        format!("nqrust_image_build_output_size_bytes{{{image},output=\"net-install.iso\"}} {size}\n"),
        format!("nqrust_image_build_step_duration_seconds{{{image},step=\"rootfs\"}} "),
    ] {
        checks.contains("the metrics of the build", &metrics, &line);
    }
    checks.finish("the metrics of the build")
}

/// A server for `content` on the port of earlier runs if that is free: the port is in the configuration and so on the
/// medium, which need not be built again while it stays the same.
fn serve(content: &Path) -> Result<Server> {
    let remembered = paths::e2e().join("http-port");
    let port = fs::read_to_string(&remembered).ok().and_then(|port| port.trim().parse().ok());
    let server = Server::start(content, port.unwrap_or(0)).or_else(|_| Server::start(content, 0))?;
    fs::write(&remembered, server.port().to_string())?;
    Ok(server)
}
