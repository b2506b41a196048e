//! Who signs the release of a build, and whom its nodes trust.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::progress::Progress;
use formats::dsse::Envelope;
use jiff::Timestamp;
use trust::{Revocations, TrustStore, TrustedKey};

use crate::cache::StepTrust;
use crate::definition::LoadedDefinition;
use crate::signing::{ReleaseSigner, SignerOptions, add_all};

/// The part of a build's progress that tells it.
const STEP: &str = "signing";

/// Who signs what a build makes.
#[derive(Clone, Debug)]
pub enum BuildSigners {
    /// Keys, which sign anew.
    Keys(Vec<SignerOptions>),
    /// Nobody: the build makes a release again that has its signatures.
    Known(KnownSignatures),
}

/// The signatures of a release that is made again.
#[derive(Clone, Debug, Default)]
pub struct KnownSignatures {
    /// The keys that its first build signed with. Where the definition names none, its nodes trust them.
    pub keys: Vec<TrustedKey>,
    /// The files of signatures, by the digests of the manifests that they belong to.
    pub by_manifest: BTreeMap<Digest, Vec<u8>>,
}

/// What the definition revokes.
///
/// # Errors
/// Those of [`RevokedSpec::read`](crate::signing::spec::RevokedSpec::read).
pub(super) fn revocations(loaded: &LoadedDefinition) -> Result<Revocations> {
    loaded.definition.trust.revoked.read(&|path| loaded.resolve(path))
}

/// What is known of signatures before the work begins.
#[derive(Debug)]
pub(super) struct BuildSigning<'s> {
    /// The trust store of the OS image.
    pub(super) store: TrustStore,
    signers: &'s OpenSigners,
}

/// The same as [`BuildSigners`], ready to sign the releases of all architectures.
#[derive(Debug)]
pub(super) enum OpenSigners {
    Keys(Vec<ReleaseSigner>),
    Known(KnownSignatures),
}

impl OpenSigners {
    /// Opens the keys, which may ask for passphrases.
    pub(super) fn open(signers: &BuildSigners) -> Result<Self> {
        Ok(match signers {
            BuildSigners::Keys(options) => {
                Self::Keys(options.iter().map(ReleaseSigner::open).collect::<Result<_>>()?)
            }
            BuildSigners::Known(known) => Self::Known(known.clone()),
        })
    }
}

impl<'s> BuildSigning<'s> {
    /// Checks that the nodes of the build can take its release.
    pub(super) fn begin(
        loaded: &LoadedDefinition,
        open: &'s OpenSigners,
        progress: &Progress,
    ) -> Result<Self> {
        let (spec, revoked) = (&loaded.definition.trust, revocations(loaded)?);
        let signers = match open {
            OpenSigners::Keys(signers) => signers,
            OpenSigners::Known(KnownSignatures { keys, .. }) => {
                return Ok(Self { store: spec.store(keys, revoked)?, signers: open });
            }
        };
        let keys: Vec<_> = signers.iter().map(|signer| signer.key().clone()).collect();
        let store = spec.store(&keys, revoked)?;
        for TrustedKey { name, key, development } in &keys {
            let text = match development {
                true => format!(
                    "The release is signed with the development key {}: for trials on this user's machines",
                    key.id()
                ),
                false => format!("The release is signed with the key {name} ({})", key.id()),
            };
            progress.note(STEP, text);
        }
        let counted = keys.iter().filter(|key| store.key(key.key.id()).is_some()).count();
        if store.keys().is_empty() {
            progress.warn(
                STEP,
                "the release is not signed, and its nodes take any other that is not: whoever can change a medium, or \
                 answers for a server, can change them",
            );
        } else if counted < store.threshold() {
            let missing = store.threshold() - counted;
            let text = format!(
                "the release lacks {missing} of {} signatures; its installer refuses it until `iso-builder keys sign` has \
                 added them",
                store.threshold()
            );
            progress.warn(STEP, &text);
        }
        Ok(Self { store, signers: open })
    }

    /// Whose steps the build may use: what keys vouch for is made of those of this host only. A development key is for trials.
    pub(super) fn step_trust(&self) -> StepTrust {
        match self.store.keys().iter().all(|key| key.development) {
            true => StepTrust::Shared,
            false => StepTrust::Own,
        }
    }

    /// The signatures of a manifest that the build makes; none without a key. They say that they were made at `epoch`, the moment that
    /// all timestamps of the build carry, so that two builds are equal.
    pub(super) fn sign(&self, manifest: &[u8], epoch: u64) -> Result<Option<Vec<u8>>> {
        let when = i64::try_from(epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
        let when = when.context("the time of the release is out of range")?;
        match &self.signers {
            OpenSigners::Keys(signers) => add_all(signers, manifest, None, when),
            OpenSigners::Known(known) => Ok(known.by_manifest.get(&Digest::of(manifest)).cloned()),
        }
    }

    /// Adds a signature of each key to the envelope of the provenance; none without a key.
    pub(super) fn sign_provenance(&self, envelope: &mut Envelope) -> Result<()> {
        match &self.signers {
            OpenSigners::Keys(signers) => {
                signers.iter().try_for_each(|signer| signer.sign_envelope(envelope))
            }
            OpenSigners::Known(_) => Ok(()),
        }
    }
}
