//! The release manifest, `release.json`: what a medium carries.
//!
//! `iso-builder` writes it, `installer` believes nothing on a medium that is not in it. Its own digest is on
//! the kernel command line of the boot entries (`nqrust.release=`).

use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;
use crate::config::{Distribution, Role};
use crate::kubernetes::KubernetesVersion;
use crate::rollback_index::RollbackIndex;
use base::containerd;
use base::digest::Digest;
use base::size::ByteSize;

/// The name of the manifest at the root of a medium.
pub const MANIFEST: &str = "release.json";

/// The name of the file beside it with signatures in minisign's format, one after the other. Unsigned releases have none.
pub const SIGNATURES: &str = "release.json.minisig";

/// The most bytes that the file with signatures has. On an ISO it has exactly these, filled up with ends of lines.
pub const SIGNATURES_LENGTH: u64 = 8192;

/// The name of the file on an ISO with dm-verity's hash tree over the OS image as the ISO has it, by which the live system checks what it
/// reads. It follows from the image, so the manifest has its root hash only ([`IsoRecipe::rootfs_root_hash`]).
pub const ROOTFS_TREE: &str = "rootfs.verity";

/// The name of the file with what the release can drive ([`HardwareCoverage`](crate::hardware::HardwareCoverage)).
pub const HARDWARE: &str = "hardware.json";

/// The version of the manifest's format that this program writes and reads.
pub const FORMAT: u32 = 3;

/// Where programs of a node keep their state. It is on the persistent partition.
pub const STATE: &str = "/var/lib/";

/// The most bytes that all files of a medium and the expanded OS image may have together. An ISO holds less than 8 TiB.
const LARGEST_RELEASE: ByteSize = ByteSize::gib(4096);

/// The manifest of a medium: its product and every payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    pub format: u32,
    /// Short name of the product: lower-case letters, digits and `-`.
    pub id: String,
    /// The product's name for people.
    pub name: String,
    pub version: String,
    /// How far back a node with this release may go: releases with a lower index are refused once nothing else can start on it.
    /// Zero in manifests that do not say it, as those of older builders.
    #[serde(default, skip_serializing_if = "RollbackIndex::is_zero")]
    pub rollback_index: RollbackIndex,
    pub architecture: Architecture,
    /// The moment that all timestamps of the build carry, in seconds since 1970.
    pub epoch: u64,
    pub medium: MediumKind,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// Kernel arguments that the definition adds to every boot.
    pub kernel_arguments: Vec<String>,
    /// The OS image as a slot has it.
    pub expanded: ExpandedImage,
    /// The files of the medium, in the order in which an install reads them.
    pub payloads: Vec<Payload>,
    /// The container images that the payloads make up.
    pub images: Vec<Image>,
    /// The containerd that runs them on a node. Manifests of older builders do not say it.
    #[serde(default)]
    pub containerd: Containerd,
    /// The distribution of Kubernetes in the OS image; none where the image has none. Manifests of older builders say it
    /// only by the containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The version of Kubernetes in the OS image; none where the image has none. Manifests of older builders do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesVersion>,
    /// How ISOs of this release are written, so that every byte of one can be checked. Manifests of older builders do
    /// not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iso: Option<IsoRecipe>,
}

/// The OS image as a slot has it: the payload, a squashfs, with every block stored as it is ([`formats::squashfs`]), and
/// dm-verity's hash tree behind it ([`formats::verity`]). Both follow from the payload, so no medium carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpandedImage {
    /// Length in bytes, without the hash tree.
    pub size: u64,
    /// The root hash of the tree, whose salt is the digest of the payload.
    pub root_hash: Digest,
}

/// The inputs of an ISO that the rest of the manifest does not have; see [`medium::iso`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsoRecipe {
    /// Which generation of the writer made the ISO, [`medium::iso::recipe::NUMBER`] today. Later ones may say more.
    pub recipe: u32,
    /// The boot code for BIOS; none where machines have none ([`Architecture::has_bios`]).
    #[serde(flatten)]
    pub bios: Option<BiosBootCode>,
    /// The root hash of dm-verity's tree over the payload that is the OS image ([`formats::verity`]), whose salt is the digest of the
    /// payload. Manifests of older builders do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs_root_hash: Option<Digest>,
    /// The payload that says what the release can drive. Manifests of older builders do not have it. It stands here, and not among the
    /// payloads, because installers of version 0.2.0 and before refuse a purpose that they do not know, and leave this alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Payload>,
}

