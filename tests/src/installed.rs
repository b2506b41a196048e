//! The expected disk of an installed node, for the checker: taken from the medium, and from the documented
//! names on a node.

use std::fs;
use std::io::Read;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::size::ByteSize;
use formats::squashfs::Expansion;
use formats::verity::VerityTree;
use install::plan::layout::{LayoutRequest, arrange};
use install::plan::{Partition, PartitionName, SectorSize, SlotGeometry};
use model::config::sizes::PartitionSizes;
use model::config::{Profile, Role};
use model::release::{MANIFEST, Payload, Purpose, Release, metadata_path};
use nqrust_checker::{BootCode, Expected, File, Hash, Part, Slot, System};

use crate::medium::Medium;
use crate::programs;

/// The disk of a node with `role`, of `size` with 512-byte sectors, in the trial profile.
pub fn expected(medium: &Medium, role: Role, size: ByteSize) -> Result<Expected> {
    let release = medium.release()?;
    let payload = |purpose| release.payload(purpose).with_context(|| format!("no payload for {purpose:?}"));
    let request = LayoutRequest {
        disk: size,
        sector: SectorSize::B512,
        sizes: PartitionSizes::of(Profile::Trial),
        persistent: None,
        data: true,
        spare: ByteSize::default(),
    };
    // The offsets do not depend on the GUID of the disk.
    let arranged = arrange(request, uuid::Uuid::nil())?;
    let parts = arranged.iter().map(|part| Part {
        name: part.name.as_str().to_owned(),
        start: part.start.get(),
        size: part.size.get(),
    });
    let image = payload(Purpose::Rootfs)?;
    let files = [("efi/boot/bootx64.efi", Purpose::Shim), ("efi/boot/grubx64.efi", Purpose::GrubEfi)];
    let files: Result<Vec<_>> =
        files.iter().map(|(path, purpose)| Ok(known(*path, payload(*purpose)?))).collect();
    let boot_files = vec![
        known("vmlinuz", payload(Purpose::Kernel)?),
        known("initrd", payload(Purpose::Initrd)?),
        present("slot.cfg"),
        present(MANIFEST),
    ];
    let written = |part: &&Partition| matches!(part.name, PartitionName::RootA | PartitionName::Recovery);
    let expanded = tempfile::NamedTempFile::new()?;
    Expansion::plan(&extracted(medium, image)?)?.write(2, &mut expanded.as_file())?;
    let (digest, length) = Digest::of_reader(expanded.reopen()?)?;
    let tree = VerityTree::of_image(image.sha256, expanded.reopen()?)?.bytes;
    let tree = (tree.len() as u64, *Digest::of(&tree).as_bytes());
    let slots = arranged.iter().filter(written).map(|part| Slot {
        name: part.name.as_str().to_owned(),
        tree: (SlotGeometry::of(part).tree(length), tree),
        boot: SlotGeometry::of(part).boot.get(),
        files: boot_files.clone(),
    });
    let texts = ["efi/debian/grub.cfg", "grub/grub.cfg", "grub/node.cfg", "grub/grubenv"].map(present);
    let system =
        |part: &str, label: &str, files| System { part: part.to_owned(), label: label.to_owned(), files };
    Ok(Expected {
        sector: 512,
        parts: parts.collect(),
        boot: Some(boot_code(medium, &release)?),
        image: (length, *digest.as_bytes()),
        slots: slots.collect(),
        esp: files?.into_iter().chain(texts).collect(),
        systems: vec![
            system(
                "config",
                "NQ_CONFIG",
                vec![present("node.yaml"), present("machine-id"), present(MANIFEST)],
            ),
            system("persistent", "NQ_PERSISTENT", images(&release, role)?),
            system("data", "HARV_LH_DEFAULT", Vec::new()),
        ],
    })
}

fn content(payload: &Payload) -> (u64, Hash) {
    (payload.size, *payload.sha256.as_bytes())
}

fn known(path: impl Into<String>, payload: &Payload) -> File {
    File { path: path.into(), content: Some(content(payload)) }
}

fn present(path: &str) -> File {
    File { path: path.to_owned(), content: None }
}

/// The blobs of the images of `role`, and containerd's metadata for them.
fn images(release: &Release, role: Role) -> Result<Vec<File>> {
    let root = release.containerd.on_partition();
    let blobs = release.images_for(role).flat_map(|image| &image.blobs);
    let blob = |digest: &Digest| {
        let payload = release.payloads(Purpose::ImageBlob).find(|payload| payload.sha256 == *digest);
        let payload = payload.with_context(|| format!("no payload for blob {digest}"))?;
        Ok(known(format!("{root}/io.containerd.content.v1.content/blobs/sha256/{digest}"), payload))
    };
    let mut files: Vec<_> = blobs.map(blob).collect::<Result<_>>()?;
    let metadata = metadata_path(role.name());
    let metadata = release.payloads.iter().find(|payload| payload.path == metadata);
    files.extend(
        metadata.map(|metadata| known(format!("{root}/io.containerd.metadata.v1.bolt/meta.db"), metadata)),
    );
    Ok(files)
}

fn boot_code(medium: &Medium, release: &Release) -> Result<BootCode> {
    let fetch = |purpose| -> Result<Vec<u8>> {
        let payload = release.payload(purpose).with_context(|| format!("no payload for {purpose:?}"))?;
        let mut bytes = Vec::new();
        extracted(medium, payload)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    Ok(BootCode { boot: fetch(Purpose::GrubBoot)?, core: fetch(Purpose::GrubCore)? })
}

/// A payload, taken from the ISO by a program that is none of ours.
fn extracted(medium: &Medium, payload: &Payload) -> Result<fs::File> {
    let directory = tempfile::tempdir()?;
    let to = directory.path().join("payload");
    let (from, to_text) = (format!("/{}", payload.path), to.display().to_string());
    programs::xorriso(&medium.full, &["-extract", &from, &to_text])?;
    Ok(fs::File::open(to)?)
}
