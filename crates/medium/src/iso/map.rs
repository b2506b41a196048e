//! An ISO as a list of regions without gaps, each with its owner and expected bytes.

use std::borrow::Cow;

use anyhow::{Context, Result, ensure};

use super::recipe::{self, BOOT_MENU, ELTORITO, FileContent, Recipe, RootfsTree};
use formats::iso9660::address::{Block, Extent, Offset};
use formats::iso9660::write::{LayoutPart, RegionOwner, grub};
use model::release::{BiosBootCode, IsoRecipe, MANIFEST, Payload, Purpose, Release, SIGNATURES};

const BOOT_SECTOR: u64 = 512;
/// The limit of GRUB's El Torito image, in bytes: it is checked in memory.
const MAX_ELTORITO: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub enum ExpectedBytes<'a> {
    Bytes(Cow<'a, [u8]>),
    Zeros,
    Payload(&'a Payload),
    /// GRUB's boot sector for USB sticks, which loads the El Torito image, and a protective partition table.
    BootSector(PlacedBootCode),
    /// GRUB's El Torito image, which contains its own address.
    Eltorito(PlacedBootCode),
    /// The EFI system partition, made of loaders and menu.
    Esp,
    /// The signatures of the manifest: any text, padded.
    Signatures,
    /// The customization area, which contains its own digest.
    Area,
    /// The kernel arguments of the area.
    Arguments,
    /// The hash tree over the OS image, which its root hash is enough to check.
    Tree(RootfsTree<'a>),
}

/// The boot code for BIOS of one ISO.
#[derive(Clone, Copy, Debug)]
pub struct PlacedBootCode {
    pub code: BiosBootCode,
    /// Where the El Torito image begins.
    pub eltorito: Block,
}

/// A range of bytes, its owner, and the expected content.
#[derive(Clone, Debug)]
pub struct IsoRegion<'a> {
    pub owner: RegionOwner,
    pub at: Offset,
    /// In bytes.
    pub length: u64,
    pub wanted: ExpectedBytes<'a>,
}

/// All regions of the ISO of one release.
#[derive(Debug)]
pub struct IsoMap<'a> {
    pub regions: Vec<IsoRegion<'a>>,
    pub recipe: Recipe<'a>,
    /// The payloads of the EFI system partition, and their addresses.
    pub loaders: [(Offset, &'a Payload); 3],
    /// Where the area for customizing is; it has [`area::LENGTH`](crate::customization::area::LENGTH).
    pub area: Offset,
    /// Where the signatures are; they have [`SIGNATURES_LENGTH`](model::release::SIGNATURES_LENGTH).
    pub signatures: Offset,
    /// Length of the ISO in bytes.
    pub size: u64,
}

impl<'a> IsoMap<'a> {
    /// The map of the ISO whose `release` has the manifest `manifest`; none if it was written by a recipe that this program
    /// does not know. A release without an ISO is an error.
    pub fn of(release: &'a Release, manifest: &'a [u8]) -> Result<Option<Self>> {
        let Some(iso) = release.iso.as_ref().filter(|iso| recipe::is_followed(iso)) else {
            return Ok(None);
        };
        Self::new(Recipe::new(release, manifest), iso).map(Some)
    }

    fn new(recipe: Recipe<'a>, iso: &'a IsoRecipe) -> Result<Self> {
        let eltorito = iso.bios.map(|code| code.eltorito_size);
        ensure!(eltorito.is_none_or(|size| size < MAX_ELTORITO), "its El Torito image is too large");
        let layout = recipe.layout(eltorito)?;
        let size = layout.size.get();
        let mut regions = Vec::new();
        let mut add = |owner, at, length, wanted| regions.push(IsoRegion { owner, at, length, wanted });
        let placed = iso.bios.map(|code| PlacedBootCode { code, eltorito: layout.start(0) });
        let sector = match placed {
            Some(placed) => ExpectedBytes::BootSector(placed),
            None => ExpectedBytes::Bytes(Cow::Owned(grub::plain_first_sector(size).to_vec())),
        };
        add(RegionOwner::BootSector, Offset(0), BOOT_SECTOR, sector);
        if let Some(placed) = placed {
            let (at, length) = (placed.eltorito.offset(), placed.code.eltorito_size);
            add(RegionOwner::File(ELTORITO.to_owned()), at, length, ExpectedBytes::Eltorito(placed));
        }
        let (mut area, mut signatures) = (None, None);
        let mut payloads = Vec::new();
        let before = usize::from(placed.is_some());
        for (number, (path, content)) in recipe.files().into_iter().enumerate() {
            let (at, length) = (layout.start(number + before).offset(), content.length());
            let wanted = match content {
                FileContent::Bytes(bytes) => ExpectedBytes::Bytes(bytes),
                FileContent::Signatures => {
                    signatures = Some(at);
                    ExpectedBytes::Signatures
                }
                FileContent::Arguments => ExpectedBytes::Arguments,
                FileContent::Area => {
                    area = Some(at);
                    ExpectedBytes::Area
                }
                FileContent::Tree(tree) => ExpectedBytes::Tree(tree),
                FileContent::Payload(payload) => {
                    payloads.push((at, payload));
                    ExpectedBytes::Payload(payload)
                }
            };
            add(RegionOwner::File(path), at, length, wanted);
        }
        let Extent { start, length } = layout.esp;
        add(RegionOwner::Esp, start.offset(), u64::from(length), ExpectedBytes::Esp);
        for LayoutPart { owner, at, bytes } in layout.parts {
            add(owner, at, bytes.len() as u64, ExpectedBytes::Bytes(Cow::Owned(bytes)));
        }
        let place = |loader: &'a Payload| {
            let found = payloads.iter().find(|(_, payload)| payload.path == loader.path);
            found.copied().context("a boot loader is not on the medium")
        };
        let [shim, grub, mok] = recipe.loaders()?;
        Ok(Self {
            regions: without_gaps(regions, size),
            loaders: [place(shim)?, place(grub)?, place(mok)?],
            area: area.context("there is no area for customizing")?,
            signatures: signatures.context("there is no room for signatures")?,
            recipe,
            size,
        })
    }
}

impl IsoMap<'_> {
    /// Every region in order: its owner, its start, and its length in bytes.
    pub fn regions(&self) -> impl Iterator<Item = (&RegionOwner, u64, u64)> {
        self.regions.iter().map(|region| (&region.owner, region.at.0, region.length))
    }
}