/// The boot code of an ISO for BIOS, which is not in its payloads because it has its own address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BiosBootCode {
    /// Length of GRUB's El Torito image in bytes.
    pub eltorito_size: u64,
    /// SHA-256 of that image with zeros where the writer puts addresses ([`formats::iso9660::write::grub::eltorito_digest`]).
    pub eltorito_sha256: Digest,
    /// SHA-256 of GRUB's boot sector for USB sticks likewise ([`formats::iso9660::write::grub::boot_sector_digest`]).
    pub boot_sector_sha256: Digest,
}

/// Where a node's containerd looks, and what it finds there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Containerd {
    /// Its root directory on the node, below [`STATE`]: Debian's `/var/lib/containerd`, or the one that RKE2 or K3s
    /// give to theirs.
    pub root: String,
    /// True if an install unpacks the images into snapshots too, so that first pods start without that.
    pub unpack: bool,
}

impl Default for Containerd {
    fn default() -> Self {
        Self { root: "/var/lib/containerd".into(), unpack: false }
    }
}

impl Containerd {
    /// The distribution of Kubernetes that brings this containerd; none for the OS image's own.
    fn distribution(&self) -> Option<Distribution> {
        let theirs = [Distribution::Rke2, Distribution::K3s];
        theirs.into_iter().find(|distribution| distribution.containerd_root() == self.root)
    }

    /// The root directory as a path on the persistent partition, which is `/var` of the node.
    #[must_use]
    pub fn on_partition(&self) -> &str {
        self.root.strip_prefix("/var/").unwrap_or(&self.root)
    }

    /// The directory of the blobs on the node.
    #[must_use]
    pub fn blobs(&self) -> String {
        format!("{}/{}", self.root, containerd::BLOBS)
    }

