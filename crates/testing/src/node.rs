//! An installed node made of files, and programs that answer like those of a node.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use base::command::{Invocation, Runner};
use base::digest::Digest;
use model::release::{Image, Release};

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

/// Answers like the programs of a node that has an address and whose service logs `said`.
#[derive(Default)]
pub struct NodePrograms {
    pub said: &'static str,
    pub active: &'static str,
    pub asked: Mutex<Vec<String>>,
}

impl Runner for NodePrograms {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        self.asked.lock().unwrap().push(invocation.display());
        let active = self.active;
        Ok(match invocation.program.to_str().unwrap() {
            "ip" => "[{\"ifname\": \"ens3\", \"link_type\": \"ether\", \"addr_info\": [\
                     {\"family\": \"inet\", \"local\": \"192.0.2.7\", \"prefixlen\": 24, \"scope\": \"global\"}]}]"
                .to_owned(),
            "systemctl" => format!(
                "NRestarts=2\nLoadState=loaded\nActiveState={active}\nSubState=auto-restart\nResult=exit-code\n"
            ),
            "journalctl" => self.said.to_owned(),
            _ => String::new(),
        }
        .into_bytes())
    }
}
