//! The image store: an OCI image layout in a directory, each blob once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::{make_directory, write_atomically};
use formats::oci::{Descriptor, layout, media_types};
use model::config::Role;
use model::release::{Image, Payload, Purpose};
use serde::Serialize;

use super::blob::Blob;
use super::stored_image::{StoredImage, descriptor};
use crate::files::link_or_copy;

/// The store's directory on a medium.
const STORE_ON_MEDIUM: &str = "images";

/// The annotation in the index with the roles that need an image, separated by commas.
const ROLES_ANNOTATION: &str = "io.nqrust.image.roles";

/// A directory in the form of the OCI image layout.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A store as the release manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreContents {
    /// Index first, then the blobs image by image (index, manifest, configuration, layers), each once.
    pub payloads: Vec<Payload>,
    /// Sorted by name.
    pub images: Vec<Image>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<Descriptor>,
}

impl Store {
    /// Makes a store at `root`, or opens the existing one: its blobs are kept and checked before use.
    pub fn create(root: &Path) -> Result<Self> {
        make_directory(&root.join("blobs/sha256"), 0o755)?;
        write_atomically(&root.join("oci-layout"), layout::MARKER_CONTENT, 0o644)?;
        Ok(Self { root: root.to_owned() })
    }

    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Adds a blob from another place: as a hard link if the file systems allow it.
    pub fn take(&self, blob: Blob, from: &Path) -> Result<()> {
        let path = self.blob_path(blob.digest);
        if path.exists() {
            return Ok(());
        }
        link_or_copy(from, &path)
    }

    /// Removes blobs that belong to none of `images`.
    pub fn keep_only(&self, images: &[StoredImage]) -> Result<()> {
        self.remove_all_but(&images.iter().flat_map(StoredImage::blobs).map(|blob| blob.digest).collect())
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn blob_path(&self, digest: Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.to_string())
    }

    #[must_use]
    pub fn index_path(&self) -> PathBuf {
        self.root.join("index.json")
    }

    /// Reads a blob and compares it with its digest and length.
    pub fn check(&self, blob: Blob) -> Result<()> {
        let path = self.blob_path(blob.digest);
        let damaged = |source: anyhow::Error| {
            let what = format!("checking the blob {}", path.display());
            let failure = Failure::new(Class::Verification, what).because(source);
            failure.hint("Delete the blob and build again.")
        };
        let file = File::open(&path).map_err(|error| damaged(error.into()))?;
        let (digest, size) = Digest::of_reader(file).map_err(|error| damaged(error.into()))?;
        if (digest, size) != (blob.digest, blob.size) {
            let found =
                anyhow::anyhow!("it has {size} bytes with SHA-256 {digest}; expected {} bytes", blob.size);
            return Err(damaged(found).into());
        }
        Ok(())
    }

    /// Writes the index of `images`, removes blobs that belong to none of them, and returns the contents. Every blob is
    /// read and checked. Two images of one name are an error.
    pub fn finish(&self, images: &[StoredImage]) -> Result<StoreContents> {
        let mut images: Vec<&StoredImage> = images.iter().collect();
        images.sort_by_key(|image| &image.name);
        for pair in images.windows(2) {
            if let [one, two] = pair
                && one.name == two.name
            {
                let failure = Failure::new(Class::Invalid, format!("two images are called {}", one.name));
                return Err(failure.hint("Give each image a name or a tag of its own.").into());
            }
        }
        let index = index_of(&images)?;
        write_atomically(&self.index_path(), &index, 0o644)?;
        let mut payloads = vec![Payload {
            path: format!("{STORE_ON_MEDIUM}/index.json"),
            purpose: Purpose::ImageIndex,
            size: u64::try_from(index.len())?,
            sha256: Digest::of(&index),
        }];
        let mut listed = BTreeSet::new();
        for blob in images.iter().flat_map(|image| image.blobs()) {
            if listed.insert(blob.digest) {
                self.check(blob)?;
                payloads.push(payload(blob));
            }
        }
        self.remove_all_but(&listed)?;
        Ok(StoreContents { payloads, images: images.iter().map(|image| listed_image(image)).collect() })
    }

