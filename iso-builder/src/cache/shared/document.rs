//! The form of a step in a registry: an OCI artifact (image-spec 1.1, "Guidelines for Artifact Usage").
//!
//! Its config is a [`SharedStep`]: the list of the outputs. Its layers are the files, each once, as they are or packed with Zstandard
//! (RFC 8878). Its tag is the name of the step with a digest of what goes into it and of the programs of the host that made it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use formats::oci::{ArtifactManifest, Descriptor, media_types, prefixed};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cache::key::StepKey;
use crate::cache::record::{FileContent, OutputContent, StepOutput, StepRecord};

const FORMAT: u32 = 1;
const ARTIFACT: &str = "application/vnd.nqrust.build-step.v1";
const CONFIG: &str = "application/vnd.nqrust.build-step.v1+json";
const FILE: &str = "application/octet-stream";
const PACKED_FILE: &str = "application/zstd";
/// When the manifest was put there, or a build last said that it uses it (image-spec 1.1, `annotations.md`; RFC 3339).
const CREATED: &str = "org.opencontainers.image.created";

/// The largest list of outputs that is read, in bytes.
pub(super) const CONFIG_LIMIT: u64 = 32 << 20;
/// How many different files a step may have in a registry, whose manifests have a limit of 4 MiB.
pub(super) const FILES_MAX: usize = 8192;

/// The outputs of a step, with the blobs that hold its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedStep {
    format: u32,
    /// What the step is made of, with the programs that made it.
    #[serde(with = "prefixed")]
    key: Digest,
    pub(super) outputs: Vec<StepOutput>,
    /// The blobs of files that are packed, by the digest of the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    packed: BTreeMap<Digest, PackedBlob>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackedBlob {
    #[serde(with = "prefixed")]
    pub(super) sha256: Digest,
    /// In bytes.
    pub(super) size: u64,
}

/// The name of a step in registries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedName {
    pub(super) tag: String,
    key: Digest,
}

impl SharedName {
    /// `tools` is the digest of the names and versions of the programs that steps run on their host.
    pub(super) fn new(key: &StepKey, tools: Digest) -> Result<Self> {
        let whole = Digest::of(format!("{FORMAT} {} {tools}", key.digest()?).as_bytes());
        Ok(Self { tag: format!("{}-{}", key.name, &whole.to_string()[..24]), key: whole })
    }
}

impl SharedStep {
    /// `packed` has the files that are packed, by their digests.
    pub(super) fn new(name: &SharedName, record: &StepRecord, packed: BTreeMap<Digest, PackedBlob>) -> Self {
        let mut outputs = record.outputs.clone();
        for output in &mut outputs {
            if let OutputContent::File(file) = &mut output.content {
                file.modified = None;
            }
        }
        Self { format: FORMAT, key: name.key, outputs, packed }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Reads the list of outputs of the step `name`.
    ///
    /// # Errors
    /// [`Class::Verification`] if it is that of another step, or could not be laid out in a directory.
    pub(super) fn read(bytes: &[u8], name: &SharedName) -> Result<Self> {
        let what = || "reading its list of outputs".to_owned();
        let step: Self = serde_json::from_slice(bytes).class(Class::Verification, what)?;
        if step.format != FORMAT || step.key != name.key {
            return Err(Failure::new(Class::Verification, what())
                .because(anyhow!("it is of another step"))
                .into());
        }
        StepRecord { outputs: step.outputs.clone(), origin: None }.check()?;
        Ok(step)
    }

    /// The blob of a file, and whether the file is packed in it.
    pub(super) fn blob(&self, file: &FileContent) -> (PackedBlob, bool) {
        match self.packed.get(&file.sha256) {
            Some(packed) => (*packed, true),
            None => (PackedBlob { sha256: file.sha256, size: file.size }, false),
        }
    }

    /// The manifest of the step, as it is used at `time`.
    pub(super) fn manifest(&self, time: Timestamp) -> Result<Vec<u8>> {
        let descriptor = |media_type: &str, digest, size| Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            annotations: BTreeMap::new(),
            platform: None,
        };
        let config = self.to_bytes()?;
        let config = descriptor(CONFIG, Digest::of(&config), config.len() as u64);
        let mut layers = BTreeMap::new();
        for file in self.outputs.iter().filter_map(StepOutput::file).filter(|file| file.size > 0) {
            let (blob, packed) = self.blob(file);
            let kind = if packed { PACKED_FILE } else { FILE };
            layers.insert(blob.sha256, descriptor(kind, blob.sha256, blob.size));
        }
        // A list of layers may not be empty.
        let layers = if layers.is_empty() { vec![config.clone()] } else { layers.into_values().collect() };
        let mut manifest = ArtifactManifest::new(config, layers);
        manifest.artifact_type = Some(ARTIFACT.to_owned());
        manifest.annotations.insert(CREATED.to_owned(), time.to_string());
        Ok(manifest.to_bytes()?)
    }
}

