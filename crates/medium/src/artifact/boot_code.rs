//! The boot code of an ISO that is not in its payloads: GRUB's El Torito image, and its boot sector for USB sticks.
//!
//! On an ISO each contains its own address. `release.json` has their digests without it ([`BiosBootCode`]); an ISO can be made
//! again from that form.

use std::io;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::iso9660::address::Offset;
use formats::iso9660::write::grub;
use model::release::BiosBootCode;

use crate::iso::recipe::ELTORITO;
use crate::reader::{COPY_AGAIN, MediumReader};

/// The path of the boot sector in a directory with the content of a medium. On an ISO it is the first sector.
const BOOT_SECTOR: &str = "boot/grub/boot_hybrid.img";
/// The largest El Torito image that is read, in bytes.
const MAX_ELTORITO: u64 = 16 << 20;

/// One part of the boot code, as in the release manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootCodePart {
    /// Path in a directory with the content of a medium.
    pub path: &'static str,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

#[derive(Clone, Debug)]
pub struct BootCode(Vec<(BootCodePart, Vec<u8>)>);

impl BootCodePart {
    #[must_use]
    pub fn of(code: &BiosBootCode) -> [Self; 2] {
        [
            Self { path: ELTORITO, size: code.eltorito_size, sha256: code.eltorito_sha256 },
            Self { path: BOOT_SECTOR, size: grub::BOOT_CODE as u64, sha256: code.boot_sector_sha256 },
        ]
    }
}

impl BootCode {
    /// The boot code of a medium, which may also be a directory with the two files. None where there is none.
    ///
    /// # Errors
    /// [`Class::Verification`] where it is not what the manifest says.
    pub fn of(medium: &MediumReader, code: &BiosBootCode) -> Result<Option<Self>> {
        let parts = BootCodePart::of(code);
        let [eltorito, sector] = parts;
        let Some(image) = find(medium, ELTORITO, MAX_ELTORITO)? else { return Ok(None) };
        let first = match medium.image() {
            Some(image) => {
                let mut first = vec![0; grub::BOOT_CODE];
                let count = image.read_at(&mut first, Offset(0)).context("reading the boot sector")?;
                first.truncate(count);
                Some(first)
            }
            None => find(medium, BOOT_SECTOR, grub::BOOT_CODE as u64)?,
        };
        let Some(first) = first else { return Ok(None) };
        let bare = [(eltorito, grub::bare_eltorito(&image)), (sector, grub::bare_boot_sector(&first))];
        let checked = bare.map(|(part, bytes)| {
            let damaged = |why: anyhow::Error| {
                let what = format!("{} of {} is damaged", part.path, medium.path().display());
                Failure::new(Class::Verification, what).because(why).hint(COPY_AGAIN)
            };
            let bytes = bytes.map_err(damaged)?;
            match Digest::of(&bytes) {
                found if found == part.sha256 => Ok((part, bytes)),
                found => Err(damaged(anyhow::anyhow!("its SHA-256 is {found} instead of {}", part.sha256))),
            }
        });
        Ok(Some(Self(checked.into_iter().collect::<Result<_, Failure>>()?)))
    }

    #[must_use]
    pub fn get(&self, digest: Digest) -> Option<&[u8]> {
        self.0.iter().find(|(part, _)| part.sha256 == digest).map(|(_, bytes)| bytes.as_slice())
    }
}

fn find(medium: &MediumReader, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match medium.read_at_most(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::fs;

    fn open(image: &[u8]) -> (tempfile::TempDir, MediumReader) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.iso");
        fs::write(&path, image).unwrap();
        (directory, MediumReader::open(&path).unwrap())
    }

    #[test]
    fn the_boot_code_of_an_iso_is_what_its_manifest_describes_and_a_directory_gives_it_too() {
        let release = testing::iso::release();
        let recipe = release.iso.clone().unwrap().bios.unwrap();
        let (directory, medium) = open(&testing::iso::image(&release));
        let code = BootCode::of(&medium, &recipe).unwrap().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("boot/grub")).unwrap();
        fs::write(tree.join("release.json"), release.to_bytes()).unwrap();
        let opened = MediumReader::open(&tree).unwrap();
        assert!(BootCode::of(&opened, &recipe).unwrap().is_none());
        for part in BootCodePart::of(&recipe) {
            let bytes = code.get(part.sha256).unwrap();
            assert_eq!((Digest::of(bytes), bytes.len() as u64), (part.sha256, part.size));
            fs::write(tree.join(part.path), bytes).unwrap();
        }
        assert!(BootCode::of(&opened, &recipe).unwrap().is_some());
    }

    #[test]
    fn boot_code_that_was_changed_is_not_taken() {
        let release = testing::iso::release();
        let mut image = testing::iso::image(&release);
        image[3] ^= 1;
        let (_directory, medium) = open(&image);
        let error = BootCode::of(&medium, &release.iso.unwrap().bios.unwrap()).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
    }
}
