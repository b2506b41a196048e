//! Where the customization area and GRUB's file lie on a medium.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use formats::iso9660::{self, Extent};
use medium::customization::{FILE, GRUB_FILE, area, argument};
use medium::reader::{MediumImage, MediumReader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRun {
    /// Offset of the first byte.
    pub at: u64,
    /// In bytes.
    pub length: u64,
}

/// Where the two files are, which lie in one file or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomizationLocation {
    /// The ISO or the device, or its URL; for a directory, the file with the area.
    pub path: PathBuf,
    pub area: Vec<ByteRun>,
    /// The file that GRUB reads; empty for a directory, which GRUB does not boot from.
    pub grub: Vec<ByteRun>,
    /// The offset at which the medium ends in its file or device.
    pub end: u64,
    pub directory: bool,
}

impl CustomizationLocation {
    /// Finds both on `medium`. A medium without them is [`Class::Invalid`], a truncated one [`Class::Verification`].
    pub fn find(medium: &MediumReader) -> Result<Self> {
        let Some(iso) = medium.iso() else {
            return match medium.local() {
                Some(directory) => Self::in_directory(directory),
                None => Err(served_directory(medium.path())),
            };
        };
        let path = medium.path().to_owned();
        medium.is_whole()?;
        let find = |file, length| spans(iso, &path, file, length);
        let (area, grub) = (find(FILE, area::LENGTH)?, find(GRUB_FILE, argument::GRUB_LENGTH as u64)?);
        Ok(Self { path: path.clone(), area, grub, end: iso.volume().size, directory: false })
    }

    fn in_directory(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Err(without(directory));
        }
        let length =
            fs::metadata(&path).class(Class::DiskIo, || format!("looking at {}", path.display()))?.len();
        if length != area::LENGTH {
            return Err(wrong_length(directory, FILE, length, area::LENGTH));
        }
        let area = vec![ByteRun { at: 0, length }];
        Ok(Self { path, area, grub: Vec::new(), end: length, directory: true })
    }
}

fn spans(iso: &MediumImage, path: &Path, file: &str, length: u64) -> Result<Vec<ByteRun>> {
    let entry = match iso.entry(file) {
        Ok(entry) => entry,
        Err(iso9660::Error::NotFound(_)) => return Err(without(path)),
        Err(error) => {
            return Err(error)
                .class(Class::Verification, || format!("looking for {file} in {}", path.display()));
        }
    };
    if entry.kind != iso9660::EntryKind::File || entry.size() != length {
        return Err(wrong_length(path, file, entry.size(), length));
    }
    let span = |extent: &Extent| ByteRun { at: extent.start.offset().0, length: extent.length.into() };
    let spans: Vec<_> = entry.extents.iter().map(span).collect();
    let end = spans.iter().map(|span| span.at.saturating_add(span.length)).max().unwrap_or_default();
    if end > iso.volume().size {
        let what = format!("{} is damaged: {file} lies beyond its end", path.display());
        return Err(Failure::new(Class::Verification, what)
            .hint("Copy or download the medium again.")
            .into());
    }
    Ok(spans)
}

fn served_directory(url: &Path) -> anyhow::Error {
    let what = format!("{} is a directory on a server, and cannot be customized from here", url.display());
    Failure::new(Class::Invalid, what)
        .hint("Customize the directory where it is, or give the URL of the ISO and -o.")
        .into()
}

fn without(medium: &Path) -> anyhow::Error {
    let what = format!("{} cannot be customized", medium.display());
    Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("it was built without room for that: it has no {FILE}"))
        .hint(
            "Build the medium anew with this iso-builder, or name the configuration in the image definition.",
        )
        .into()
}

fn wrong_length(medium: &Path, file: &str, found: u64, expected: u64) -> anyhow::Error {
    let what = format!("{} cannot be customized", medium.display());
    Failure::new(Class::Verification, what)
        .because(anyhow::anyhow!("its {file} has {found} bytes instead of {expected}"))
        .hint("Copy or download the medium again, or use the iso-builder of the release that made it.")
        .into()
}
