//! An ISO in memory, made from its own map. `iso-builder` tests that its writer writes the same, and changes every byte of
//! such an ISO.

use base::digest::Digest;
use formats::iso9660::write::grub;
use formats::verity::VerityTree;
use medium::customization::argument;
use medium::iso::map::{ExpectedBytes, IsoMap};
use medium::iso::{esp, recipe};
use medium::signatures;
use model::architecture::Architecture;
use model::release::{BiosBootCode, HARDWARE, IsoRecipe, Payload, Purpose, Release};

use crate::release::contents;

/// Boot code that nothing starts.
fn boot_code() -> ([u8; 512], Vec<u8>) {
    ([0x90; 512], (0..4000_u32).map(|n| (n % 251) as u8).collect())
}

/// The release of the plan's tests, as an ISO has it.
pub fn release() -> Release {
    let (hybrid, eltorito) = boot_code();
    let release = crate::release::release();
    let bios = BiosBootCode {
        eltorito_size: eltorito.len() as u64,
        eltorito_sha256: grub::eltorito_digest(&eltorito).unwrap(),
        boot_sector_sha256: grub::boot_sector_digest(&hybrid).unwrap(),
    };
    let rootfs_root_hash = Some(tree(&release).root);
    let iso =
        IsoRecipe { recipe: recipe::WITHOUT_HARDWARE, bios: Some(bios), rootfs_root_hash, hardware: None };
    Release { iso: Some(iso), ..release }
}

/// The same with the payload that says what it can drive.
pub fn release_with_hardware() -> Release {
    let mut release = release();
    let iso = release.iso.as_mut().unwrap();
    iso.recipe = recipe::NUMBER;
    iso.hardware = Some(Payload {
        path: HARDWARE.into(),
        purpose: Purpose::Hardware,
        size: COVERAGE.len() as u64,
        sha256: Digest::of(COVERAGE),
    });
    release
}

/// What the release of [`release_with_hardware`] can drive.
pub const COVERAGE: &[u8] = br#"{"format":1,"architecture":"amd64","kernel":"6.1.0","systemd":257,"naming_scheme":"v257","modules":[{"name":"ahci","built_in":true,"aliases":["pci:v*d*sv*sd*bc01sc06i01*"]},{"name":"virtio_net","initrd":true,"aliases":["virtio:d00000001v*"]}],"firmware":[]}
"#;

/// The same for an architecture without a BIOS.
pub fn arm64_release() -> Release {
    let mut release = Release { architecture: Architecture::Arm64, ..release() };
    release.payloads.retain(|payload| !matches!(payload.purpose, Purpose::GrubBoot | Purpose::GrubCore));
    release.iso.as_mut().unwrap().bios = None;
    release
}

/// The hash tree over the OS image of `release`.
pub fn tree(release: &Release) -> VerityTree {
    let image = release.payload(Purpose::Rootfs).unwrap();
    VerityTree::of_image(image.sha256, content(&image.path).as_slice()).unwrap()
}

fn content(path: &str) -> &'static Vec<u8> {
    static COVERED: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| COVERAGE.to_vec());
    if path == HARDWARE {
        return &COVERED;
    }
    &contents().iter().find(|(payload, _)| payload.path == path).unwrap().1
}

/// The ISO of `release`, unsigned.
pub fn image(release: &Release) -> Vec<u8> {
    signed_image(release, None)
}

/// The ISO of `release` with these signatures.
pub fn signed_image(release: &Release, signatures: Option<&[u8]>) -> Vec<u8> {
    let (hybrid, eltorito) = boot_code();
    let manifest = release.to_bytes();
    let map = IsoMap::of(release, &manifest).unwrap().unwrap();
    let menu = map.recipe.menu();
    let loaders = map.loaders.map(|(_, payload)| content(&payload.path));
    let mut image = Vec::new();
    for region in &map.regions {
        assert_eq!(region.at.0, image.len() as u64, "no gap before {}", region.owner);
        match &region.wanted {
            ExpectedBytes::Bytes(bytes) => image.extend_from_slice(bytes),
            ExpectedBytes::Zeros | ExpectedBytes::Area => {
                image.resize(image.len() + region.length as usize, 0)
            }
            ExpectedBytes::Signatures => image.extend(signatures::padded(signatures).unwrap()),
            ExpectedBytes::Payload(payload) => image.extend_from_slice(content(&payload.path)),
            ExpectedBytes::BootSector(placed) => {
                image.extend(grub::first_sector(&hybrid, placed.eltorito, map.size).unwrap());
            }
            ExpectedBytes::Eltorito(placed) => {
                let mut eltorito = eltorito.clone();
                grub::patch_eltorito(&mut eltorito, placed.eltorito).unwrap();
                image.extend(eltorito);
            }
            ExpectedBytes::Esp => image.extend(esp::image(&menu, release.epoch, loaders).unwrap()),
            ExpectedBytes::Arguments => image.extend(argument::grub(&[], None).unwrap()),
            ExpectedBytes::Tree(_) => image.extend(tree(release).bytes),
        }
    }
    assert_eq!(image.len() as u64, map.size);
    image
}

/// Where `text` is.
pub fn find(image: &[u8], text: &str) -> usize {
    image.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}
