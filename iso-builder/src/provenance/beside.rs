//! The provenance that lies beside a finished release: whether it is about that release, and who has signed it.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure, causes};
use base::files::read_at_most;
use formats::dsse::{Envelope, MAX_ENVELOPE_BYTES};
use medium::build_output::{BUILD_AGAIN, BuildOutput, SBOM};
use medium::reader::MediumReader;
use model::release::MANIFEST;
use serde::Serialize;
use trust::{DocumentError, ReleaseTrust, TrustStore, judge_provenance, provenance_failure};

use super::PROVENANCE;
use super::statement::Statement;
use crate::files::digest_of_file;
use crate::signing::SignatureSummary;
use crate::wording::{counted, printable};

/// The provenance in a directory with a release.
#[derive(Clone, Debug)]
pub struct ReleaseProvenance {
    path: PathBuf,
    envelope: Envelope,
    statement: Statement,
    faults: Vec<String>,
}

/// What a command shows of the provenance of a release.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ProvenanceDescription {
    /// A release of an older builder, or one whose file was removed.
    Missing,
    Unreadable {
        reason: String,
    },
    Found {
        /// Who has signed it, by the keys that are known here.
        signatures: SignatureSummary,
        /// What of the release beside it is not what it is about.
        faults: Vec<String>,
        statement: Box<Statement>,
    },
}

impl ReleaseProvenance {
    /// That in the directory `directory`; none if it has none.
    ///
    /// # Errors
    /// [`Class::Verification`] if it cannot be read.
    pub fn find(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(PROVENANCE);
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let read = || {
            // Opening a FIFO would block.
            anyhow::ensure!(path.is_file(), "it is no regular file");
            let envelope = Envelope::parse(&read_at_most(&path, MAX_ENVELOPE_BYTES)?)?;
            let statement = Statement::of_envelope(&envelope)?;
            Ok((envelope, statement))
        };
        let (envelope, statement) = read().map_err(|error: anyhow::Error| {
            let what = format!("reading the provenance {}", path.display());
            Failure::new(Class::Verification, what).because(error).hint(BUILD_AGAIN)
        })?;
        let faults = faults(directory, &statement)?;
        Ok(Some(Self { path, envelope, statement, faults }))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What of the release beside it is not what it is about, as clauses.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Who has signed it, by the keys of `known`.
    #[must_use]
    pub fn signatures(&self, known: &TrustStore) -> SignatureSummary {
        match self.judged(&known.clone().allowing_unsigned(true)) {
            Ok(trust) => SignatureSummary {
                trusted: matches!(trust, ReleaseTrust::Signed(_)),
                text: trust.to_string(),
            },
            Err(error) => SignatureSummary { trusted: false, text: error.to_string() },
        }
    }

    fn judged(&self, known: &TrustStore) -> Result<ReleaseTrust, DocumentError> {
        judge_provenance(&self.envelope, known)
    }

    /// Fails unless it is about the release beside it and `known` lets it be used.
    ///
    /// # Errors
    /// [`Class::Verification`] with the reason.
    pub fn check(&self, known: &TrustStore) -> Result<()> {
        self.check_subjects()?;
        let source = || self.path.display().to_string();
        self.judged(known).map(drop).map_err(|error| provenance_failure(error, &source()).into())
    }

    /// Fails if parts of the release were made by other hosts than its builder: whoever signs it would answer for them.
    ///
    /// # Errors
    /// [`Class::Invalid`] with the repositories that they came from.
    pub fn check_steps(&self) -> Result<()> {
        let shared = &self.statement.predicate.build_definition.internal_parameters.shared_steps;
        if shared.is_empty() {
            return Ok(());
        }
        let origins: Vec<_> = shared.iter().map(String::as_str).collect();
        let what = format!("the release is made of steps that other hosts shared in {}", origins.join(", "));
        let hint = "Build it without --cache-from, or name its keys in `trust.keys`, and sign that.";
        Err(Failure::new(Class::Invalid, what).hint(hint).into())
    }

    /// Fails unless it is about the release beside it.
    ///
    /// # Errors
    /// [`Class::Verification`] with all that differs.
    pub fn check_subjects(&self) -> Result<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let what = format!("the provenance {} is not about the release beside it", self.path.display());
        let why = anyhow!("{}", self.faults.join("\n           "));
        Err(Failure::new(Class::Verification, what).because(why).hint(BUILD_AGAIN).into())
    }

