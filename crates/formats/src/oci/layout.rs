//! Image layouts: directories with the blobs of images and artifacts, and an index of them (image-spec 1.1,
//! `image-layout.md`), as skopeo, oras and umoci read and write them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{make_directory, read_at_most, write_atomically};
use serde::Deserialize;
use serde_json::{Value, json};

use super::document::Descriptor;
use super::media_types;
use super::referrers::{Referrer, referrers};

/// The file that makes a directory a layout.
const MARKER: &str = "oci-layout";
pub const MARKER_CONTENT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
const INDEX: &str = "index.json";
/// The largest index that is read, in bytes.
const MAX_INDEX: u64 = 4 << 20;
/// The annotation with the name of a manifest in the index.
const NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    root: PathBuf,
}

impl ImageLayout {
    /// The layout at `root`.
    ///
    /// # Errors
    /// [`Class::Invalid`] where there is none.
    pub fn open(root: &Path) -> Result<Self> {
        match root.join(MARKER).is_file() {
            true => Ok(Self { root: root.to_owned() }),
            false => {
                let what = format!("{} is not an OCI layout: it has no file {MARKER}", root.display());
                let hint = "Name a directory that `iso-builder push`, skopeo or oras wrote as a layout.";
                Err(Failure::new(Class::Invalid, what).hint(hint).into())
            }
        }
    }

    /// The layout at `root`, made if there is nothing.
    pub fn create(root: &Path) -> Result<Self> {
        let layout = Self { root: root.to_owned() };
        make_directory(&layout.blobs(), 0o755)?;
        if !root.join(MARKER).exists() {
            write_atomically(&root.join(MARKER), MARKER_CONTENT, 0o644)?;
        }
        Ok(layout)
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs/sha256")
    }

    /// Where a blob is if the layout has it.
    #[must_use]
    pub fn blob(&self, digest: Digest) -> PathBuf {
        self.blobs().join(digest.to_string())
    }

    /// The manifests and indexes in the index, with their names.
    pub fn manifests(&self) -> Result<Vec<(Option<String>, Descriptor)>> {
        let index = self.index()?;
        let manifests = index.get("manifests").and_then(Value::as_array).into_iter().flatten();
        let read = manifests.map(|manifest| {
            let descriptor = Descriptor::deserialize(manifest)?;
            Ok((descriptor.annotations.get(NAME).cloned(), descriptor))
        });
        read.collect::<serde_json::Result<_>>().class(Class::Invalid, || self.reading())
    }

    /// Names a manifest `name` and takes the name from any other.
    pub fn name(&self, name: &str, mut manifest: Descriptor) -> Result<()> {
        manifest.annotations.insert(NAME.to_owned(), name.to_owned());
        let is_replaced = |other: &Value| {
            let called = other.get("annotations").and_then(|all| all.get(NAME)?.as_str());
            called == Some(name)
        };
        self.list(&is_replaced, serde_json::to_value(&manifest)?)
    }

    /// Lists an artifact that refers to another one. It gets no name.
    pub fn refer(&self, referrer: &Referrer) -> Result<()> {
        let digest = referrer.manifest.digest.oci();
        let is_replaced = |other: &Value| other.get("digest").and_then(Value::as_str) == Some(&digest);
        self.list(&is_replaced, serde_json::to_value(referrer)?)
    }

    fn list(&self, is_replaced: &dyn Fn(&Value) -> bool, manifest: Value) -> Result<()> {
        let mut index = self.index()?;
        let manifests = index.get_mut("manifests").and_then(Value::as_array_mut);
        let manifests =
            manifests.context("it has no list of manifests").class(Class::Invalid, || self.reading())?;
        manifests.retain(|other| !is_replaced(other));
        manifests.push(manifest);
        write_atomically(&self.root.join(INDEX), &serde_json::to_vec_pretty(&index)?, 0o644)
    }

    /// The artifacts in the index that say what they are.
    pub fn referrers(&self) -> Result<Vec<Referrer>> {
        let index = serde_json::to_vec(&self.index()?)?;
        let mut all = referrers(&index).class(Class::Invalid, || self.reading())?;
        all.retain(|referrer| !referrer.artifact_type.is_empty());
        Ok(all)
    }

    /// The index as JSON, so that fields of other programs are kept.
    fn index(&self) -> Result<Value> {
        let path = self.root.join(INDEX);
        match fs::exists(&path) {
            Ok(false) => Ok(json!({
                "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": [],
            })),
            _ => {
                let bytes = read_at_most(&path, MAX_INDEX)?;
                serde_json::from_slice(&bytes).class(Class::Invalid, || self.reading())
            }
        }
    }

    fn reading(&self) -> String {
        format!("reading {}", self.root.join(INDEX).display())
    }

    /// The length of a blob; none where the layout does not have it.
    pub fn length(&self, digest: Digest) -> Result<Option<u64>> {
        let path = self.blob(digest);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("looking at {}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::collections::BTreeMap;

    fn manifest(content: &[u8]) -> Descriptor {
        Descriptor {
            media_type: media_types::OCI_MANIFEST.into(),
            digest: Digest::of(content),
            size: content.len() as u64,
            annotations: BTreeMap::new(),
            platform: None,
        }
    }

    #[test]
    fn a_name_moves_to_the_manifest_that_got_it_last_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let layout = ImageLayout::create(directory.path()).unwrap();
        layout.name("one", manifest(b"1")).unwrap();
        layout.name("two", manifest(b"2")).unwrap();
        layout.name("one", manifest(b"3")).unwrap();
        let found = ImageLayout::open(directory.path()).unwrap().manifests().unwrap();
        let found: Vec<_> = found.into_iter().map(|(name, found)| (name.unwrap(), found.digest)).collect();
        assert_eq!(found, [("two".into(), Digest::of(b"2")), ("one".into(), Digest::of(b"3"))]);
    }

    #[test]
    fn a_directory_without_the_mark_is_no_layout() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(class_of(&ImageLayout::open(directory.path()).unwrap_err()), Class::Invalid);
    }

    #[test]
    fn an_index_that_is_not_one_is_no_defect_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let layout = ImageLayout::create(directory.path()).unwrap();
        for index in
            ["", "[", r#"{"manifests": [{"digest": "sha256:../../passwd"}]}"#, r#"{"manifests": [7]}"#]
        {
            fs::write(directory.path().join(INDEX), index).unwrap();
            let error = layout.manifests().unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{index}: {error:#}");
            assert!(error.to_string().ends_with(INDEX), "{error:#}");
        }
        // Others may have an index without one; whoever adds a manifest has to have it.
        fs::write(directory.path().join(INDEX), "{}").unwrap();
        assert!(layout.manifests().unwrap().is_empty());
        assert_eq!(class_of(&layout.name("one", manifest(b"1")).unwrap_err()), Class::Invalid);
    }
}
