//! Whether a release may be used.

use std::fmt;

use base::digest::Digest;
use base::failure::{Class, Failure};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::statement::SignatureStatement;
use crate::store::{TrustStore, TrustedKey, named};
use formats::minisign::{KeyId, ParseSignatureError, Signature, SignatureError, parse_signatures};
use model::config::UnsignedRelease;
use model::release::{Release, SIGNATURES};
use model::rollback_index::RollbackIndex;

/// A trusted key whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signer {
    pub name: String,
    pub key: KeyId,
    pub development: bool,
    /// When it signed, by its own word.
    #[serde(serialize_with = "moment_as_text")]
    pub when: Option<Timestamp>,
}

/// Why a release counts as unsigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnsignedReason {
    /// It has no signatures.
    Missing,
    /// It has some, of keys that the trust store does not have.
    UnknownKeys(Vec<KeyId>),
    /// Fewer trusted keys have signed it than have to.
    TooFew { signers: Vec<Signer>, threshold: usize },
}

/// What is known of the origin of a release that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseTrust {
    /// Enough trusted keys have signed it.
    Signed(Vec<Signer>),
    /// Unsigned releases are allowed.
    Unsigned(UnsignedReason),
}

/// Why a release must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error("{0}")]
    Unsigned(UnsignedReason),
    /// A file that is no list of signatures.
    #[error("{SIGNATURES} is damaged: {0}")]
    Format(ParseSignatureError),
    /// A signature of a trusted key that does not belong to the manifest.
    #[error("the signature of {name} (key {key}) does not belong to this manifest: {why}")]
    Signature { name: String, key: KeyId, why: SignatureError },
    /// Its maker, or the owner of the system, has taken the release back.
    #[error("the release is revoked")]
    RevokedRelease,
    /// The system has had a release with a higher rollback index, and has nothing older left to start.
    #[error(
        "it is older than this node takes: its rollback index is {index}, and the floor of the node is {floor}"
    )]
    BelowFloor { index: RollbackIndex, floor: RollbackIndex },
    /// Keys have signed it that somebody else may have.
    #[error("it is signed with {}, which {} revoked", list("key", .0), if .0.len() == 1 { "is" } else { "are" })]
    RevokedKeys(Vec<KeyId>),
    /// A signature whose comment is about another release.
    #[error("the signature of {name} (key {key}) is for {said}, which this manifest is not")]
    Statement { name: String, key: KeyId, said: String },
}

/// Judges the release `release`, whose manifest has the bytes `manifest`, by `signatures`, the content of the file beside it.
///
/// A release may be used if as many different keys of `store` have signed it as `store` demands; other signatures do not count
/// then, so that one damaged signature of several does no harm. A release that is revoked, or below the floor, may not, and signatures
/// of revoked keys do not count. Otherwise a signature of a trusted key that is wrong is refused in
/// any case: the release was damaged or changed. What is only missing is refused unless `store` allows unsigned releases.
pub fn judge(
    release: &Release,
    manifest: &[u8],
    signatures: Option<&[u8]>,
    store: &TrustStore,
) -> Result<ReleaseTrust, TrustError> {
    let unsigned = |reason| match store.unsigned() {
        UnsignedRelease::Allow => Ok(ReleaseTrust::Unsigned(reason)),
        UnsignedRelease::Refuse => Err(TrustError::Unsigned(reason)),
    };
    if store.revoked().releases.contains(&Digest::of(manifest)) {
        return Err(TrustError::RevokedRelease);
    }
    let (index, floor) = (release.rollback_index, store.floor());
    if index < floor {
        return Err(TrustError::BelowFloor { index, floor });
    }
    let Some(signatures) = signatures else { return unsigned(UnsignedReason::Missing) };
    let signatures = parse_signatures(signatures).map_err(TrustError::Format)?;
    let tally = Tally::of(
        &signatures,
        store,
        |signature| Some(signature.key()),
        |signature, key| verified(release, manifest, signature, key),
    );
    match tally.verdict(store.threshold(), TrustError::RevokedKeys)? {
        Ok(signers) => Ok(ReleaseTrust::Signed(signers)),
        Err(reason) => unsigned(reason),
    }
}

fn verified(
    release: &Release,
    manifest: &[u8],
    signature: &Signature,
    TrustedKey { name, key, development }: &TrustedKey,
) -> Result<Signer, TrustError> {
    let name = name.clone();
    if let Err(why) = signature.verify(key, manifest) {
        return Err(TrustError::Signature { name, key: key.id(), why });
    }
    let statement = SignatureStatement::of(signature.comment());
    match statement.contradiction(release) {
        Some(said) => Err(TrustError::Statement { name, key: key.id(), said }),
        None => Ok(Signer { name, key: key.id(), development: *development, when: statement.when }),
    }
}

/// What the signatures of a document are worth.
pub(crate) struct Tally<E> {
    /// The trusted keys that have signed it, each once.
    signers: Vec<Signer>,
    unknown: Vec<KeyId>,
    revoked: Vec<KeyId>,
    /// The first signature of a trusted key that is wrong.
    wrong: Option<E>,
}

