//! The step that states what a build was made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::dsse::MAX_ENVELOPE_BYTES;
use model::release::MANIFEST;
use trust::TrustedKey;

use super::context::Build;
use super::program::BuildInstaller;
use super::sbom::released;
use super::signing::BuildSigning;
use crate::definition::{Base, OutputKind};
use crate::files::digest_of_file;
use crate::lock::Lock;
use crate::provenance::statement::LockParameter;
use crate::provenance::{
    BuildDefinition, BuilderVersion, DefinitionParameter, Dependency, ExternalParameters, FoundPackages,
    InternalParameters, Statement, Subject, TrustedKeyParameter, dependencies, public,
};

/// What a directory has at the end of a build.
#[derive(Clone, Debug)]
pub(super) struct MadeOutputs {
    pub(super) outputs: BTreeSet<OutputKind>,
    pub(super) subjects: Vec<Subject>,
    /// The bill of materials.
    pub(super) sbom: Vec<u8>,
}

/// The name of the manifest within the ISO for net installs, as a subject.
pub(super) fn net_install_manifest(iso: &str) -> String {
    format!("{iso}/{MANIFEST}")
}

impl Build<'_> {
    /// The provenance of `made`: an envelope as one line, with a signature of each key of the build.
    pub(super) fn provenance(
        &self,
        made: &MadeOutputs,
        epoch: u64,
        installer: &BuildInstaller,
        tools: &BTreeMap<String, String>,
        signing: &BuildSigning<'_>,
    ) -> Result<Vec<u8>> {
        let (loaded, known) = (&self.inputs.loaded, self.inputs.cache.known_files());
        let current = std::env::current_dir().context("reading the current directory")?;
        let lock = digest_of_file(&Lock::path_of(loaded))?.0;
        let external = ExternalParameters {
            definition: DefinitionParameter {
                path: public::path(&loaded.file, &current),
                sha256: loaded.digest,
                variant: loaded.variant.clone(),
            },
            lock: LockParameter { sha256: lock },
            outputs: made.outputs.iter().copied().collect(),
            trusted_keys: self.unnamed_keys(signing.store.keys()),
        };
        let internal = InternalParameters {
            epoch,
            tools: tools.clone(),
            shared_steps: self
                .inputs
                .cache
                .figures()
                .uses()
                .into_iter()
                .filter_map(|step| step.origin)
                .collect(),
        };
        let found = FoundPackages::of_sbom(&made.sbom).context("reading the bill of materials")?;
        let build = BuildDefinition::new(external, internal, self.dependencies(installer.sha256, &found)?);
        let version = BuilderVersion::of_this_program(|path| known.digest_of_file(path))?;
        let mut envelope = Statement::new(made.subjects.clone(), build, version).to_envelope();
        signing.sign_provenance(&mut envelope)?;
        let line = envelope.to_line();
        if line.len() as u64 > MAX_ENVELOPE_BYTES {
            let what =
                format!("the provenance has {} bytes, and readers take {MAX_ENVELOPE_BYTES}", line.len());
            let hint = "Let the definition name fewer packages, images and files.";
            return Err(Failure::new(Class::Invalid, what).hint(hint).into());
        }
        Ok(line)
    }

    /// The keys of the trust store that the definition does not name.
    fn unnamed_keys(&self, keys: &[TrustedKey]) -> Vec<TrustedKeyParameter> {
        match self.inputs.loaded.definition.trust.keys.is_empty() {
            true => keys.iter().map(TrustedKeyParameter::from).collect(),
            false => Vec::new(),
        }
    }

    fn dependencies(&self, installer: Digest, found: &FoundPackages) -> Result<Vec<Dependency>> {
        let (loaded, lock) = (&self.inputs.loaded, &self.lock);
        let definition = &loaded.definition;
        let is_directory = |path: &Path| loaded.resolve(path).is_dir();
        let mut all = vec![dependencies::file("installer", installer)];
        all.extend(dependencies::packages(&lock.packages, found));
        all.extend(dependencies::images(&lock.images));
        all.extend(dependencies::files(&lock.files, &is_directory));
        let base = match &definition.base {
            Base::Debian(_) => None,
            Base::Oci(base) => Some(&base.path),
            Base::Archive(base) | Base::Directory(base) => Some(&base.path),
        };
        let base = base.zip(lock.base);
        all.extend(base.map(|(path, sha256)| dependencies::named(path, sha256, &is_directory)));
        if let Some((release, kubernetes)) = lock.kubernetes.as_ref().zip(definition.kubernetes.as_ref()) {
            all.extend(dependencies::release_files(release, &released(kubernetes).purl()));
        }
        for path in dependencies::unlocked_paths(definition) {
            let sha256 = self.inputs.cache.known_files().digest_of_path(&loaded.resolve(&path))?;
            all.push(dependencies::named(&path, sha256, &is_directory));
        }
        Ok(all)
    }
}
