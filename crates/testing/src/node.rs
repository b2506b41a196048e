//! An installed node made of files, and programs that answer like those of a node.

use std::fs;
use std::path::Path;

use base::digest::Digest;
use model::release::{Image, Release};

use crate::runner::ScriptedRunner;

/// A release with two images that share a blob, the second for management nodes only.
pub fn release_with_images() -> Release {
    let image = |name: &str, roles: &[&str], blobs: &[&[u8]]| Image {
        name: name.into(),
        digest: Digest::of(blobs[0]),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        blobs: blobs.iter().map(|blob| Digest::of(blob)).collect(),
        documents: 1,
    };
    let images = vec![
        image("localhost/tools:1", &[], &[b"one", b"shared"]),
        image("localhost/control:1", &["management"], &[b"two", b"shared"]),
    ];
    Release { version: "1.0".into(), payloads: vec![], images, ..crate::release::release() }
}

/// Puts blobs of [`release_with_images`] into the content store of the node at `root`.
pub fn store_blobs(root: &Path, blobs: &[&[u8]]) {
    let store = root.join(release_with_images().containerd.blobs().trim_start_matches('/'));
    fs::create_dir_all(&store).unwrap();
    for blob in blobs {
        fs::write(store.join(Digest::of(blob).to_string()), blob).unwrap();
    }
}

/// What `ip -json address` prints where `ens3` has 192.0.2.7/24.
pub const ADDRESS_OF_ENS3: &str = r#"[{"ifname": "ens3", "link_type": "ether",
    "addr_info": [{"family": "inet", "local": "192.0.2.7", "prefixlen": 24, "scope": "global"}]}]"#;

/// The programs of a node whose service is `active` and logged `said`.
pub fn node_programs(active: &str, said: &str) -> ScriptedRunner {
    let unit = format!(
        "NRestarts=2\nLoadState=loaded\nActiveState={active}\nSubState=auto-restart\nResult=exit-code\n"
    );
    let runner = ScriptedRunner::silent().answer("ip ", ADDRESS_OF_ENS3);
    runner.answer("systemctl ", unit).answer("journalctl ", said)
}