/// The manifest of a step in a registry.
#[derive(Clone, Debug)]
pub(super) struct StepManifest {
    /// The list of outputs.
    pub(super) config: Descriptor,
    /// When a build last said that it uses the step.
    pub(super) used: Option<Timestamp>,
}

impl StepManifest {
    /// # Errors
    /// [`Class::Verification`] if it is the manifest of something else.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let what = || "reading its manifest".to_owned();
        let manifest = ArtifactManifest::parse(bytes).class(Class::Verification, what)?;
        let Descriptor { media_type, size, .. } = &manifest.config;
        if media_type != CONFIG || *size > CONFIG_LIMIT {
            let why = anyhow!("it is not a step of a build");
            return Err(Failure::new(Class::Verification, what()).because(why).into());
        }
        let used = manifest.annotations.get(CREATED).and_then(|time| time.parse().ok());
        Ok(Self { config: manifest.config, used })
    }

    /// The same manifest with the word that a build used the step at `time`.
    pub(super) fn used_at(bytes: &[u8], time: Timestamp) -> Result<Vec<u8>> {
        let mut manifest = ArtifactManifest::parse(bytes)?;
        manifest.annotations.insert(CREATED.to_owned(), time.to_string());
        Ok(manifest.to_bytes()?)
    }
}

/// The media type of manifests of steps.
pub(super) const MANIFEST: &str = media_types::OCI_MANIFEST;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn shared() -> (SharedName, SharedStep) {
        let key = StepKey::new("test", 1, json!({}));
        let name = SharedName::new(&key, Digest::of(b"tools")).unwrap();
        let file = |path: &str, text: &str| StepOutput {
            path: path.into(),
            content: OutputContent::File(FileContent {
                size: text.len() as u64,
                sha256: Digest::of(text.as_bytes()),
                executable: true,
                modified: Some(std::time::Duration::from_secs(1)),
            }),
        };
        let tree = StepOutput { path: "tree".into(), content: OutputContent::Directory };
        let outputs = vec![tree, file("tree/one", "x"), file("two", "x"), file("zero", "long")];
        let packed = [(Digest::of(b"long"), PackedBlob { sha256: Digest::of(b"l"), size: 1 })];
        let step = SharedStep::new(&name, &StepRecord { outputs, origin: None }, packed.into());
        (name, step)
    }

    #[test]
    fn a_step_is_read_as_it_was_written_and_only_under_its_own_name() {
        let (name, step) = shared();
        let bytes = step.to_bytes().unwrap();
        assert_eq!(SharedStep::read(&bytes, &name).unwrap(), step);
        let other = SharedName::new(&StepKey::new("test", 1, json!({})), Digest::of(b"newer")).unwrap();
        assert_ne!(other.tag, name.tag);
        assert!(SharedStep::read(&bytes, &other).is_err());
        assert!(step.outputs.iter().filter_map(StepOutput::file).all(|file| file.modified.is_none()));
        let mut elsewhere = step;
        elsewhere.outputs[1].path = Path::new("../one").into();
        let error = SharedStep::read(&elsewhere.to_bytes().unwrap(), &name).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Verification);
    }

    #[test]
    fn a_manifest_lists_each_blob_once_and_says_when_it_was_used() {
        let (_, step) = shared();
        let time: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        let bytes = step.manifest(time).unwrap();
        let manifest = ArtifactManifest::parse(&bytes).unwrap();
        let mut layers: Vec<_> =
            manifest.layers.iter().map(|layer| (&*layer.media_type, layer.digest)).collect();
        layers.sort_unstable();
        assert_eq!(layers, [(FILE, Digest::of(b"x")), (PACKED_FILE, Digest::of(b"l"))]);
        let read = StepManifest::read(&bytes).unwrap();
        assert_eq!((read.used, read.config.digest), (Some(time), Digest::of(&step.to_bytes().unwrap())));
        let image = String::from_utf8(bytes).unwrap().replace(CONFIG, media_types::OCI_CONFIG);
        assert!(StepManifest::read(image.as_bytes()).is_err());
    }
}
