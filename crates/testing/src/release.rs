//! The release manifest of a small medium, and what its payloads hold.

use base::digest::Digest;
use model::architecture::Architecture;
use model::release::{Containerd, ExpandedImage, FORMAT, Image, MediumKind, Payload, Purpose, Release};

use crate::squashfs;

/// The payloads of a small medium and their content.
pub fn contents() -> &'static [(Payload, Vec<u8>)] {
    static CONTENTS: std::sync::LazyLock<Vec<(Payload, Vec<u8>)>> = std::sync::LazyLock::new(make);
    &CONTENTS
}

fn make() -> Vec<(Payload, Vec<u8>)> {
    // No part of one payload looks like a part of another.
    let pattern = |seed: u64, length: usize| -> Vec<u8> {
        let mixed = |place: u64| (seed << 32 | place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..length as u64)
            .map(|place| (mixed(place) ^ mixed(place >> 8) >> 13) as u8 ^ (mixed(place) >> 56) as u8)
            .collect()
    };
    let all = [
        ("EFI/BOOT/BOOTX64.EFI", Purpose::Shim, 9_000),
        ("EFI/BOOT/grubx64.efi", Purpose::GrubEfi, 12_345),
        ("EFI/BOOT/mmx64.efi", Purpose::MokManager, 800),
        ("live/vmlinuz", Purpose::Kernel, 300_001),
        ("live/initrd", Purpose::Initrd, 700_000),
        ("live/rootfs.squashfs", Purpose::Rootfs, 2_200_000),
        ("images/blobs/sha256/one", Purpose::ImageBlob, 5_000),
        ("images/blobs/sha256/two", Purpose::ImageBlob, 70_000),
        ("images/blobs/sha256/witness", Purpose::ImageBlob, 60),
        ("images/metadata/default.db", Purpose::ImageMetadata, 32_768),
        ("images/metadata/management.db", Purpose::ImageMetadata, 32_768),
        ("images/metadata/witness.db", Purpose::ImageMetadata, 32_768),
        ("images/metadata/worker.db", Purpose::ImageMetadata, 32_768),
        ("boot/boot.img", Purpose::GrubBoot, 512),
        ("boot/core.img", Purpose::GrubCore, 40_000),
    ];
    let made = (1..).zip(all).map(|(seed, (path, purpose, length))| {
        let mut bytes = pattern(seed, length);
        if purpose == Purpose::Rootfs {
            // A part that compresses and a part that does not.
            let lines = (0..).flat_map(|number: u32| format!("line {number} of the OS\n").into_bytes());
            bytes = squashfs::image(&[lines.take(700_000).collect(), bytes].concat());
        }
        if purpose == Purpose::GrubCore {
            // The end of GRUB's block list, whose first entry is filled in by the install.
            bytes[0x1e8..0x1f4].fill(0);
        }
        let payload =
            Payload { path: path.into(), purpose, size: bytes.len() as u64, sha256: Digest::of(&bytes) };
        (payload, bytes)
    });
    made.collect()
}

/// The OS image of the medium in its expanded form.
pub fn expanded_image() -> &'static [u8] {
    static EXPANDED: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        let os = contents().iter().find(|(payload, _)| payload.purpose == Purpose::Rootfs).unwrap();
        squashfs::expanded(&os.1)
    });
    &EXPANDED
}

pub fn release() -> Release {
    let payloads: Vec<_> = contents().iter().map(|(payload, _)| payload.clone()).collect();
    let os = contents().iter().find(|(payload, _)| payload.purpose == Purpose::Rootfs).unwrap();
    static EXPANDED: std::sync::OnceLock<ExpandedImage> = std::sync::OnceLock::new();
    let blob = |name: &str| payloads.iter().find(|p| p.path.ends_with(name)).unwrap().sha256;
    let image = |name: &str, roles: &[&str], blobs: &[Digest]| Image {
        name: format!("localhost/nqrust/{name}:1"),
        digest: blobs[0],
        roles: roles.iter().map(ToString::to_string).collect(),
        blobs: blobs.to_vec(),
        documents: 1,
    };
    let images = vec![
        image("tools", &[], &[blob("one"), blob("two")]),
        image("quorum", &["witness"], &[blob("witness"), blob("two")]),
    ];
    Release {
        format: FORMAT,
        id: "nqrust".into(),
        name: "NQRust Hypervisor".into(),
        version: "0.1.0".into(),
        rollback_index: model::rollback_index::RollbackIndex::default(),
        architecture: Architecture::Amd64,
        epoch: 1_700_000_000,
        medium: MediumKind::Full,
        kernel: "6.1.0".into(),
        kernel_arguments: vec!["quiet".into()],
        expanded: *EXPANDED.get_or_init(|| squashfs::described(&os.1)),
        payloads,
        images,
        containerd: Containerd::default(),
        distribution: None,
        kubernetes: None,
        iso: None,
    }
}

/// The manifest of a medium that nobody builds, with these payloads and nothing else.
#[must_use]
pub fn minimal(name: &str, payloads: Vec<Payload>) -> Release {
    Release {
        format: FORMAT,
        id: name.into(),
        name: name.into(),
        version: "1".into(),
        rollback_index: model::rollback_index::RollbackIndex::default(),
        architecture: Architecture::Amd64,
        epoch: 0,
        medium: MediumKind::Full,
        kernel: "6.1.0".into(),
        kernel_arguments: Vec::new(),
        expanded: ExpandedImage { size: 0, root_hash: Digest::of(b"") },
        payloads,
        images: Vec::new(),
        containerd: Containerd::default(),
        distribution: None,
        kubernetes: None,
        iso: None,
    }
}

/// Makes `content` the payload of `purpose`; returns its path.
pub fn replace(release: &mut Release, purpose: Purpose, content: &[u8]) -> String {
    let payload = release.payloads.iter_mut().find(|payload| payload.purpose == purpose).unwrap();
    (payload.size, payload.sha256) = (content.len() as u64, Digest::of(content));
    payload.path.clone()
}
