//! Media and machines for the tests of the server.

use std::fs;
use std::path::PathBuf;

use model::config::Secret;
use model::machine::{Identity, Selector};
use model::release::MediumKind;

use crate::machines::configurations::Configurations;
use testing::medium::SampleMedium;

pub(crate) use testing::medium::INITRD;

/// A configuration that a machine can be installed with.
pub(crate) const NODE: &str = "token: 9f2c4e6a8b0d1357924680acebdf1357\n\
     os: {hostname: node-1, password: a-very-secret-password, ntp_servers: [192.0.2.123]}\n\
     install: {mode: create, vip: 192.0.2.10, device: /dev/disk/by-id/virtio-1}\n";
pub(crate) const SECRETS: [&str; 2] = ["9f2c4e6a8b0d1357924680acebdf1357", "a-very-secret-password"];

/// A medium that machines can boot, without a configuration of its own.
pub(crate) fn medium(kind: MediumKind) -> SampleMedium {
    SampleMedium::bootable(kind)
}

/// Writes the manifest of the sample as it is now.
pub(crate) fn write_manifest(sample: &SampleMedium) -> PathBuf {
    let path = sample.tree().join("release.json");
    fs::write(&path, sample.release.to_bytes()).unwrap();
    path
}

/// Compares with a file in `boot/golden/`, which `UPDATE_GOLDEN=1` writes.
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/boot/golden").join(name);
    testing::golden::compare(path, text);
}

/// Configurations of these names, as the files of `--configs` have them.
pub(crate) fn configurations(names: &[&str]) -> Configurations {
    let mut all = Configurations::default();
    for name in names {
        let stem = name.trim_end_matches(".yaml");
        let selectors = (stem != "default").then(|| Selector::from_stem(stem).unwrap());
        all.add(name, Secret::new(NODE), selectors.into_iter().collect());
    }
    all
}

/// The identity in this query of `/v1/boot`: `mac=…&serial=…&uuid=…&asset=…`.
pub(crate) fn told(query: &str) -> Identity {
    let mut identity = Identity::default();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match key {
            "mac" => identity.macs.push(value.parse().unwrap()),
            "serial" => identity.serial = Some(value.into()),
            "uuid" => identity.uuid = Some(value.parse().unwrap()),
            _ => identity.asset_tag = Some(value.into()),
        }
    }
    identity.macs.sort_unstable();
    identity
}
