//! Comparing an image with its [`IsoMap`].
//!
//! The image is read from its beginning to its end, once; only the three boot loaders, of which the EFI system partition
//! is made again, and the kernel arguments of the customization area are read a second time (some 8 MiB). Memory does not
//! depend on the length of the image.

use std::fmt;
use std::io::{self, Read};

use anyhow::Result;

use super::esp;
use super::map::{ExpectedBytes, IsoMap, IsoRegion, manifest};
use super::recipe::RootfsTree;
use crate::customization::{FILE, area, argument};
use crate::signatures;
use base::digest::{Digest, Hasher};
use formats::iso9660::address::{Offset, Source};
use formats::iso9660::write::{RegionOwner, grub};
use formats::verity::{VerityParameters, VerityTreeCheck};
use model::release::Payload;

/// Large reads keep a drive streaming.
const CHUNK: usize = 1 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckScope {
    Whole,
    /// The parts that firmware, boot loaders and the kernel read beside payloads, without the area for customizing and the padding
    /// behind files: for callers that read payloads and area themselves.
    Boot,
}

/// A region of an image that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDifference {
    pub owner: RegionOwner,
    pub fault: RegionFault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionFault {
    /// It has other bytes than the builder writes.
    Changed {
        /// The first wrong byte, counted from the beginning of the image.
        at: Offset,
    },
    /// A payload with another digest.
    Damaged {
        expected: Digest,
        found: Digest,
    },
    /// The image ends within it.
    CutOff {
        /// Its length in bytes.
        expected: u64,
        /// The bytes before the end of the image.
        found: u64,
    },
    Unreadable(String),
    /// The customization of the medium is inconsistent.
    Customization(String),
    /// It could not be compared, because the bytes from which it is made are damaged.
    Unknown(String),
    /// A release manifest whose digest is not elsewhere on the medium.
    Stranger,
}

impl fmt::Display for RegionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { at } => {
                write!(f, "is not what the builder writes, from byte {at} of the medium on")
            }
            Self::Damaged { expected, found } => write!(f, "has the SHA-256 {found} instead of {expected}"),
            Self::CutOff { expected, found } => write!(f, "has {found} of {expected} bytes"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Customization(why) => f.write_str(why),
            Self::Unknown(why) => write!(f, "could not be compared, because {why} is damaged"),
            Self::Stranger => {
                f.write_str("is not the manifest of this medium: nothing else on it names its SHA-256")
            }
        }
    }
}

impl fmt::Display for RegionDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.owner, self.fault)
    }
}

/// Compares the image in `source` with `map`, which it may be longer than. `read` is called with the number of bytes
/// that were read, and its error ends the check; a fault of the image is no error.
pub fn check(
    source: &dyn Source,
    map: &IsoMap<'_>,
    scope: CheckScope,
    read: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<RegionDifference>> {
    let mut check = ImageCheck { source, map, read, buffer: vec![0; CHUNK] };
    let length = source.length()?;
    let mut found = Vec::new();
    if length < map.size {
        let fault = RegionFault::CutOff { expected: map.size, found: length };
        found.push(RegionDifference { owner: RegionOwner::Image, fault });
    }
    let (mut agreeing, mut contradicting) = (0, 0);
    for region in &map.regions {
        if scope == CheckScope::Boot && region.is_of_installer() {
            continue;
        }
        let fault = check.region(region)?;
        if region.names_release() {
            agreeing += usize::from(fault.is_none());
            contradicting += usize::from(matches!(fault, Some(RegionFault::Changed { .. })));
        }
        found.extend(fault.map(|fault| RegionDifference { owner: region.owner.clone(), fault }));
    }
    if agreeing == 0 && contradicting > 0 {
        // With the wrong manifest, everything else differs too.
        return Ok(vec![RegionDifference { owner: manifest(), fault: RegionFault::Stranger }]);
    }
    // A truncated image is reported once for everything after its end, except files, which users know by name.
    found.retain(|difference| {
        let cut = matches!(difference.fault, RegionFault::CutOff { .. });
        !cut || matches!(difference.owner, RegionOwner::Image | RegionOwner::File(_))
    });
    Ok(found)
}

struct ImageCheck<'c> {
    source: &'c dyn Source,
    map: &'c IsoMap<'c>,
    read: &'c mut dyn FnMut(u64) -> Result<()>,
    buffer: Vec<u8>,
}

