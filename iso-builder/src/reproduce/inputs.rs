//! What a release says that it was made of, and what is here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{parent, read_at_most};
use formats::dsse::MAX_ENVELOPE_BYTES;
use formats::minisign::parse_signatures;
use model::architecture::Architecture;
use trust::TrustedKey;

use super::finished_release::FinishedRelease;
use super::report::ComparedInput;
use crate::files::digest_of_file;
use crate::lock::Lock;
use crate::provenance::{BuilderVersion, DependencyDigest, PROVENANCE, Statement};

const INSTALLER: &str = "installer";

/// What a release says of itself.
#[derive(Debug)]
pub(super) struct ReleaseOrigin {
    /// None for a release without a provenance.
    statement: Option<Statement>,
}

impl ReleaseOrigin {
    /// Reads the provenance beside `release`, whose signatures do not matter here: what it says is tried.
    ///
    /// # Errors
    /// [`Class::Verification`] if it is damaged, or that of another release.
    pub(super) fn read(release: &FinishedRelease) -> Result<Self> {
        let Some(medium) = release.media().first() else { return Ok(Self { statement: None }) };
        let is_directory = medium.reader.iso().is_none();
        let directory = if is_directory { release.path() } else { parent(release.path()) };
        let path = directory.join(PROVENANCE);
        if !path.exists() {
            return Ok(Self { statement: None });
        }
        let what = || format!("reading {}", path.display());
        let bytes = read_at_most(&path, MAX_ENVELOPE_BYTES)?;
        let statement = Statement::parse(&bytes).class(Class::Verification, what)?;
        match statement.is_about(medium.reader.release_digest()) {
            true => Ok(Self { statement: Some(statement) }),
            // An ISO may lie beside anything.
            false if !is_directory => Ok(Self { statement: None }),
            false => Err(Failure::new(Class::Verification, format!("{} is of another release", path.display()))
                .because(anyhow!("it does not name the release.json beside it"))
                .hint("Copy all files of the release again, or remove this one and name the definition: --definition FILE.")
                .into()),
        }
    }

    /// The variant of the definition that the release says it was built from.
    pub(super) fn variant(&self) -> Option<&str> {
        self.statement.as_ref()?.build().external_parameters.definition.variant.as_deref()
    }

    /// The definition that `named` names, or else the release, which is `release`: a path below the current directory, and not a file
    /// that came with the release.
    ///
    /// # Errors
    /// [`Class::Invalid`] if there is none, or no lock file beside it.
    pub(super) fn definition(
        &self,
        named: Option<&Path>,
        release: &Path,
        variant: Option<&str>,
        architecture: Architecture,
    ) -> Result<PathBuf> {
        let path = match (named, &self.statement) {
            (Some(named), _) => named.to_owned(),
            (None, Some(statement)) => {
                let path = PathBuf::from(&statement.build().external_parameters.definition.path);
                if came_with(&path, release) {
                    let what =
                        format!("the definition that the release names, {}, is not used", path.display());
                    return Err(Failure::new(Class::Invalid, what)
                        .because(anyhow!("it is not below this directory, or lies with the release, which could bring one that fits it"))
                        .hint("Name the definition that you have from elsewhere: --definition FILE.")
                        .into());
                }
                path
            }
            (None, None) => {
                let what = format!(
                    "the release does not say which definition it was built from: it has no {PROVENANCE}"
                );
                return Err(Failure::new(Class::Invalid, what).hint("Name it: --definition FILE.").into());
            }
        };
        let lock = Lock::found(&path, variant, architecture);
        for (needed, which) in [(path.clone(), "definition"), (lock, "lock file of the definition")] {
            if !needed.is_file() {
                let what = format!("the {which}, {}, is not here", needed.display());
                return Err(Failure::new(Class::Invalid, what)
                    .hint("Start in a checkout of its revision, or name the definition: --definition FILE. Its lock file lies beside it.")
                    .into());
            }
        }
        Ok(path)
    }

