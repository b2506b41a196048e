//! The net-install ISO with only a registry as the source of images: with TLS (with a certificate authority of its
//! own), a password, and connections that break.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use model::release::{Purpose, Release};
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::faults::{Fault, Relay};
use nqrust_tests::identity::Identity;
use nqrust_tests::images::CONTROL;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{self, Checks, Document, MAC, RegistryMirror};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::registry::{Registry, RegistryAccess, USER};
use nqrust_tests::{secrets, steps};

/// How many bytes pass before a connection to the registry is cut.
const CUT: u64 = 100_000;

#[test]
fn a_net_install_of_a_worker_takes_its_images_from_a_registry_through_a_bad_connection() {
    scenario("install-registry", |artifacts| {
        let identity = Identity::load()?;
        let place = paths::e2e().join("registry");
        let demands = RegistryAccess { password: Some(&identity.password), tls: true };
        let registry = Registry::start(&place, demands)?;
        let relay = relay(&place, registry.port())?;
        let mirror = RegistryMirror {
            host: format!("10.0.2.2:{}", relay.port()),
            authority: fs::read_to_string(registry.authority())?,
            login: (USER.to_owned(), identity.password.clone()),
        };
        let document = Document { registry: Some(mirror), role: "worker", ..Document::new("node-c") };
        let medium = Medium::shared("node-c", &document.to_json(&identity))?;
        let release = medium.release()?;
        publish(&medium, &release, &registry, artifacts)?;

        relay.next(&[Fault::Cut(CUT), Fault::Cut(CUT), Fault::Cut(CUT)]);
        relay.sent();
        let iso = Disk::raw(medium.net_install.clone().context("the build left no net-install ISO")?);
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        // SeaBIOS boots from the first disk or from none.
        let live = Machine::new("install", Firmware::Bios).network(MAC).usb(&iso).disk(&disk);
        steps::install(&live, artifacts)?;
        check_traffic(&release, relay.sent())?;
        drop(registry);

        let machine = steps::node("first-boot", Firmware::Uefi, "").disk(&disk);
        let (mut vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        let names = node::image_names(&release, "worker");
        checks.that("a worker's set has no image of the control plane", !names.contains(&CONTROL));
        node::check_images(&ssh, &release, "worker", &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        for image in names.iter().filter(|name| name.contains("busybox")) {
            steps::run_container_offline(&mut vm, &identity, image)?;
        }
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The relay to the registry, on the port of earlier runs if that is free.
fn relay(place: &std::path::Path, to: u16) -> Result<Relay> {
    let remembered = place.join("relay-port");
    let port = fs::read_to_string(&remembered).ok().and_then(|port| port.trim().parse().ok());
    let relay = Relay::start_on(port.unwrap_or(0), to).or_else(|_| Relay::start(to))?;
    fs::write(remembered, relay.port().to_string())?;
    Ok(relay)
}

/// Copies the images of the full ISO from its store into the registry, with the same paths.
fn publish(medium: &Medium, release: &Release, registry: &Registry, artifacts: &Artifacts) -> Result<()> {
    let content = artifacts.disk("content");
    medium.unpack(&content)?;
    for image in &release.images {
        let (_, path) = image.name.split_once('/').context("the path of an image")?;
        let from = format!("oci:{}:{}", content.join("images").display(), image.name);
        registry.push(&from, path, &["--preserve-digests"])?;
        let mut inspect = Command::new("skopeo");
        inspect.args(["inspect", "--raw"]).arg(&from);
        let manifest = programs::run(&mut inspect, steps::COMMAND_LIMIT)?.success("skopeo inspect")?;
        if base::digest::Digest::of(manifest.as_bytes()) != image.digest {
            bail!("skopeo reads another manifest of {} from the medium", image.name);
        }
    }
    Ok(())
}

/// Checks that the traffic was the role's blobs once, plus what was cut off and the overhead of TLS and HTTP.
fn check_traffic(release: &Release, sent: u64) -> Result<()> {
    let wanted: std::collections::BTreeSet<_> = release
        .images
        .iter()
        .filter(|image| image.roles.is_empty() || image.roles.iter().any(|role| role == "worker"))
        .flat_map(|image| image.blobs.iter().copied())
        .collect();
    let blobs = release.payloads(Purpose::ImageBlob).filter(|payload| wanted.contains(&payload.sha256));
    let bytes: u64 = blobs.map(|payload| payload.size).sum();
    if !(bytes..bytes + bytes / 5 + 3 * CUT + (1 << 20)).contains(&sent) {
        bail!("{sent} bytes came for blobs of {bytes} bytes");
    }
    Ok(())
}