    /// The same with the signatures that `sign` adds: the bytes of the file. Nothing is written.
    ///
    /// # Errors
    /// Those of `sign`; [`Class::Invalid`] if readers would not take so many signatures.
    pub fn signed(&self, sign: &mut dyn FnMut(&mut Envelope) -> Result<()>) -> Result<Vec<u8>> {
        let mut envelope = self.envelope.clone();
        sign(&mut envelope)?;
        let line = envelope.to_line();
        Envelope::parse(&line).map_err(|error| {
            Failure::new(Class::Invalid, format!("signing {}", self.path.display()))
                .because(error)
                .hint("Build the release again, and sign it with fewer keys.")
        })?;
        Ok(line)
    }
}

/// What in `directory` is not what `statement` is about: manifests, the bill of materials, disk images.
fn faults(directory: &Path, statement: &Statement) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let about = |name: &str| format!("{name} is not a subject of it");
    let manifest = directory.join(MANIFEST);
    if manifest.is_file() && !statement.is_about(digest_of_file(&manifest)?.0) {
        faults.push(about(MANIFEST));
    }
    let sbom = directory.join(SBOM);
    if sbom.is_file() && statement.subject(SBOM) != Some(digest_of_file(&sbom)?.0) {
        faults.push(about(SBOM));
    }
    for (name, sha256) in BuildOutput::open(directory)?.iter().flat_map(BuildOutput::sums) {
        let fits = if name.ends_with(".iso") {
            // What cannot be opened is told where media are verified.
            MediumReader::open(&directory.join(name))
                .map_or(true, |iso| statement.is_about(iso.release_digest()))
        } else if name.ends_with(".raw") || name.ends_with(".qcow2") {
            statement.subject(name) == Some(*sha256)
        } else {
            true
        };
        if !fits {
            faults.push(about(name));
        }
    }
    Ok(faults)
}

impl ProvenanceDescription {
    /// That of the directory `directory`.
    #[must_use]
    pub fn of(directory: &Path, known: &TrustStore) -> Self {
        match ReleaseProvenance::find(directory) {
            Ok(None) => Self::Missing,
            Ok(Some(found)) => Self::Found {
                signatures: found.signatures(known),
                faults: found.faults.clone(),
                statement: Box::new(found.statement),
            },
            Err(error) => Self::Unreadable { reason: causes(&error).join(": ") },
        }
    }
}

impl fmt::Display for ProvenanceDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provenance")?;
        let (signatures, faults, statement) = match self {
            Self::Missing => return write!(f, "\n  none: {PROVENANCE} is missing"),
            Self::Unreadable { reason } => return write!(f, "\n  not readable: {}", printable(reason)),
            Self::Found { signatures, faults, statement } => (signatures, faults, statement),
        };
        let named = |text: &str, sha256: Digest| format!("{}, sha256:{sha256}", printable(text));
        let parameters = &statement.build().external_parameters;
        let builder = statement.builder();
        write!(f, "\n  signed     {}", printable(&signatures.text))?;
        for fault in faults {
            write!(f, "\n  FAULT      {}", printable(fault))?;
        }
        write!(f, "\n  definition {}", named(&parameters.definition.path, parameters.definition.sha256))?;
        write!(f, "\n  lock       sha256:{}", parameters.lock.sha256)?;
        write!(f, "\n  builder    iso-builder {}", named(&builder.iso_builder, builder.sha256))?;
        write!(f, "\n  built from {}", counted(statement.build().resolved_dependencies.len(), "input"))
    }
}
