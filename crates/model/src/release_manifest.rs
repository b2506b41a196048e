//! A release with the two files that say what it is and who has signed it, as a node keeps them.

use std::ops::Deref;

use base::digest::Digest;

use crate::release::{ParseReleaseError, Release};

/// A release as it came: its manifest, byte for byte, and the signatures over those bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseManifest {
    release: Release,
    bytes: Vec<u8>,
    signatures: Option<Vec<u8>>,
}

impl ReleaseManifest {
    /// Reads the manifest `bytes`, beside which there are `signatures`, as text without padding.
    pub fn parse(bytes: Vec<u8>, signatures: Option<Vec<u8>>) -> Result<Self, ParseReleaseError> {
        let release = Release::parse(&bytes)?;
        Ok(Self { release, bytes, signatures })
    }

    /// The bytes of `release.json`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of `release.json.minisig`; none if the release has no signatures.
    #[must_use]
    pub fn signatures(&self) -> Option<&[u8]> {
        self.signatures.as_deref()
    }

    /// SHA-256 of the manifest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

impl Deref for ReleaseManifest {
    type Target = Release;

    fn deref(&self) -> &Release {
        &self.release
    }
}

/// A release without signatures, with the canonical bytes of its manifest.
impl From<Release> for ReleaseManifest {
    fn from(release: Release) -> Self {
        let bytes = release.to_bytes();
        Self { release, bytes, signatures: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_stay_as_they_came() {
        let canonical = testing::release::release().to_bytes();
        let spaced = [&canonical[..], b"\n\n"].concat();
        let manifest = ReleaseManifest::parse(spaced.clone(), Some(b"signed\n".to_vec())).unwrap();
        assert_eq!((manifest.bytes(), manifest.signatures()), (&spaced[..], Some(&b"signed\n"[..])));
        assert_eq!(
            (&*manifest, manifest.digest()),
            (&Release::parse(&canonical).unwrap(), Digest::of(&spaced))
        );
        assert_eq!(ReleaseManifest::from((*manifest).clone()).bytes(), canonical);
        assert!(ReleaseManifest::parse(b"{}".to_vec(), None).is_err());
    }
}