impl ImageCheck<'_> {
    fn region(&mut self, region: &IsoRegion<'_>) -> Result<Option<RegionFault>> {
        match &region.wanted {
            ExpectedBytes::Bytes(bytes) => self.bytes(region, bytes),
            ExpectedBytes::Zeros => self.zeros(region.at, region.length),
            ExpectedBytes::Payload(payload) => self.payload(region, payload),
            ExpectedBytes::BootSector(placed) => self.boot_code(region, |found, size| {
                anyhow::ensure!(grub::boot_sector_digest(found)? == placed.code.boot_sector_sha256);
                Ok(grub::first_sector(found, placed.eltorito, size)?.to_vec())
            }),
            ExpectedBytes::Eltorito(placed) => self.boot_code(region, |found, _| {
                anyhow::ensure!(grub::eltorito_digest(found)? == placed.code.eltorito_sha256);
                let mut image = found.to_vec();
                grub::patch_eltorito(&mut image, placed.eltorito)?;
                Ok(image)
            }),
            ExpectedBytes::Esp => match self.esp()? {
                Ok(image) => self.bytes(region, &image),
                Err(fault) => Ok(Some(fault)),
            },
            ExpectedBytes::Signatures => self.signatures(region),
            ExpectedBytes::Area => self.area(region),
            ExpectedBytes::Arguments => self.arguments(region),
            ExpectedBytes::Tree(tree) => self.tree(region, tree),
        }
    }

    /// Reads `length` bytes at `at` piece by piece, until `each` returns `false`.
    fn pieces(
        &mut self,
        at: Offset,
        length: u64,
        mut each: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<Option<RegionFault>> {
        let mut done = 0;
        while done < length {
            let wanted = usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK);
            let count = match self.source.read_at(&mut self.buffer[..wanted], at.plus(done)) {
                Ok(0) => return Ok(Some(RegionFault::CutOff { expected: length, found: done })),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let why = format!("at byte {}: {error}", at.plus(done));
                    return Ok(Some(RegionFault::Unreadable(why)));
                }
            };
            (self.read)(count as u64)?;
            if !each(done, &self.buffer[..count]) {
                break;
            }
            done += count as u64;
        }
        Ok(None)
    }

    /// Compares a region with the bytes that `wanted` returns for each start in the region and length.
    fn compare<'w>(
        &mut self,
        (at, length): (Offset, u64),
        wanted: impl Fn(usize, usize) -> &'w [u8],
    ) -> Result<Option<RegionFault>> {
        let mut different = None;
        let trouble = self.pieces(at, length, |done, piece| {
            let mut seen = 0;
            while seen < piece.len() {
                let start = usize::try_from(done).unwrap_or(usize::MAX).saturating_add(seen);
                let wanted = wanted(start, piece.len() - seen);
                let found = &piece[seen..seen + wanted.len()];
                if found != wanted {
                    let first =
                        found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
                    different = Some(at.plus(done + (seen + first) as u64));
                    return false;
                }
                seen += wanted.len();
            }
            true
        })?;
        Ok(different.map(|at| RegionFault::Changed { at }).or(trouble))
    }

    fn bytes(&mut self, region: &IsoRegion<'_>, bytes: &[u8]) -> Result<Option<RegionFault>> {
        self.compare((region.at, region.length), |start, length| &bytes[start..start + length])
    }

    fn zeros(&mut self, at: Offset, length: u64) -> Result<Option<RegionFault>> {
        self.compare((at, length), |_, length| &ZEROS[..length.min(ZEROS.len())])
    }

    fn payload(&mut self, region: &IsoRegion<'_>, payload: &Payload) -> Result<Option<RegionFault>> {
        let mut hasher = Hasher::default();
        let trouble = self.pieces(region.at, region.length, |_, piece| {
            hasher.update(piece);
            true
        })?;
        let (expected, found) = (payload.sha256, hasher.finish());
        Ok(trouble.or_else(|| (found != expected).then_some(RegionFault::Damaged { expected, found })))
    }

    /// The form of the signatures only: whether they are right depends on the keys that somebody trusts.
    fn signatures(&mut self, region: &IsoRegion<'_>) -> Result<Option<RegionFault>> {
        Ok(match self.whole(region)? {
            Ok(found) => signatures::first_fault(&found)
                .map(|first| RegionFault::Changed { at: region.at.plus(first as u64) }),
            Err(fault) => Some(fault),
        })
    }

    /// Compares boot code by its digest in the manifest, which is without the addresses; these are compared by themselves. `written`
    /// makes of the bytes that were found, and of the length of the image, those that the builder writes.
    fn boot_code(
        &mut self,
        region: &IsoRegion<'_>,
        written: impl Fn(&[u8], u64) -> Result<Vec<u8>>,
    ) -> Result<Option<RegionFault>> {
        let found = match self.whole(region)? {
            Ok(found) => found,
            Err(fault) => return Ok(Some(fault)),
        };
        let first = match written(&found, self.map.size) {
            Ok(written) => found.iter().zip(&written).position(|(found, written)| found != written),
            Err(_) => Some(0),
        };
        Ok(first.map(|first| RegionFault::Changed { at: region.at.plus(first as u64) }))
    }

    /// The EFI system partition, made again from the loaders on the medium.
    fn esp(&mut self) -> Result<Result<Vec<u8>, RegionFault>> {
        let mut contents = Vec::new();
        for (at, payload) in self.map.loaders {
            let mut bytes = Vec::new();
            let read = RegionReader::new(self.source, at, payload.size).read_to_end(&mut bytes);
            if read.is_err() || Digest::of(&bytes) != payload.sha256 {
                return Ok(Err(RegionFault::Unknown(payload.path.clone())));
            }
            contents.push(bytes);
        }
        let [shim, grub, mok] = &contents[..] else {
            anyhow::bail!("the release does not have three boot loaders")
        };
        let recipe = &self.map.recipe;
        esp::image(&recipe.menu(), recipe.release.epoch, [shim, grub, mok]).map(Ok)
    }

    fn tree(&mut self, region: &IsoRegion<'_>, tree: &RootfsTree<'_>) -> Result<Option<RegionFault>> {
        let parameters = VerityParameters::of_image(tree.image.sha256);
        let mut check = VerityTreeCheck::new(parameters, tree.image.size, tree.root_hash);
        let mut wrong = None;
        let trouble = self.pieces(region.at, region.length, |_, piece| {
            wrong = check.update(piece);
            wrong.is_none()
        })?;
        Ok(wrong.map(|block| RegionFault::Changed { at: region.at.plus(block) }).or(trouble))
    }

    fn area(&mut self, region: &IsoRegion<'_>) -> Result<Option<RegionFault>> {
        let mut reader = RegionReader::new(self.source, region.at, region.length);
        if let Err(damage) = area::read(&mut reader) {
            let cut = self.source.length()? < region.at.0 + region.length;
            let why = format!("{:#}", anyhow::Error::from(damage));
            return Ok(Some(if cut {
                RegionFault::CutOff { expected: region.length, found: reader.read }
            } else {
                RegionFault::Customization(why)
            }));
        }
        (self.read)(reader.read)?;
        let rest = (region.at.plus(reader.read), region.length - reader.read);
        self.zeros(rest.0, rest.1)
    }

    /// Compares the file that GRUB reads with the arguments of the area. Where the area is damaged, only the fault of
    /// the area is reported.
    fn arguments(&mut self, region: &IsoRegion<'_>) -> Result<Option<RegionFault>> {
        let content = match area::read(RegionReader::new(self.source, self.map.area, area::LENGTH)) {
            Ok(content) => content.unwrap_or_default(),
            Err(_) => return Ok(None),
        };
        let wanted = argument::grub(&content.arguments, content.boot_password.as_ref())?;
        Ok(self.bytes(region, &wanted)?.map(|fault| match fault {
            RegionFault::Changed { .. } => RegionFault::Customization(format!(
                "it does not have the kernel arguments and the password that {FILE} has"
            )),
            fault => fault,
        }))
    }

    /// The length of a region that fits into memory.
    fn whole(&mut self, region: &IsoRegion<'_>) -> Result<Result<Vec<u8>, RegionFault>> {
        let (at, length) = (region.at, region.length);
        let mut bytes = Vec::with_capacity(usize::try_from(length)?);
        let trouble = self.pieces(at, length, |_, piece| {
            bytes.extend_from_slice(piece);
            true
        })?;
        Ok(trouble.map_or(Ok(bytes), Err))
    }
}

struct RegionReader<'s> {
    source: &'s dyn Source,
    at: Offset,
    length: u64,
    read: u64,
}

impl<'s> RegionReader<'s> {
    fn new(source: &'s dyn Source, at: Offset, length: u64) -> Self {
        Self { source, at, length, read: 0 }
    }
}

impl Read for RegionReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.read).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.source.read_at(&mut buffer[..wanted], self.at.plus(self.read))?;
        self.read += count as u64;
        Ok(count)
    }
}
