//! Imports images from OCI layouts, OCI archives and Docker's archives into a store.
//!
//! An archive is read once, from front to back: its members are hashed on their way into the store's directory and stay
//! there without a name ([`spool`]) until the archive's index has assigned them to images. [`layout`] imports images in
//! OCI form, whose blobs are copied unchanged; [`docker`] those in Docker's form, whose layers have to become blobs
//! first; [`choose`] selects images by their references. Nothing is unpacked, and no path of an archive becomes a path
//! of the host.

mod blobs;
mod choose;
mod docker;
mod layout;
mod source;
mod spool;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use formats::oci::ImageReference;

use self::blobs::fill;
pub(crate) use self::choose::retain_platform;
pub(crate) use self::source::MAX_DOCUMENT_BYTES;
pub use self::source::{ImageImport, ImportedImages};
use super::store::Store;
use crate::archive::Compression;

/// Puts the images of a layout or an archive into `store`. `on_bytes` is called with the length of every piece that was
/// read; for an archive they add up to its size.
///
/// Errors of the source are [`Class::Verification`] if bytes do not have their digest, and otherwise
/// [`Class::Invalid`].
pub fn import(
    import: &ImageImport<'_>,
    store: &Store,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<ImportedImages> {
    let metadata = fs::metadata(import.path).map_err(|error| {
        let what = format!("reading the images in {}", import.path.display());
        Failure::new(Class::Invalid, what).because(error).hint("Correct the path in the image definition.")
    })?;
    if metadata.is_dir() {
        return import.directory(store, on_bytes);
    }
    if !metadata.is_file() {
        return Err(import.refuse("it is neither a directory nor a file"));
    }
    let expected = import.checksums.map(|file| checksum(file, import.path)).transpose()?;
    let spool = match spool::read(import.path, store, on_bytes) {
        Ok((_, digest)) if expected.is_some_and(|expected| expected != digest) => {
            return Err(import.differs(digest, None));
        }
        Ok((spool, _)) => spool,
        Err(error) => match expected {
            // If the digest of an unreadable file is another one, it is the wrong file.
            Some(expected) => match crate::files::digest_of_file(import.path) {
                Ok((digest, _)) if digest != expected => return Err(import.differs(digest, Some(error))),
                _ => return Err(error),
            },
            None => return Err(error),
        },
    };
    import.archive(spool, store)
}

/// The names of the images that [`import`] would bring, from the source's own list; none if it is compressed, so that only
/// reading all of it can tell.
///
/// # Errors
/// As [`import`] does for the list and the references; nothing else is looked at.
pub fn names(import: &ImageImport<'_>) -> Result<Option<Vec<ImageReference>>> {
    if import.path.is_dir() {
        return layout::names(import, &import.index()?).map(Some);
    }
    let mut file = File::open(import.path).with_context(|| format!("opening {}", import.path.display()))?;
    let mut head = [0; 8];
    let length = fill(&mut file, &mut head)?;
    let compression = Compression::of(head.get(..length).unwrap_or_default());
    if compression.map_err(|error| import.refuse(&error.to_string()))? != Compression::None {
        return Ok(None);
    }
    file.rewind()?;
    let refuse = |error: io::Error| import.refuse(&format!("reading it as an archive: {error}"));
    let mut documents: [Option<Vec<u8>>; 2] = [None, None];
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek().map_err(refuse)? {
        let entry = entry.map_err(refuse)?;
        let path = entry.path_bytes().into_owned();
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        let names = [&b"index.json"[..], b"manifest.json"];
        if let Some(document) = names.iter().zip(&mut documents).find(|(name, _)| **name == path) {
            let mut bytes = Vec::new();
            entry.take(MAX_DOCUMENT_BYTES).read_to_end(&mut bytes).map_err(refuse)?;
            *document.1 = Some(bytes);
        }
    }
    match documents {
        [Some(index), _] => layout::names(import, &index),
        [None, Some(manifest)] => docker::names(import, &manifest),
        [None, None] => Err(import.no_list()),
    }
    .map(Some)
}

impl ImageImport<'_> {
    fn directory(&self, store: &Store, on_bytes: &mut dyn FnMut(u64)) -> Result<ImportedImages> {
        if self.checksums.is_some() {
            let hint = "Leave the checksums out: a layout has digests of its own.";
            return Err(
                self.failure("a file of checksums belongs to an archive, and this is a directory", hint)
            );
        }
        let index = self.index()?;
        let mut blobs = layout::LayoutDirectory::new(self.path, store, on_bytes);
        layout::take(self, &index, &mut blobs, store)
    }

    /// The `index.json` of a directory.
    fn index(&self) -> Result<Vec<u8>> {
        if !self.path.join("index.json").is_file() {
            let hint = "A layout has index.json at its top; `skopeo copy … oci:DIRECTORY` makes one.";
            return Err(self.failure("it has no index.json", hint));
        }
        let index = files::read_at_most(&self.path.join("index.json"), MAX_DOCUMENT_BYTES);
        index.map_err(|error| self.refuse(&format!("{error:#}")))
    }

    fn archive(&self, mut spool: spool::Spool<'_>, store: &Store) -> Result<ImportedImages> {
        // Docker writes both forms into one archive since version 25. Blobs in OCI form keep their digests.
        if let Some(index) = spool.index.take() {
            return layout::take(self, &index, &mut spool, store);
        }
        if let Some(manifest) = spool.manifest.take() {
            return docker::take(self, &manifest, &mut spool, store);
        }
        Err(self.no_list())
    }

    fn no_list(&self) -> anyhow::Error {
        let hint = "An archive of images has index.json (OCI) or manifest.json (Docker) at its top; `docker save` and \
                    `skopeo copy` make such archives.";
        self.failure("it has neither index.json nor manifest.json", hint)
    }
}

fn checksum(list: &Path, archive: &Path) -> Result<Digest> {
    let text = files::read_text(list).map_err(|error| {
        Failure::new(Class::Invalid, format!("reading the checksums of {}", archive.display())).because(error)
    })?;
    let name = archive.file_name().context("an archive has a name")?.to_string_lossy();
    checksum_of(&text, &name).map_err(|why| {
        let what = format!("checking {} with {}", archive.display(), list.display());
        Failure::new(Class::Verification, what)
            .because(anyhow::anyhow!("{why}"))
            .hint("Name the file of checksums that was published with the archive, and keep the archive's name.")
            .into()
    })
}

/// Reads what `sha256sum` writes: a digest, a space, a space or `*`, a name with or without directories.
pub(crate) fn checksum_of(text: &str, name: &str) -> Result<Digest, String> {
    let digests = text.lines().filter_map(|line| {
        let (digest, path) = line.trim_end().split_once(char::is_whitespace)?;
        let path = path.trim_start().trim_start_matches('*');
        (path.rsplit('/').next() == Some(name)).then_some(digest)
    });
    let mut found = None;
    for digest in digests {
        let digest = digest.parse::<Digest>().map_err(|error| error.to_string())?;
        if found.is_some_and(|before| before != digest) {
            return Err(format!("it has two different checksums for {name}"));
        }
        found = Some(digest);
    }
    found.ok_or_else(|| format!("it has no checksum for {name}"))
}