    fn remove_all_but(&self, kept: &BTreeSet<Digest>) -> Result<()> {
        let directory = self.root.join("blobs/sha256");
        let reading = || format!("reading {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            let digest = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if !digest.is_some_and(|digest| kept.contains(&digest)) {
                fs::remove_file(entry.path())
                    .with_context(|| format!("removing {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    /// The store as an uncompressed tar stream, the form in which containerd imports it, with those blobs of `images`
    /// that have at most `largest` bytes.
    pub fn write_archive(&self, images: &[StoredImage], largest: u64, out: impl Write) -> Result<()> {
        let mut archive = tar::Builder::new(out);
        for name in ["oci-layout", "index.json"] {
            self.append(&mut archive, name)?;
        }
        let blobs: BTreeSet<Blob> = images.iter().flat_map(StoredImage::blobs).collect();
        for blob in blobs.into_iter().filter(|blob| blob.size <= largest) {
            self.append(&mut archive, &format!("blobs/sha256/{}", blob.digest))?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    fn append(&self, archive: &mut tar::Builder<impl Write>, name: &str) -> Result<()> {
        let path = self.root.join(name);
        let mut append = || -> io::Result<()> {
            let file = File::open(&path)?;
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(file.metadata()?.len());
            archive.append_data(&mut header, name, BufReader::with_capacity(1 << 20, file))
        };
        append().with_context(|| format!("sending {} to containerd", path.display()))
    }
}

fn index_of(images: &[&StoredImage]) -> Result<Vec<u8>> {
    let named = images.iter().flat_map(|image| image.names().into_iter().map(move |name| (image, name)));
    let manifests = named.map(|(image, name)| {
        let target = image.target();
        let mut descriptor = descriptor(&target.media_type, target.blob);
        // skopeo and umoci take the name from the first, containerd from the second.
        for key in ["org.opencontainers.image.ref.name", "io.containerd.image.name"] {
            descriptor.annotations.insert(key.into(), name.to_string());
        }
        if !image.roles.is_empty() {
            descriptor.annotations.insert(ROLES_ANNOTATION.into(), role_names(&image.roles).join(","));
        }
        descriptor
    });
    let index =
        Index { schema_version: 2, media_type: media_types::OCI_INDEX, manifests: manifests.collect() };
    let mut bytes = serde_json::to_vec_pretty(&index)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The names of roles as in configurations, sorted, each once.
fn role_names(roles: &[Role]) -> Vec<String> {
    roles.iter().map(|role| role.name().to_owned()).collect::<BTreeSet<_>>().into_iter().collect()
}

fn payload(blob: Blob) -> Payload {
    Payload {
        path: format!("{STORE_ON_MEDIUM}/blobs/sha256/{}", blob.digest),
        purpose: Purpose::ImageBlob,
        size: blob.size,
        sha256: blob.digest,
    }
}

fn listed_image(image: &StoredImage) -> Image {
    Image {
        name: image.name.to_string(),
        digest: image.target().blob.digest,
        roles: role_names(&image.roles),
        blobs: image.blobs().map(|blob| blob.digest).collect(),
        documents: image.documents(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::image;
    use super::super::spec::BuiltImage;
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path()).unwrap();
        (directory, store)
    }

    fn image(store: &Store, name: &str, roles: Vec<Role>, layers: &[&[u8]]) -> StoredImage {
        let layer = |bytes: &&[u8]| super::super::layer::ImageLayer {
            diff_id: Digest::of(bytes),
            blob: store.add(bytes).unwrap(),
        };
        let layers: Vec<_> = layers.iter().map(layer).collect();
        let cmd = vec!["sh".into()];
        let spec =
            BuiltImage { name: name.parse().unwrap(), layers: vec![], entrypoint: vec![], cmd, env: vec![] };
        StoredImage { roles, ..image::write(&spec, &layers, "amd64", 1, store).unwrap() }
    }

    #[test]
    fn the_same_blob_twice_is_one_file() {
        let (directory, store) = store();
        assert_eq!(store.add(b"x").unwrap(), store.add(b"x").unwrap());
        assert_eq!(fs::read_dir(directory.path().join("blobs/sha256")).unwrap().count(), 1);
        assert_eq!(
            fs::read_dir(directory.path().join("blobs")).unwrap().count(),
            1,
            "no temporary file stays"
        );
    }

    #[test]
    fn a_damaged_blob_is_found_when_listed_and_repaired_when_added_again() {
        let (_directory, store) = store();
        let image = image(&store, "localhost/a:1", vec![], &[b"layer"]);
        fs::write(store.blob_path(image.layers[0].digest), b"Layer").unwrap();
        let error = store.finish(std::slice::from_ref(&image)).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Verification);
        store.add(b"layer").unwrap();
        store.finish(&[image]).unwrap();
    }

    #[test]
    fn an_install_reads_the_index_then_each_blob_once_image_by_image() {
        let (_directory, store) = store();
        let b = image(&store, "localhost/b:1", vec![Role::Worker, Role::Management], &[b"base", b"b"]);
        let a = image(&store, "localhost/a:1", vec![], &[b"base"]);
        let stray = store.add(b"stray").unwrap();
        let listing = store.finish(&[b.clone(), a.clone()]).unwrap();
        let order: Vec<Digest> = listing.payloads[1..].iter().map(|payload| payload.sha256).collect();
        let expected = [a.manifest.blob, a.config, a.layers[0], b.manifest.blob, b.config, b.layers[1]]
            .map(|blob| blob.digest);
        assert_eq!(order, expected);
        assert_eq!(listing.payloads[0].path, "images/index.json");
        assert_eq!(listing.images[1].roles, ["management", "worker"]);
        assert_eq!(listing.images[1].blobs.len(), 4);
        assert!(!store.blob_path(stray.digest).exists(), "what no image needs is removed");
    }

    #[test]
    fn the_index_does_not_depend_on_the_order_of_images() {
        let (_directory, store) = store();
        let one = image(&store, "localhost/a:1", vec![], &[b"base"]);
        let two = image(&store, "localhost/b:1", vec![], &[b"base"]);
        let listings = [[one.clone(), two.clone()], [two, one]].map(|images| store.finish(&images).unwrap());
        assert_eq!(listings[0], listings[1]);
    }

    #[test]
    fn two_images_of_one_name_are_refused() {
        let (_directory, store) = store();
        let one = image(&store, "localhost/a:1", vec![], &[b"base"]);
        let two = image(&store, "localhost/a:1", vec![], &[b"other"]);
        assert!(store.finish(&[one, two]).unwrap_err().to_string().contains("localhost/a:1"));
    }

    #[test]
    fn a_configuration_has_the_fixed_time_and_a_path() {
        let (_directory, store) = store();
        let image = image(&store, "localhost/a:1", vec![], &[b"base"]);
        let config = fs::read(store.blob_path(image.config.digest)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["created"], "1970-01-01T00:00:01Z");
        assert_eq!(config["rootfs"]["diff_ids"][0], Digest::of(b"base").oci());
        assert_eq!(config["config"]["Cmd"][0], "sh");
        assert!(config["config"]["Env"][0].as_str().unwrap().starts_with("PATH=/usr/local/sbin"));
    }
}
