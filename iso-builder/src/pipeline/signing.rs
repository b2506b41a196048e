//! Who signs the release of a build, and whom its nodes trust.

use anyhow::{Context, Result};
use base::progress::Progress;
use jiff::Timestamp;
use trust::TrustStore;

use crate::signing::spec::TrustSpec;
use crate::signing::{ReleaseSigner, SignerOptions};

/// What is known of signatures before the work begins.
#[derive(Debug)]
pub(super) struct BuildSigning {
    /// The trust store of the OS image.
    pub(super) store: TrustStore,
    pub(super) signer: Option<ReleaseSigner>,
}

impl BuildSigning {
    /// Opens the key, which may ask for its passphrase, and checks that the nodes of the build will take its release.
    pub(super) fn begin(
        spec: &TrustSpec,
        options: Option<&SignerOptions>,
        progress: &Progress,
    ) -> Result<Self> {
        let signer = options.map(ReleaseSigner::open).transpose()?;
        let key = signer.as_ref().map(ReleaseSigner::key);
        let store = spec.store(key)?;
        match key {
            Some(key) if key.development => progress.note(
                "signing",
                format!("The release is signed with the development key {} of this user: for trials, not for others", key.key.id()),
            ),
            Some(key) => progress.note("signing", format!("The release is signed with the key {} ({})", key.name, key.key.id())),
            None if store.keys().is_empty() => {
                progress.warn("signing", "the release is not signed, and its nodes take any other that is not: whoever can change a medium, or answers for a server, can change them");
            }
            None => progress.warn(
                "signing",
                "the release is not signed yet; its installer refuses it until `iso-builder keys sign` has signed it",
            ),
        }
        Ok(Self { store, signer })
    }

    /// The signatures of a manifest that the build makes; none without a key. They say that they were made at `epoch`, the moment that
    /// all timestamps of the build carry, so that two builds are equal.
    pub(super) fn sign(&self, manifest: &[u8], epoch: u64) -> Result<Option<Vec<u8>>> {
        let Some(signer) = &self.signer else { return Ok(None) };
        let when = i64::try_from(epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
        signer.add(manifest, None, when.context("the time of the release is out of range")?).map(Some)
    }
}