impl<E> Tally<E> {
    /// Counts `signatures` by the keys of `store`. `key_of` is the key that a signature names, none if it is of a kind that no store
    /// has; `verify` checks one of a trusted key.
    pub(crate) fn of<S>(
        signatures: &[S],
        store: &TrustStore,
        key_of: impl Fn(&S) -> Option<KeyId>,
        verify: impl Fn(&S, &TrustedKey) -> Result<Signer, E>,
    ) -> Self {
        let mut tally = Self { signers: Vec::new(), unknown: Vec::new(), revoked: Vec::new(), wrong: None };
        for signature in signatures {
            let Some(id) = key_of(signature) else { continue };
            if store.revoked().keys.contains(&id) {
                tally.revoked.push(id);
                continue;
            }
            let Some(key) = store.key(id) else {
                tally.unknown.push(id);
                continue;
            };
            match verify(signature, key) {
                Ok(signer) if tally.signers.iter().all(|known| known.key != signer.key) => {
                    tally.signers.push(signer);
                }
                Ok(_) => {}
                Err(error) => tally.wrong = tally.wrong.or(Some(error)),
            }
        }
        tally
    }

    /// The signers if at least `threshold` keys have signed, or else what is missing.
    ///
    /// # Errors
    /// If too few have signed: the signature that is wrong, or what `refused` makes of revoked keys.
    pub(crate) fn verdict(
        self,
        threshold: usize,
        refused: impl FnOnce(Vec<KeyId>) -> E,
    ) -> Result<Result<Vec<Signer>, UnsignedReason>, E> {
        let Self { signers, unknown, revoked, wrong } = self;
        if signers.len() >= threshold {
            return Ok(Ok(signers));
        }
        if let Some(error) = wrong {
            return Err(error);
        }
        if !revoked.is_empty() {
            return Err(refused(revoked));
        }
        Ok(Err(match (signers.is_empty(), unknown.is_empty()) {
            (true, true) => UnsignedReason::Missing,
            (true, false) => UnsignedReason::UnknownKeys(unknown),
            (false, _) => UnsignedReason::TooFew { signers, threshold },
        }))
    }
}

/// Why a document that is no release, but is signed with the same keys, must not be used: a customization, a provenance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("{0}")]
    Unsigned(UnsignedReason),
    /// A signature of a trusted key over something else.
    #[error("the signature of {name} (key {key}) does not belong to it: {why}")]
    Signature { name: String, key: KeyId, why: SignatureError },
    /// Keys have signed it that somebody else may have.
    #[error("it is signed with {}, which {} revoked", list("key", .0), if .0.len() == 1 { "is" } else { "are" })]
    RevokedKeys(Vec<KeyId>),
}

impl ReleaseTrust {
    /// True if nobody but those who allowed unsigned releases has answered for it, or a key to try things with.
    #[must_use]
    pub fn needs_warning(&self) -> bool {
        match self {
            Self::Signed(signers) => signers.iter().any(|signer| signer.development),
            Self::Unsigned(_) => true,
        }
    }
}

impl TrustError {
    /// The error about the release of `source`, with the next step. `allow` is how a person says that it may be used all the same.
    #[must_use]
    pub fn failure(self, source: &str, allow: &str) -> Failure {
        let hint = match &self {
            Self::Unsigned(UnsignedReason::Missing) => {
                format!("Sign it with `iso-builder keys sign`, take a signed release, or use it all the same: {allow}.")
            }
            Self::Unsigned(UnsignedReason::UnknownKeys(_)) => {
                format!("Ask its maker for the public key, and compare the id. To use the release all the same: {allow}.")
            }
            Self::Unsigned(UnsignedReason::TooFew { .. }) => {
                format!("Ask for the signatures that are missing. To use the release all the same: {allow}.")
            }
            Self::Format(_) | Self::Signature { .. } => {
                "Copy or download the release again. If that does not help, do not use it, and tell its maker.".to_owned()
            }
            Self::RevokedRelease => "Take a later release.".to_owned(),
            Self::BelowFloor { floor, .. } => format!(
                "Take a release with the rollback index {floor} or a higher one. A node that is installed again from a medium has no floor."
            ),
            Self::RevokedKeys(_) => {
                "Take a release that another key has signed. If there is none yet, ask its maker.".to_owned()
            }
            Self::Statement { .. } => "Do not use it, and tell its maker.".to_owned(),
        };
        Failure::new(Class::Verification, format!("the release of {source} is not trusted"))
            .because(self)
            .hint(hint)
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, key, development, when } = self;
        named(f, name, *key, *development)?;
        when.map_or(Ok(()), |when| write!(f, " on {}", when.strftime("%F")))
    }
}

impl fmt::Display for UnsignedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is not signed"),
            Self::UnknownKeys(keys) => write!(f, "it is signed with {}, not trusted here", list("key", keys)),
            Self::TooFew { signers, threshold } => {
                write!(
                    f,
                    "{} of {threshold} trusted keys that are needed have signed it: {}",
                    signers.len(),
                    joined(signers)
                )
            }
        }
    }
}

/// A clause: `signed by …`, `not signed`.
impl fmt::Display for ReleaseTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(signers) => write!(f, "signed by {}", joined(signers)),
            Self::Unsigned(UnsignedReason::Missing) => f.write_str("not signed"),
            Self::Unsigned(UnsignedReason::UnknownKeys(keys)) => {
                write!(f, "signed with {}, not trusted here", list("key", keys))
            }
            Self::Unsigned(UnsignedReason::TooFew { signers, threshold }) => {
                write!(f, "signed by {}, {} of {threshold} that are needed", joined(signers), signers.len())
            }
        }
    }
}

pub(crate) fn joined(parts: &[impl fmt::Display]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn list(noun: &str, keys: &[KeyId]) -> String {
    let plural = if keys.len() == 1 { "" } else { "s" };
    format!("the {noun}{plural} {}", joined(keys))
}

fn moment_as_text<S: Serializer>(when: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match when {
        Some(when) => serializer.collect_str(when),
        None => serializer.serialize_none(),
    }
}