    /// The inputs that are known before a build.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub(super) fn compare_before(
        &self,
        definition: &Path,
        variant: Option<&str>,
        architecture: Architecture,
        installer: &Path,
    ) -> Result<Vec<ComparedInput>> {
        let digest = |path: &Path| Ok::<_, anyhow::Error>(digest_of_file(path)?.0);
        let first = self.statement.as_ref().map(StatedInputs::of);
        let again = StatedInputs {
            definition: digest(definition)?,
            lock: digest(&Lock::found(definition, variant, architecture))?,
            builder: BuilderVersion::of_this_program(digest)?.sha256,
            installer: Some(digest(installer)?),
        };
        Ok(again.compared(first.as_ref()))
    }

    /// All inputs, now that the build has stated its own in the directory `made`. Those that differ, and those that [`compare_before`]
    /// has.
    ///
    /// # Errors
    /// If the build has left no provenance.
    ///
    /// [`compare_before`]: Self::compare_before
    pub(super) fn compare_after(&self, made: &Path) -> Result<Vec<ComparedInput>> {
        let again = Statement::parse(&read_at_most(&made.join(PROVENANCE), MAX_ENVELOPE_BYTES)?)?;
        let first = self.statement.as_ref();
        let mut inputs = StatedInputs::of(&again).compared(first.map(StatedInputs::of).as_ref());
        let Some(first) = first else { return Ok(inputs) };
        // Two files may have one name.
        let named = |statement: &Statement| {
            let build = statement.build();
            let tools = build.internal_parameters.tools.iter();
            let tools = tools.map(|(tool, version)| (format!("version of {tool}"), version.clone()));
            let dependencies = build.resolved_dependencies.iter().filter(|one| one.name != INSTALLER);
            let digest = |digest| match digest {
                DependencyDigest::File(digest) | DependencyDigest::Directory(digest) => Digest::oci(&digest),
            };
            let mut found = BTreeMap::<String, BTreeSet<String>>::new();
            for (name, value) in tools.chain(dependencies.map(|one| (one.name.clone(), digest(one.digest)))) {
                found.entry(name).or_default().insert(value);
            }
            found
        };
        let (one, other) = (named(first), named(&again));
        let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
        let joined = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
        let input = |name: &&String| ComparedInput {
            name: (*name).clone(),
            first: Some(one.get(*name).map_or_else(|| "none".to_owned(), joined)),
            again: other.get(*name).map(joined),
        };
        inputs.extend(names.iter().map(input).filter(ComparedInput::differs));
        Ok(inputs)
    }

    /// The keys that the nodes of the release trust where its definition names none: those that it says, or else those of its
    /// signatures that are `known` here.
    ///
    /// # Errors
    /// [`Class::Verification`] if the signatures cannot be read.
    pub(super) fn build_keys(
        &self,
        release: &FinishedRelease,
        known: &[TrustedKey],
    ) -> Result<Vec<TrustedKey>> {
        if let Some(statement) = &self.statement {
            let stated = statement.build().external_parameters.trusted_keys.iter();
            return Ok(stated
                .map(|key| TrustedKey { name: key.name.clone(), key: key.key, development: key.development })
                .collect());
        }
        let mut keys = Vec::new();
        for text in release.signatures()?.values() {
            let signatures = parse_signatures(text).class(Class::Verification, || {
                format!("reading the signatures of {}", release.path().display())
            })?;
            let ids: Vec<_> = signatures.iter().map(formats::minisign::Signature::key).collect();
            keys.extend(known.iter().filter(|key| ids.contains(&key.key.id())).cloned());
        }
        keys.sort_by_key(|key: &TrustedKey| key.key.id());
        keys.dedup();
        Ok(keys)
    }
}

/// True if a definition may be one that whoever made the release has put there: it is in the directory of the release, or not below the
/// current directory.
fn came_with(definition: &Path, release: &Path) -> bool {
    let is_plain = definition.components().all(|part| matches!(part, Component::Normal(_)));
    let lies_with = match (definition.canonicalize(), release.canonicalize()) {
        (Ok(definition), Ok(release)) if release.is_dir() => definition.starts_with(release),
        (Ok(definition), Ok(release)) => definition.parent() == release.parent(),
        _ => false,
    };
    !is_plain || lies_with
}

/// What a person can do something about before a build.
#[derive(Clone, Copy, Debug)]
struct StatedInputs {
    definition: Digest,
    lock: Digest,
    builder: Digest,
    installer: Option<Digest>,
}

impl StatedInputs {
    fn of(statement: &Statement) -> Self {
        let build = statement.build();
        let installer = build.resolved_dependencies.iter().find(|dependency| dependency.name == INSTALLER);
        Self {
            definition: build.external_parameters.definition.sha256,
            lock: build.external_parameters.lock.sha256,
            builder: statement.builder().sha256,
            installer: installer.map(|dependency| match dependency.digest {
                DependencyDigest::File(digest) | DependencyDigest::Directory(digest) => digest,
            }),
        }
    }

    fn named(&self) -> [(&'static str, Option<Digest>); 4] {
        [
            ("definition", Some(self.definition)),
            ("lock file", Some(self.lock)),
            ("iso-builder", Some(self.builder)),
            (INSTALLER, self.installer),
        ]
    }

    fn compared(&self, first: Option<&Self>) -> Vec<ComparedInput> {
        let stated = |name: &str| first?.named().into_iter().find(|(known, _)| *known == name)?.1;
        let input = |(name, again): (&str, Option<Digest>)| ComparedInput {
            name: name.to_owned(),
            first: stated(name).map(|digest| digest.oci()),
            again: again.map(|digest| digest.oci()),
        };
        self.named().into_iter().map(input).collect()
    }
}
