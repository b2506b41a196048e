//! Small media: a directory with a release manifest and payloads, and ISOs of it.

use std::fs;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use medium::customization::{FILE, GRUB_FILE, area, argument};
use model::release::{Containerd, ExpandedImage, FORMAT, Image, MediumKind, Payload, Purpose, Release};

use crate::http::{Answer, Fake};
use crate::xorriso::make_iso;

/// A medium that is being made.
pub struct SampleMedium {
    pub directory: tempfile::TempDir,
    pub release: Release,
}

/// The embedded install configuration.
pub const CONFIG: &str = "token: 9f2c4e6a8b0d1357924680acebdf1357\nos:\n  hostname: node1\n  password: a-very-secret-password\n\
     install:\n  automatic: true\n  mode: create\n  role: management\n  device: /dev/vda\n  vip: 192.0.2.10\n";

/// The initrd of [`SampleMedium::bootable`].
pub const INITRD: &[u8] = b"the initial RAM file system";

impl SampleMedium {
    /// A medium with a kernel, a root image, two blobs, an image and an embedded configuration.
    pub fn new(medium: MediumKind) -> Self {
        let rootfs: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
        let blobs = [b"first blob".as_slice(), b"second blob"].map(|blob| (Digest::of(blob), blob));
        let mut release = Release {
            format: FORMAT,
            id: "nqrust".into(),
            name: "NQRust Hypervisor".into(),
            version: "1.0".into(),
            rollback_index: model::rollback_index::RollbackIndex::default(),
            architecture: model::architecture::Architecture::Amd64,
            epoch: 1_700_000_000,
            medium,
            kernel: "6.1.0-40-amd64".into(),
            kernel_arguments: vec!["panic=30".into()],
            expanded: ExpandedImage { size: 0, root_hash: Digest::of(b"nobody expands it") },
            payloads: Vec::new(),
            images: vec![Image {
                name: "localhost/nqrust/tools:1.0".into(),
                digest: blobs[0].0,
                roles: vec!["management".into()],
                blobs: blobs.iter().map(|(digest, _)| *digest).collect(),
                documents: 1,
            }],
            containerd: Containerd::default(),
            distribution: None,
            kubernetes: None,
            iso: None,
        };
        let directory = tempfile::tempdir().unwrap();
        let mut add = |path: String, purpose, content: &[u8]| {
            let payload = Payload { path, purpose, size: content.len() as u64, sha256: Digest::of(content) };
            if !payload.is_remote_on(medium) {
                let file = directory.path().join("tree").join(&payload.path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content).unwrap();
            }
            release.payloads.push(payload);
        };
        add("live/vmlinuz".into(), Purpose::Kernel, b"kernel");
        add("live/rootfs.squashfs".into(), Purpose::Rootfs, &rootfs);
        for (digest, blob) in blobs {
            add(format!("images/blobs/sha256/{digest}"), Purpose::ImageBlob, blob);
        }
        add("config/install.yaml".into(), Purpose::InstallConfig, CONFIG.as_bytes());
        let sample = Self { directory, release };
        let bytes = sample.release.to_bytes();
        fs::write(sample.tree().join("release.json"), &bytes).unwrap();
        sample.write_menu(&Digest::of(&bytes).oci());
        sample
    }

    /// A medium that machines can boot from the network, without a configuration of its own.
    pub fn bootable(kind: MediumKind) -> Self {
        let mut sample = Self::new(kind);
        sample.release.payloads.retain(|payload| payload.purpose != Purpose::InstallConfig);
        fs::remove_file(sample.tree().join("config/install.yaml")).unwrap();
        fs::write(sample.tree().join("live/initrd"), INITRD).unwrap();
        sample.release.payloads.push(Payload {
            path: "live/initrd".into(),
            purpose: Purpose::Initrd,
            size: INITRD.len() as u64,
            sha256: Digest::of(INITRD),
        });
        fs::write(sample.tree().join("release.json"), sample.release.to_bytes()).unwrap();
        sample
    }

    /// With room for customizing, as every medium has it that is built today.
    pub fn with_room(self) -> Self {
        let area = fs::File::create(self.tree().join(FILE)).unwrap();
        area.set_len(area::LENGTH).unwrap();
        fs::write(self.tree().join(GRUB_FILE), argument::grub(&[], None).unwrap()).unwrap();
        self
    }

    /// With a password of the boot menu, as a medium has it whose embedded configuration has one.
    pub fn with_boot_password(mut self) -> Self {
        let content = format!("password_pbkdf2 root grub.pbkdf2.sha512.10000.{}.CD\n", "AB".repeat(64));
        let path = self.tree().join("boot/grub/password.cfg");
        fs::write(&path, &content).unwrap();
        let (size, sha256) = (content.len() as u64, Digest::of(content.as_bytes()));
        let (path, purpose) = ("boot/grub/password.cfg".into(), Purpose::BootPassword);
        self.release.payloads.push(Payload { path, purpose, size, sha256 });
        self
    }

    pub fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    /// Writes a boot menu that names the release with this digest.
    pub fn write_menu(&self, release: &str) {
        let path = self.tree().join("boot/grub/grub.cfg");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(
            path,
            format!("menuentry 'Install' {{\n  linux /live/vmlinuz nqrust.release={release}\n}}\n"),
        )
        .unwrap();
    }

    /// The ISO of the tree as it is now.
    pub fn iso(&self) -> PathBuf {
        let path = self.directory.path().join("medium.iso");
        make_iso(&self.tree(), &path);
        path
    }

    /// A server that has the tree as it is at any time below `/tree/`, and the ISO of the tree as it is now under any other path.
    pub fn served(&self) -> Fake {
        let (tree, iso) = (self.tree(), fs::read(self.iso()).unwrap());
        Fake::start(move |request| match request.path.strip_prefix("/tree/") {
            None => Answer::range(&iso, request),
            Some(path) => match fs::read(tree.join(path)) {
                Ok(content) => Answer::range(&content, request),
                Err(_) => Answer::new(404, b""),
            },
        })
    }
}

/// Changes one byte of the first place where `file` holds `content`.
pub fn damage(file: &Path, content: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}
