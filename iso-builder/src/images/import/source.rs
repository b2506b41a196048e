//! The source of an import, and the failures that name it.

use std::path::Path;

use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::oci::ImageReference;
use model::config::Role;

use super::super::stored_image::StoredImage;

/// In bytes. No index, manifest or configuration of a sane image is larger; nor is an archive's list of images.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug)]
pub struct ImageImport<'a> {
    /// An OCI layout (a directory), or an archive: OCI's or Docker's, plain, gzip or zstd, whatever its file name is.
    pub path: &'a Path,
    /// Which of its images to import; empty means all that have a name.
    pub references: &'a [ImageReference],
    /// A file as `sha256sum` writes it, which has to name the archive and its digest.
    pub checksums: Option<&'a Path>,
    /// As Go calls it.
    pub architecture: &'a str,
    /// The roles whose nodes need the images; empty means every role.
    pub roles: &'a [Role],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedImages {
    /// In the order of the references or else of the archive.
    pub images: Vec<StoredImage>,
    /// Images that were left out and the reason, each a clause for the user.
    pub notes: Vec<String>,
}

impl ImageImport<'_> {
    /// The failure that the source cannot be used, with the reason.
    pub(super) fn refuse(&self, why: &str) -> anyhow::Error {
        Failure::new(Class::Invalid, format!("taking images from {}", self.path.display()))
            .because(anyhow::anyhow!("{why}"))
            .into()
    }

    pub(super) fn failure(&self, why: &str, hint: &str) -> anyhow::Error {
        let failure = Failure::new(Class::Invalid, format!("taking images from {}", self.path.display()));
        failure.because(anyhow::anyhow!("{why}")).hint(hint).into()
    }

    pub(super) fn differs(&self, digest: Digest, because: Option<anyhow::Error>) -> anyhow::Error {
        let list = self.checksums.unwrap_or(Path::new("")).display();
        let what = format!(
            "{} is not the file whose checksum is in {list}: its SHA-256 is {digest}",
            self.path.display()
        );
        let failure = Failure::new(Class::Verification, what)
            .hint("Download the archive again, and the checksums of the same release.");
        match because {
            // As text: the exit class of the read error matters less than the fact that it is the wrong file.
            Some(error) => failure.because(anyhow::anyhow!("{error:#}")).into(),
            None => failure.into(),
        }
    }
}