    /// True if the root is a plain path of directories below [`STATE`].
    fn is_safe(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(plain);
        self.root.strip_prefix(STATE).is_some_and(|rest| rest.split('/').all(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediumKind {
    Full,
    /// The blobs of the container images are fetched over the network.
    NetInstall,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    /// Path from the root of the medium, without a leading slash.
    pub path: String,
    pub purpose: Purpose,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    Kernel,
    /// The initial RAM file system for live, netboot and installed boots.
    Initrd,
    /// The OS image, a squashfs.
    Rootfs,
    /// Makes the OS image, expanded, or the initrd, unpacked, of that of an earlier release. Is offered beside a release; no manifest
    /// names it.
    Patch,
    /// shim, the first loader on UEFI ([`EfiLoaders::shim`](crate::architecture::EfiLoaders::shim)).
    Shim,
    /// The MOK manager that shim starts when keys are to be enrolled.
    MokManager,
    /// GRUB for UEFI, signed.
    GrubEfi,
    /// GRUB's boot sector for BIOS (`boot.img`, 512 bytes).
    GrubBoot,
    /// GRUB's core for BIOS and hard disks (`core.img`).
    GrubCore,
    /// The OCI index of the image store.
    ImageIndex,
    /// containerd's metadata database for the images of one role; see [`metadata_path`].
    ImageMetadata,
    /// A blob of a container image: manifest, configuration or layer.
    ImageBlob,
    /// An install configuration embedded when the medium was built.
    InstallConfig,
    /// Defaults of the image definition for every install: a part of a configuration.
    InstallDefaults,
    /// The GRUB file with the password of the medium's boot menu, if the embedded configuration has one.
    BootPassword,
    /// What the release can drive ([`IsoRecipe::hardware`]).
    Hardware,
}

/// Where a medium has containerd's metadata for the images of `role`. Each role has a database of its own, because
/// containerd takes an image for damaged whose blobs its database names and its store lacks.
#[must_use]
pub fn metadata_path(role: &str) -> String {
    format!("images/metadata/{role}.db")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The full reference that nodes use, for instance `localhost/nqrust/tools:1.0`.
    pub name: String,
    pub digest: Digest,
    /// The roles whose nodes need it; empty means every role.
    pub roles: Vec<String>,
    /// Digests of all its blobs: index where it has one, manifest, configuration, layers.
    pub blobs: Vec<Digest>,
    /// How many of the first blobs are documents: indexes and manifests. Registries have those under another path.
    pub documents: usize,
}

impl Payload {
    /// True if a net-install medium leaves this payload to the network.
    #[must_use]
    pub fn is_remote_on(&self, medium: MediumKind) -> bool {
        medium == MediumKind::NetInstall && self.purpose == Purpose::ImageBlob
    }
}

impl Release {
    /// Reads a manifest. Refuses another format version, paths that leave the medium or are those of the manifest, its
    /// signatures and the hash tree, lengths that no medium has, and a store outside [`STATE`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseReleaseError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(ParseReleaseError::Format(format));
        }
        let release: Self = serde_json::from_slice(bytes)?;
        for payload in release.all_payloads() {
            let safe = !payload.path.is_empty()
                && payload.path.split('/').all(|part| !matches!(part, "" | "." | ".."));
            if !safe {
                return Err(ParseReleaseError::Path(payload.path.clone()));
            }
            // A file below one of them would make it a directory.
            let first = payload.path.split('/').next().unwrap_or_default();
            let is_hardware = payload.purpose == Purpose::Hardware && payload.path == HARDWARE;
            if [MANIFEST, SIGNATURES, ROOTFS_TREE].contains(&first) || (first == HARDWARE) != is_hardware {
                return Err(ParseReleaseError::Reserved(payload.path.clone()));
            }
        }
        // Elsewhere it would be two, or another file would be taken for it.
        let misplaced = release.payloads(Purpose::Hardware).next();
        let other = release
            .hardware()
            .filter(|payload| payload.purpose != Purpose::Hardware || payload.path != HARDWARE);
        if let Some(payload) = misplaced.or(other) {
            return Err(ParseReleaseError::Reserved(payload.path.clone()));
        }
        release.check_sizes()?;
        if let Some(iso) = &release.iso
            && iso.bios.is_some() != release.architecture.has_bios()
        {
            return Err(ParseReleaseError::BootCode(release.architecture));
        }
        let mut words = release.kernel_arguments.iter();
        if let Some(word) = words.find(|word| !is_boot_menu_word(word)) {
            return Err(ParseReleaseError::Menu(word.clone()));
        }
        if let Some(text) =
            [&release.name, &release.version].into_iter().find(|t| t.contains(char::is_control))
        {
            return Err(ParseReleaseError::Menu(text.clone()));
        }
        match release.containerd.is_safe() {
            true => Ok(release),
            false => Err(ParseReleaseError::Root(release.containerd.root)),
        }
    }

    /// Refuses lengths that no medium has. Commands add lengths up, which must not overflow.
    fn check_sizes(&self) -> Result<(), ParseReleaseError> {
        let payloads = self.all_payloads().map(|payload| (payload.path.as_str(), payload.size));
        let bios = self.iso.iter().filter_map(|iso| iso.bios);
        let eltorito = bios.map(|code| ("iso.eltorito_size", code.eltorito_size));
        let mut sum = 0_u64;
        for (name, size) in payloads.chain(eltorito).chain([("expanded.size", self.expanded.size)]) {
            if size > ByteSize::LARGEST_FILE.get() {
                return Err(ParseReleaseError::Size { name: name.to_owned(), size });
            }
            sum = sum.saturating_add(size);
        }
        match sum > LARGEST_RELEASE.get() {
            true => Err(ParseReleaseError::Sum(ByteSize::bytes(sum))),
            false => Ok(()),
        }
    }

    /// The canonical bytes: indented JSON with a final newline. The same manifest gives the same bytes.
    #[must_use]
    #[expect(clippy::expect_used, reason = "an empty manifest must be impossible, and so is this failure")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = serde_json::to_vec_pretty(self);
        let mut bytes = bytes.expect("structures of strings, numbers and lists always become JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The distribution of Kubernetes that nodes of this release run, if it has one.
    #[must_use]
    pub fn distribution(&self) -> Option<Distribution> {
        self.distribution.or_else(|| self.containerd.distribution())
    }

    pub fn images_for(&self, role: Role) -> impl Iterator<Item = &Image> {
        let needed = move |name: &String| name == role.name();
        self.images.iter().filter(move |image| image.roles.is_empty() || image.roles.iter().any(needed))
    }

    /// A payload by what a person knows: a blob by the images that need it, anything else by its path.
    #[must_use]
    pub fn describe(&self, payload: &Payload) -> String {
        if payload.purpose != Purpose::ImageBlob {
            return payload.path.clone();
        }
        let needs = |image: &&Image| image.blobs.contains(&payload.sha256);
        let mut names = self.images.iter().filter(needs).map(|image| image.name.as_str());
        let first = names.next().unwrap_or("no image");
        let blob = format!("blob {} of {first}", payload.sha256.oci());
        match names.count() {
            0 => blob,
            others => format!("{blob} and {others} more"),
        }
    }

    /// The only payload with this purpose, if there is one.
    #[must_use]
    pub fn payload(&self, purpose: Purpose) -> Option<&Payload> {
        self.payloads.iter().find(|payload| payload.purpose == purpose)
    }

    /// containerd's metadata for the images of `role`.
    #[must_use]
    pub fn image_metadata(&self, role: &str) -> Option<&Payload> {
        let path = metadata_path(role);
        self.payloads(Purpose::ImageMetadata).find(|payload| payload.path == path)
    }

    /// What the release can drive; none in releases of older builders.
    #[must_use]
    pub fn hardware(&self) -> Option<&Payload> {
        self.iso.as_ref()?.hardware.as_ref()
    }

    /// Every payload, [`Self::hardware`] as the last.
    pub fn all_payloads(&self) -> impl Iterator<Item = &Payload> + Clone {
        self.payloads.iter().chain(self.hardware())
    }

    /// The payloads that are on the medium itself, and not left to the network.
    pub fn carried_payloads(&self) -> impl Iterator<Item = &Payload> + Clone {
        self.all_payloads().filter(|payload| !payload.is_remote_on(self.medium))
    }

    pub fn payloads(&self, purpose: Purpose) -> impl Iterator<Item = &Payload> {
        self.payloads.iter().filter(move |payload| payload.purpose == purpose)
    }
}

/// True if `word` can be a kernel argument in a boot menu: GRUB passes it on unchanged, and it ends neither its line nor
/// its menu entry.
#[must_use]
pub fn is_boot_menu_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic() && !"\"'\\$;{}".contains(c))
}

/// Why a file is not a release manifest.
#[derive(Debug, thiserror::Error)]
pub enum ParseReleaseError {
    /// Not JSON, or not of this shape.
    #[error("the release manifest is not readable")]
    Json(#[from] serde_json::Error),
    /// Written by another generation of the builder.
    #[error("the release manifest has format {0}; this program reads format {FORMAT}")]
    Format(u32),
    /// A path that does not stay on the medium.
    #[error("the release manifest names the path {0:?}, which is not a plain relative path")]
    Path(String),
    /// The path of the manifest, its signatures or another file that is no payload as others.
    #[error(
        "the release manifest names the path {0:?}, which is reserved for {MANIFEST}, {SIGNATURES} and {HARDWARE}"
    )]
    Reserved(String),
    /// A file that is longer than any of a medium.
    #[error("the release manifest gives {name:?} {size} bytes; the limit is {}", ByteSize::LARGEST_FILE)]
    Size { name: String, size: u64 },
    /// Boot code for BIOS where there is no BIOS, or none where there is one.
    #[error("the release manifest is for {0} and does not have the boot code of its ISOs")]
    BootCode(Architecture),
    /// Files that are longer together than any medium.
    #[error("the files in the release manifest have {0} together; the limit is {LARGEST_RELEASE}")]
    Sum(ByteSize),
    /// Text that would change the meaning of the boot menu that it is written into.
    #[error("the release manifest has {0:?}, which cannot stand in a boot menu")]
    Menu(String),
    /// A place for images that does not last.
    #[error("the release manifest keeps images in {0:?}, which is not a plain path below {STATE}")]
    Root(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str) -> Release {
        Release {
            format: FORMAT,
            id: "nqrust".into(),
            name: "NQRust Hypervisor".into(),
            version: "1.0".into(),
            rollback_index: RollbackIndex::default(),
            architecture: Architecture::Amd64,
            epoch: 0,
            medium: MediumKind::Full,
            kernel: "6.1.0".into(),
            kernel_arguments: vec![],
            expanded: ExpandedImage { size: 0, root_hash: Digest::of(b"") },
            payloads: vec![Payload {
                path: path.into(),
                purpose: Purpose::Rootfs,
                size: 0,
                sha256: Digest::of(b""),
            }],
            images: vec![],
            containerd: Containerd::default(),
            distribution: None,
            kubernetes: None,
            iso: None,
        }
    }

