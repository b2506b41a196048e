//! Release manifests of media that no build has made.

use std::fs;
use std::path::Path;

use anyhow::Result;
use installer::digest::Digest;
use installer::release::{Containerd, FORMAT, MediumKind, Payload, Purpose, Release};

/// A manifest with these payloads, and else as little as there can be.
pub(crate) fn release(payloads: Vec<Payload>) -> Release {
    Release {
        format: FORMAT,
        id: "bench".into(),
        name: "Bench".into(),
        version: "1".into(),
        architecture: "amd64".into(),
        epoch: 0,
        medium: MediumKind::Full,
        kernel: "6.1.0".into(),
        kernel_arguments: Vec::new(),
        payloads,
        images: Vec::new(),
        containerd: Containerd::default(),
    }
}

/// Writes what a server wants of a medium, a kernel, an initrd and this root image, to a directory; the manifest is the
/// caller's to write.
pub(crate) fn bootable(directory: &Path, rootfs: &[u8]) -> Result<Release> {
    fs::create_dir_all(directory)?;
    let files: [(&str, Purpose, &[u8]); 3] = [
        ("vmlinuz", Purpose::Kernel, b"kernel"),
        ("initrd", Purpose::Initrd, b"initrd"),
        ("rootfs.squashfs", Purpose::Rootfs, rootfs),
    ];
    let mut payloads = Vec::new();
    for (path, purpose, bytes) in files {
        fs::write(directory.join(path), bytes)?;
        let (size, sha256) = (bytes.len() as u64, Digest::of(bytes));
        payloads.push(Payload { path: path.into(), purpose, size, sha256 });
    }
    Ok(release(payloads))
}
