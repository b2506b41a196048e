//! How long it takes to plan an install on a machine of many disks.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use install::plan::plan;
use machine::inventory::Inventory;
use model::config::{Images, Install, InstallConfig};
use model::release::{Payload, Purpose, Release};
use serde_json::{Value, json};

use crate::figure::{Figure, RatioLimit};

const DISKS: u64 = 1000;
const PARTITIONS: u64 = 8;
const LIMIT_MS: f64 = 100.0;
/// The GUID of the new partition table.
const GUID: &str = "6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90";
/// How often it is measured; the quickest round counts, which other work on the host disturbs least.
const ROUNDS: usize = 10;

/// Reads the inventory, plans, and renders the plan, as `installer plan --inventory` does. One disk matches the
/// conditions, and a hundred have an old system and are wiped.
pub(crate) fn measure() -> Result<Figure> {
    let inventory = json!({ "disks": (0..DISKS).map(disk).collect::<Vec<_>>(), "nics": [] }).to_string();
    let device = serde_json::from_value(json!({ "serial": "S0777", "transport": "sas", "size": ">=1Ti" }))?;
    let install = Install { device, wipe_all_disks: true, images: Some(Images::Defer), ..Install::default() };
    let config = InstallConfig { install, ..InstallConfig::default() };
    let release = release().into();
    let mut quickest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let inventory: Inventory = serde_json::from_str(&inventory).context("reading the inventory")?;
        let plan = plan(&config, &inventory, &release, GUID.parse()?)?;
        let text = plan.to_string();
        quickest = quickest.min(begin.elapsed().as_secs_f64() * 1000.0);
        ensure!(plan.disk.name == "sd777" && plan.wiped.len() == 100, "the plan is another one:\n{text}");
    }
    let name = format!("plan an install among {DISKS} disks");
    Ok(Figure::new(&name, quickest, "ms", ("limit", LIMIT_MS)).limit(RatioLimit::AtMost(1.0)))
}

/// A disk with partitions and file systems. Every tenth has a system of the predecessor product.
fn disk(number: u64) -> Value {
    let name = format!("sd{number}");
    let label = if number.is_multiple_of(10) { "COS_OEM" } else { "photos" };
    let partition = |place: u64| {
        json!({
            "name": format!("{name}{place}"), "path": format!("/dev/{name}{place}"), "start": format!("{place}GiB"), "size": "1GiB",
            "label": format!("part {place}"), "links": [format!("/dev/disk/by-id/scsi-S{number:04}-part{place}")],
            "signatures": [{ "kind": "ext4", "label": label, "offset": 1080 }],
        })
    };
    json!({
        "name": name, "path": format!("/dev/{name}"), "size": "4TiB",
        "logical_sector": 512, "physical_sector": 4096, "rotational": true, "removable": false,
        "read_only": false, "optical": false, "transport": "sas", "model": "ST4000NM0025",
        "serial": format!("S{number:04}"), "wwn": format!("naa.5000c500{number:08x}"),
        "links": [format!("/dev/disk/by-id/scsi-S{number:04}"), format!("/dev/disk/by-path/pci-0-sas-phy{number}-lun-0")],
        "boot_medium": false, "holders": [], "signatures": [{ "kind": "gpt", "offset": 512 }],
        "partitions": (1..=PARTITIONS).map(partition).collect::<Vec<_>>(),
    })
}

/// A medium with the payloads that every install needs.
fn release() -> Release {
    let payload = |purpose, size| Payload {
        path: format!("{purpose:?}"),
        purpose,
        size,
        sha256: Digest::of(format!("{purpose:?}").as_bytes()),
    };
    let boot = [Purpose::Kernel, Purpose::Initrd, Purpose::Rootfs, Purpose::Shim, Purpose::GrubEfi];
    let grub = [payload(Purpose::GrubBoot, 512), payload(Purpose::GrubCore, 40_000)];
    let payloads = boot.map(|purpose| payload(purpose, 1 << 20)).into_iter().chain(grub).collect();
    testing::release::minimal("bench", payloads)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_plan_that_is_measured_is_the_one_that_is_meant() {
        super::measure().unwrap();
    }
}