    #[test]
    fn printing_and_reading_give_the_same_manifest() {
        let kubernetes = Some("v1.33.1+k3s1".parse().unwrap());
        let release = Release { kubernetes, ..sample("rootfs.squashfs") };
        assert_eq!(Release::parse(&release.to_bytes()).unwrap(), release);
    }

    #[test]
    fn a_manifest_that_says_nothing_of_rollbacks_has_the_index_zero_and_keeps_its_bytes() {
        let sample = sample("rootfs.squashfs");
        assert!(!String::from_utf8(sample.to_bytes()).unwrap().contains("rollback_index"));
        assert_eq!(Release::parse(&sample.to_bytes()).unwrap().rollback_index, RollbackIndex(0));
        let raised = Release { rollback_index: RollbackIndex(u32::MAX), ..sample };
        assert_eq!(Release::parse(&raised.to_bytes()).unwrap(), raised);
        let text = String::from_utf8(raised.to_bytes()).unwrap();
        for wrong in ["-1", "4294967296", "1.5", "\"1\"", "null"] {
            let text = text.replace(&u32::MAX.to_string(), wrong);
            assert!(matches!(Release::parse(text.as_bytes()), Err(ParseReleaseError::Json(_))), "{wrong}");
        }
    }

    #[test]
    fn paths_that_leave_the_medium_are_refused() {
        for path in ["../etc/passwd", "/etc/passwd", "a//b", "a/./b", ""] {
            assert!(Release::parse(&sample(path).to_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_payload_cannot_take_the_place_of_the_manifest_its_signatures_or_the_hash_tree() {
        for path in [MANIFEST, SIGNATURES, ROOTFS_TREE, "release.json/a", "release.json.minisig/a/b"] {
            let error = Release::parse(&sample(path).to_bytes()).unwrap_err();
            assert!(matches!(&error, ParseReleaseError::Reserved(found) if found == path), "{error}");
        }
        for path in ["release.json.minisig2", "live/release.json", "live/release.json.minisig"] {
            Release::parse(&sample(path).to_bytes()).unwrap();
        }
    }

    #[test]
    fn what_a_release_can_drive_is_a_payload_of_its_own_that_older_installers_leave_alone() {
        let payload = |path: &str, purpose| Payload {
            path: path.into(),
            purpose,
            size: 7,
            sha256: Digest::of(b"drivers"),
        };
        let with = |hardware: Option<Payload>| {
            let iso = IsoRecipe { recipe: 5, bios: None, rootfs_root_hash: None, hardware };
            let architecture = Architecture::Arm64;
            Release { architecture, iso: Some(iso), ..sample("rootfs.squashfs") }
        };
        let release = with(Some(payload(HARDWARE, Purpose::Hardware)));
        let read = Release::parse(&release.to_bytes()).unwrap();
        assert_eq!(read, release);
        assert_eq!(read.hardware().map(|payload| payload.size), Some(7));
        let paths: Vec<_> = read.carried_payloads().map(|payload| payload.path.as_str()).collect();
        assert_eq!(paths, ["rootfs.squashfs", HARDWARE]);
        assert!(read.payload(Purpose::Hardware).is_none());
        // The shape that installers of version 0.2.0 read.
        #[derive(Deserialize)]
        struct OlderRecipe {
            recipe: u32,
            #[serde(flatten)]
            bios: Option<BiosBootCode>,
            rootfs_root_hash: Option<Digest>,
        }
        let value: serde_json::Value = serde_json::from_slice(&release.to_bytes()).unwrap();
        let older: OlderRecipe = serde_json::from_value(value["iso"].clone()).unwrap();
        assert_eq!((older.recipe, older.bios, older.rootfs_root_hash), (5, None, None));
        for wrong in [
            with(Some(payload("other.json", Purpose::Hardware))),
            with(Some(payload(HARDWARE, Purpose::Kernel))),
            sample(HARDWARE),
            sample("hardware.json/a"),
            Release { payloads: vec![payload(HARDWARE, Purpose::Hardware)], ..with(None) },
        ] {
            let error = Release::parse(&wrong.to_bytes()).unwrap_err();
            assert!(matches!(error, ParseReleaseError::Reserved(_)), "{error}");
        }
    }

    #[test]
    fn lengths_that_no_medium_has_are_refused_one_by_one_and_together() {
        let limit = ByteSize::LARGEST_FILE.get();
        let iso = |eltorito_size| {
            let digest = Digest::of(b"");
            Some(IsoRecipe {
                recipe: 3,
                bios: Some(BiosBootCode {
                    eltorito_size,
                    eltorito_sha256: digest,
                    boot_sector_sha256: digest,
                }),
                rootfs_root_hash: None,
                hardware: None,
            })
        };
        let parse = |sizes: &[u64], expanded, eltorito| {
            let mut release = Release { iso: iso(eltorito), ..sample("rootfs.squashfs") };
            let one = release.payloads[0].clone();
            release.payloads = sizes.iter().map(|size| Payload { size: *size, ..one.clone() }).collect();
            release.expanded.size = expanded;
            Release::parse(&release.to_bytes())
        };
        parse(&[limit; 3], limit, 0).unwrap();
        for above in [limit + 1, 1 << 62, u64::MAX - 1, u64::MAX] {
            for error in [parse(&[1, above], 1, 1), parse(&[1], above, 1), parse(&[1], 1, above)] {
                let error = error.unwrap_err();
                assert!(matches!(error, ParseReleaseError::Size { size, .. } if size == above), "{error}");
            }
        }
        for (sizes, expanded, eltorito) in
            [(&[limit; 4][..], 1, 0), (&[limit; 3], limit, 1), (&[limit; 9], 0, 0)]
        {
            let error = parse(sizes, expanded, eltorito).unwrap_err();
            assert!(matches!(error, ParseReleaseError::Sum(_)), "{error}");
        }
    }

    #[test]
    fn the_boot_code_for_bios_is_there_where_there_is_a_bios() {
        let digest = Digest::of(b"");
        let code = BiosBootCode { eltorito_size: 1, eltorito_sha256: digest, boot_sector_sha256: digest };
        for (architecture, bios, right) in [
            (Architecture::Amd64, Some(code), true),
            (Architecture::Amd64, None, false),
            (Architecture::Arm64, None, true),
            (Architecture::Arm64, Some(code), false),
        ] {
            let iso = Some(IsoRecipe { recipe: 4, bios, rootfs_root_hash: None, hardware: None });
            let release = Release { architecture, iso, ..sample("rootfs.squashfs") };
            let read = Release::parse(&release.to_bytes());
            match right {
                true => assert_eq!(read.unwrap(), release),
                false => {
                    assert!(matches!(read, Err(ParseReleaseError::BootCode(found)) if found == architecture))
                }
            }
        }
    }

    #[test]
    fn a_manifest_that_says_nothing_of_containerd_means_that_of_debian() {
        let mut value = serde_json::to_value(sample("rootfs.squashfs")).unwrap();
        assert!(value.as_object_mut().unwrap().remove("containerd").is_some());
        let release = Release::parse(&serde_json::to_vec(&value).unwrap()).unwrap();
        assert_eq!(release, sample("rootfs.squashfs"));
        assert_eq!(release.containerd.on_partition(), "lib/containerd");
    }

    #[test]
    fn a_store_that_is_not_on_the_persistent_partition_is_refused() {
        let parse = |root: &str| {
            let containerd = Containerd { root: root.into(), unpack: false };
            Release::parse(&Release { containerd, ..sample("rootfs.squashfs") }.to_bytes())
        };
        parse("/var/lib/rancher/rke2/agent/containerd").unwrap();
        for root in [
            "",
            "/",
            "/var/lib",
            "/var/lib/",
            "/var/lib/../../etc",
            "/var/lib//x",
            "/var/log/x",
            "var/lib/x",
            "/var/lib/a b",
        ] {
            assert!(matches!(parse(root), Err(ParseReleaseError::Root(_))), "{root}");
        }
    }

    #[test]
    fn a_manifest_that_would_write_a_boot_menu_of_its_own_is_refused() {
        let parse = |name: &str, word: &str| {
            let (name, kernel_arguments) = (name.into(), vec![word.into()]);
            Release::parse(&Release { name, kernel_arguments, ..sample("rootfs.squashfs") }.to_bytes())
        };
        parse("NQRust Hypervisor", "console=ttyS1,115200n8").unwrap();
        for (name, word) in
            [("a\nlinux /evil", "quiet"), ("a", "a b"), ("a", "x\n}"), ("a", ""), ("a", "$(x)"), ("a", "a;b")]
        {
            assert!(matches!(parse(name, word), Err(ParseReleaseError::Menu(_))), "{name:?} {word:?}");
        }
    }

    #[test]
    fn another_format_is_named_before_anything_else_is_read() {
        let other = FORMAT + 1;
        let error = Release::parse(format!(r#"{{"format": {other}, "news": true}}"#).as_bytes()).unwrap_err();
        assert!(matches!(error, ParseReleaseError::Format(found) if found == other));
    }
}