/// The regions in their order, with padding between them and up to `size`.
fn without_gaps(mut regions: Vec<IsoRegion<'_>>, size: u64) -> Vec<IsoRegion<'_>> {
    regions.retain(|region| region.length > 0);
    regions.sort_by_key(|region| region.at);
    let mut whole: Vec<IsoRegion<'_>> = Vec::with_capacity(regions.len() * 2);
    let pad = |whole: &mut Vec<IsoRegion<'_>>, end: u64| {
        let Some(last) = whole.last() else { return };
        let at = Offset(last.at.0 + last.length);
        if at.0 < end {
            let owner = RegionOwner::Padding(Box::new(last.owner.clone()));
            whole.push(IsoRegion { owner, at, length: end - at.0, wanted: ExpectedBytes::Zeros });
        }
    };
    for region in regions {
        pad(&mut whole, region.at.0);
        whole.push(region);
    }
    pad(&mut whole, size);
    whole
}

impl IsoRegion<'_> {
    /// True if its bytes follow from the digest of the release manifest, so that they bear witness to it.
    pub fn names_release(&self) -> bool {
        match &self.owner {
            RegionOwner::PartitionTable | RegionOwner::BackupTable | RegionOwner::Esp => true,
            RegionOwner::Directory(_, path) => path == ".nqrust",
            RegionOwner::File(path) => path == BOOT_MENU,
            _ => false,
        }
    }

    /// True if it is a payload, what follows a file, or the area for customizing: what firmware, loaders and the kernel do
    /// not read, or what the installer checks by itself when it reads it.
    pub fn is_of_installer(&self) -> bool {
        match (&self.wanted, &self.owner) {
            (ExpectedBytes::Payload(payload), _) => payload.purpose != Purpose::BootPassword,
            (ExpectedBytes::Area, _) => true,
            (ExpectedBytes::Zeros, RegionOwner::Padding(owner)) => matches!(**owner, RegionOwner::File(_)),
            _ => false,
        }
    }
}

pub fn manifest() -> RegionOwner {
    RegionOwner::File(MANIFEST.to_owned())
}

pub fn signatures() -> RegionOwner {
    RegionOwner::File(SIGNATURES.to_owned())
}
