//! A release manifest that can be signed, and the place of its signatures.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{output_directory, write_atomically};
use base::progress::Progress;
use medium::iso::{self, CheckScope, IsoMap, recipe};
use medium::reader::{COPY_AGAIN, MediumReader};
use medium::signatures;
use model::release::{MANIFEST, Release, SIGNATURES, SIGNATURES_LENGTH};

use super::region;
use crate::media::customize::change;

/// Media are public, and so are their signatures.
pub(super) const MODE: u32 = 0o644;

/// An ISO, or a directory with `release.json`.
#[derive(Debug)]
pub(super) struct SignableMedium {
    pub(super) medium: MediumReader,
    pub(super) release: Release,
    /// The signatures that it has.
    pub(super) existing: Option<Vec<u8>>,
    place: SignaturesPlace,
}

#[derive(Debug)]
enum SignaturesPlace {
    /// The bytes of an ISO, which is locked.
    Iso { iso: File, at: u64 },
    /// The file in a directory.
    File(PathBuf),
}

impl SignableMedium {
    /// Opens the medium at `path`, and makes sure that signatures can be written there. Those of an ISO that a power cut has
    /// left incomplete count as none.
    pub(super) fn open(path: &Path, progress: &Progress) -> Result<Self> {
        let medium = MediumReader::open(path)?;
        let release = medium.release()?;
        if medium.local().is_none() {
            let what = format!("{} is on a server, where it cannot be changed", medium.path().display());
            return Err(Failure::new(Class::Invalid, what)
                .hint("Sign the medium on the machine that has its files.")
                .into());
        }
        let (place, existing) = match medium.iso() {
            Some(_) => {
                let at = place_in_iso(&medium, &release)?;
                let iso = change::open(path)?;
                let region = medium.read_at_most(SIGNATURES, SIGNATURES_LENGTH)?;
                let incomplete = signatures::first_fault(&region).is_some();
                if incomplete {
                    let text =
                        format!("the signatures of {} are incomplete and are replaced", path.display());
                    progress.warn("sign", &text);
                }
                let existing = Some(region).filter(|_| !incomplete).and_then(signatures::text);
                (SignaturesPlace::Iso { iso, at }, existing)
            }
            None => {
                output_directory(path, 0o755)?;
                let file = path.join(SIGNATURES);
                replaceable(&file)?;
                (SignaturesPlace::File(file), medium.signatures()?)
            }
        };
        Ok(Self { medium, release, existing, place })
    }

    pub(super) fn is_iso(&self) -> bool {
        matches!(self.place, SignaturesPlace::Iso { .. })
    }

    pub(super) fn digest(&self) -> Digest {
        self.medium.release_digest()
    }

    /// Makes sure that every byte of an ISO is as it was built or customized.
    ///
    /// # Errors
    /// [`Class::Verification`] with the parts that differ.
    pub(super) fn check_whole(&self, progress: &Progress) -> Result<()> {
        let map = IsoMap::of(&self.release, self.medium.manifest())?;
        let Some((image, map)) = self.medium.image().zip(map) else { return Ok(()) };
        let name = self.medium.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut step = progress.step(&format!("verify-{name}"), format!("Comparing {name}"), Some(map.size));
        let mut differences = iso::check(image, &map, CheckScope::Whole, &mut |bytes| {
            step.advance(bytes);
            Ok(())
        })?;
        // Incomplete signatures are replaced.
        differences.retain(|difference| difference.owner != iso::map::signatures());
        if differences.is_empty() {
            step.done();
            return Ok(());
        }
        let told: Vec<_> = differences.iter().map(ToString::to_string).collect();
        let what = format!("{} is not as it was built, so it is not signed", self.medium.path().display());
        Err(Failure::new(Class::Verification, what)
            .because(anyhow!("{}", told.join("\n           ")))
            .hint(COPY_AGAIN)
            .into())
    }

    /// Makes `text` the signatures; returns whether they were others.
    pub(super) fn put(&self, text: &[u8]) -> Result<bool> {
        let what = || format!("writing the signatures of {}", self.medium.path().display());
        let failed = |error: anyhow::Error| {
            Failure::new(Class::DiskIo, what())
                .because(error)
                .hint("Sign the medium again to complete the change.")
        };
        match &self.place {
            SignaturesPlace::Iso { iso, at } => {
                let region = signatures::padded(Some(text))?;
                Ok(region::replace(iso, *at, &region).map_err(|error| failed(error.into()))?)
            }
            SignaturesPlace::File(_) if self.existing.as_deref() == Some(text) => Ok(false),
            SignaturesPlace::File(file) => {
                write_atomically(file, text, MODE).map_err(failed)?;
                Ok(true)
            }
        }
    }
}

/// Where an ISO has room for signatures.
fn place_in_iso(medium: &MediumReader, release: &Release) -> Result<u64> {
    medium.is_whole()?;
    let path = medium.path().display();
    let map = IsoMap::of(release, medium.manifest())
        .class(Class::Verification, || format!("reading {MANIFEST} of {path}"))?;
    let Some(map) = map else {
        let why = match &release.iso {
            Some(iso) => {
                format!("it is made by recipe {}, and this builder follows {}", iso.recipe, recipe::NUMBER)
            }
            None => format!("its {MANIFEST} does not say how it is made: an older builder wrote it"),
        };
        return Err(Failure::new(Class::Invalid, format!("{path} cannot be signed"))
            .because(anyhow!(why))
            .hint("Build the medium again with this iso-builder, or use the iso-builder of its release.")
            .into());
    };
    // The installer finds them by the directories.
    let named = medium.iso().and_then(|iso| iso.plain_file(SIGNATURES).ok());
    let fits = named.is_some_and(|entry| {
        let start = entry.extents.first().map(|extent| extent.start.offset());
        (start, entry.extents.len(), entry.size()) == (Some(map.signatures), 1, SIGNATURES_LENGTH)
    });
    match fits {
        true => Ok(map.signatures.0),
        false => {
            let what = format!("{path} is damaged: its directories do not name the place of {SIGNATURES}");
            Err(Failure::new(Class::Verification, what).hint(COPY_AGAIN).into())
        }
    }
}

/// Makes sure that nothing but a regular file has this name: what is written replaces it.
///
/// # Errors
/// [`Class::Invalid`] for a link or something else.
pub(super) fn replaceable(file: &Path) -> Result<()> {
    match fs::symlink_metadata(file) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).class(Class::DiskIo, || format!("looking at {}", file.display())),
        Ok(metadata) => {
            let kind = if metadata.is_symlink() { "a symbolic link" } else { "no regular file" };
            let what = format!("{} is {kind}, and would be replaced", file.display());
            Err(Failure::new(Class::Invalid, what)
                .hint("Remove it, or sign the directory that has the files.")
                .into())
        }
    }
}
