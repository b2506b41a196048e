//! Images as registries have them: indexes, Docker's documents, zstd, layers that many images share.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::files::read_at_most;
use iso_builder::bolt::{self, Bucket};
use iso_builder::images::Store;
use iso_builder::images::blob::Blob;
use iso_builder::images::containerd::Containerd;
use iso_builder::images::containerd_version::{COMMON_SCHEMA, DatabaseWriter, NodeContainerd, compatible};
use iso_builder::images::metadata::{self, ContainerdMetadata, schema_version};
use iso_builder::images::stored_image::{ImageDocument, StoredImage};
use model::config::Role;
use serde_json::{Value, json};

use super::EPOCH;

const OCI: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.layer.v1.tar+zstd",
];
const DOCKER: [&str; 4] = [
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];
const ABSENT: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

struct PulledStore {
    root: tempfile::TempDir,
    store: Store,
    images: Vec<StoredImage>,
}

fn add(store: &Store, document: &Value) -> Blob {
    store.add(&serde_json::to_vec(document).unwrap()).unwrap()
}

fn descriptor(media_type: &str, blob: Blob) -> Value {
    json!({"mediaType": media_type, "digest": blob.digest.oci(), "size": blob.size})
}

/// A layer that nothing compresses. Layers of some length are announced, shorter ones sent.
fn layer(store: &Store, seed: u64, length: usize) -> Blob {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    store.add(&word.take(length / 8).flatten().collect::<Vec<_>>()).unwrap()
}

impl PulledStore {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = Store::create(&root.path().join("store")).unwrap();
        Self { root, store, images: Vec::new() }
    }

    fn containerd(&self) -> Containerd {
        Containerd::of_host(self.root.path(), "amd64")
    }

    /// An image for one platform, or with an index in which others are named that are not here.
    fn image(&mut self, name: &str, roles: &[Role], types: [&str; 4], index: bool, layers: &[Blob]) {
        let [of_index, of_manifest, of_config, of_layer] = types;
        let diffs: Vec<_> = layers.iter().map(|layer| layer.digest.oci()).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": {"name": name}},
            "rootfs": {"type": "layers", "diff_ids": diffs}});
        let config = add(&self.store, &config);
        let layers = layers.to_vec();
        let manifest = json!({"schemaVersion": 2, "mediaType": of_manifest, "config": descriptor(of_config, config),
            "layers": layers.iter().map(|layer| descriptor(of_layer, *layer)).collect::<Vec<_>>()});
        let manifest = ImageDocument { media_type: of_manifest.into(), blob: add(&self.store, &manifest) };
        let index = index.then(|| {
            let mut entries = vec![
                json!({"mediaType": of_manifest, "digest": ABSENT, "size": 5,
                    "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"}}),
                descriptor(of_manifest, manifest.blob),
                json!({"mediaType": of_manifest, "digest": ABSENT.replace('a', "b"), "size": 5,
                    "platform": {"architecture": "unknown", "os": "unknown"}}),
            ];
            entries[1]["platform"] = json!({"architecture": "amd64", "os": "linux"});
            let index = json!({"schemaVersion": 2, "mediaType": of_index, "manifests": entries});
            ImageDocument { media_type: of_index.into(), blob: add(&self.store, &index) }
        });
        let (name, roles) = (name.parse().unwrap(), roles.to_vec());
        let (indexes, siblings) = (index.into_iter().collect(), Vec::new());
        self.images.push(StoredImage { name, roles, indexes, manifest, siblings, config, layers });
    }

    fn prepare(&self) -> anyhow::Result<ContainerdMetadata> {
        self.store.finish(&self.images).unwrap();
        metadata::prepare(&self.containerd(), &self.store, &self.images, EPOCH)
    }

    fn for_role(&self, role: Role) -> Vec<StoredImage> {
        self.images.iter().filter(|image| image.is_for(role)).cloned().collect()
    }
}

/// One of each kind: an index of Docker's and one of OCI's, single images of both, one image with two names, one by
/// digest only; for several roles.
fn of_each_kind() -> PulledStore {
    let mut pulled = PulledStore::new();
    let small = layer(&pulled.store, 1, 4096);
    let large = layer(&pulled.store, 2, 600_000);
    let other = layer(&pulled.store, 3, 700_000);
    pulled.image("registry.example.org/docker/index:1", &[], DOCKER, true, &[small, large]);
    pulled.image("registry.example.org/oci/index:1", &[Role::Management], OCI, true, &[large, other]);
    pulled.image("registry.example.org/docker/single:1", &[Role::Worker], DOCKER, false, &[large]);
    pulled.image("docker.io/library/single:1", &[Role::Worker], OCI, false, &[small, small, other]);
    let twice = pulled.images[1].clone();
    let again = "registry.example.org/oci/index:latest".parse().unwrap();
    let digest = twice.target().blob.digest.oci();
    let pinned = format!("mirror.example.org:5000/oci/index@{digest}").parse().unwrap();
    pulled.images.push(StoredImage { name: again, ..twice.clone() });
    pulled.images.push(StoredImage { name: pinned, roles: vec![Role::Worker], ..twice });
    pulled
}

/// Identity, mode, length, content of every blob.
fn state_of(store: &Store) -> Vec<(String, u64, u32, i64, Digest)> {
    let mut state: Vec<_> = fs::read_dir(store.root().join("blobs/sha256"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let digest = Digest::of(&read_at_most(&entry.path(), 1 << 30).unwrap());
            let name = entry.file_name().into_string().unwrap();
            (name, metadata.ino(), metadata.mode(), metadata.mtime_nsec(), digest)
        })
        .collect();
    state.sort();
    state
}

#[test]
fn images_of_every_kind_are_whole_for_each_role_and_the_store_stays_as_it_is() {
    let pulled = of_each_kind();
    let before = state_of(&pulled.store);
    let prepared = pulled.prepare().unwrap();
    let writer = prepared.writer();
    assert_eq!(writer.version, pulled.containerd().version().unwrap());
    assert_eq!(writer.schema > COMMON_SCHEMA, writer.version.series() >= (2, 0), "{writer:?}");
    let mut sizes = BTreeSet::new();
    for role in Role::ALL {
        let images = pulled.for_role(role);
        sizes.insert(images.len());
        let database = prepared.database(&images).unwrap();
        pulled.containerd().verify(&pulled.store, &images, &database).unwrap();
    }
    assert_eq!(sizes, [1, 3, 4].into());
    assert_eq!(state_of(&pulled.store), before);
    assert_eq!(fs::read_dir(pulled.root.path()).unwrap().count(), 1, "only the store is left");
}

#[test]
fn the_labels_of_an_index_name_the_manifest_that_is_here_and_no_other() {
    let pulled = of_each_kind();
    let database = pulled.prepare().unwrap().database(&pulled.images).unwrap();
    let tree = bolt::read(&database).unwrap();
    let image = &pulled.images[0];
    let labels = |blob: Blob| {
        let path = ["v1", "k8s.io", "content", "blob", &blob.digest.oci(), "labels"];
        let labels = tree.bucket(&path).unwrap().pairs.clone();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        labels.into_iter().map(|(label, value)| (text(label), text(value))).collect::<Vec<_>>()
    };
    let reference =
        |name: &str, blob: Blob| (format!("containerd.io/gc.ref.content.{name}"), blob.digest.oci());
    assert_eq!(labels(image.target().blob), [reference("m.0", image.manifest.blob)]);
    let expected = [
        reference("config", image.config),
        reference("l.0", image.layers[0]),
        reference("l.1", image.layers[1]),
    ];
    assert_eq!(labels(image.manifest.blob), expected);
    let images = tree.bucket(&["v1", "k8s.io", "images"]).unwrap();
    let pinned = format!("registry.example.org/docker/index@{}", image.target().blob.digest.oci());
    for name in ["registry.example.org/docker/index:1", &pinned] {
        let target = images.bucket(&[name, "target"]).unwrap();
        assert_eq!(target.value("mediatype"), Some(DOCKER[0].as_bytes()), "{name}");
    }
}

#[test]
fn thirty_images_that_share_layers_take_no_second_copy() {
    const LARGE: usize = 24 << 20;
    let mut pulled = PulledStore::new();
    let shared: Vec<Blob> = (0..3).map(|seed| layer(&pulled.store, 100 + seed, LARGE)).collect();
    for number in 0..30 {
        let own = layer(&pulled.store, number, 8192);
        let name = format!("registry.example.org/app/{number}:1");
        pulled.image(&name, &[], OCI, number % 2 == 0, &[shared[0], shared[1], shared[2], own]);
    }
    let path = pulled.store.blob_path(shared[0].digest);
    let written = |pulled: &PulledStore| {
        let version = pulled.containerd().version().unwrap();
        pulled.containerd().write(&version, &pulled.store, &pulled.images).unwrap()
    };
    pulled.store.finish(&pulled.images).unwrap();
    // Without this blob's content, containerd could not have read it: it is as long as it was, and empty.
    let content = fs::read(&path).unwrap();
    let hole = fs::File::create(&path).unwrap();
    hole.set_len(content.len() as u64).unwrap();
    let database = written(&pulled);
    fs::write(&path, content).unwrap();
    let tree = bolt::read(&database).unwrap();
    let blobs: BTreeSet<Vec<u8>> =
        tree.bucket(&["v1", "k8s.io", "content", "blob"]).unwrap().buckets.keys().cloned().collect();
    for blob in pulled.images.iter().flat_map(StoredImage::blobs) {
        assert!(blobs.contains(blob.digest.oci().as_bytes()), "{blob:?}");
    }
    assert_eq!(
        blobs.len(),
        3 + 30 + 30 + 30 + 15 + 1,
        "layers, manifests, configurations, indexes, and the layout's index, which the collector would take"
    );
    let prepared = pulled.prepare().unwrap();
    let database = prepared.database(&pulled.images).unwrap();
    pulled.containerd().verify(&pulled.store, &pulled.images, &database).unwrap();
}

fn changed(database: &[u8], change: impl FnOnce(&mut Bucket)) -> Vec<u8> {
    let mut tree = bolt::read(database).unwrap();
    change(&mut tree);
    bolt::write(&tree).unwrap()
}

fn inside<'a>(tree: &'a mut Bucket, path: &[&str]) -> &'a mut Bucket {
    path.iter().fold(tree, |bucket, key| bucket.buckets.get_mut(key.as_bytes()).unwrap())
}

#[test]
fn what_a_node_would_not_have_whole_is_refused_by_name() {
    let pulled = of_each_kind();
    let images = pulled.for_role(Role::Management);
    let database = pulled.prepare().unwrap().database(&images).unwrap();
    let image = &images[0];
    let name = image.name.to_string();
    let manifest = image.manifest.blob.digest.oci();
    let blobs = ["v1", "k8s.io", "content", "blob"];
    let refused = |database: &[u8], images: &[StoredImage], told: &str| {
        let error = pulled.containerd().verify(&pulled.store, images, database).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{error:#}");
        let text = render(&error);
        assert!(text.contains(told) && text.contains("next: "), "{text}");
    };
    // The collector takes what no label protects.
    let unprotected = changed(&database, |tree| {
        let labels = [&blobs[..], &[&manifest, "labels"]].concat();
        inside(tree, &labels).pairs.remove(b"containerd.io/gc.ref.content.l.0".as_slice()).unwrap();
    });
    refused(&unprotected, &images, "docker/index:1");
    // A layer of which the database does not know.
    let layer = image.layers[0].digest.oci();
    let unknown = changed(&database, |tree| {
        inside(tree, &blobs).buckets.remove(layer.as_bytes()).unwrap();
    });
    refused(&unknown, &images, "incomplete");
    let nameless = changed(&database, |tree| {
        inside(tree, &["v1", "k8s.io", "images"]).buckets.remove(name.as_bytes()).unwrap();
    });
    refused(&nameless, &images, &format!("no image {name}"));
    // The third image has the blobs of the second.
    refused(&database, &images[..2], "that was not asked for");
}

#[test]
fn a_layer_that_is_gone_or_has_another_length_is_named() {
    let pulled = of_each_kind();
    pulled.store.finish(&pulled.images).unwrap();
    let version = pulled.containerd().version().unwrap();
    let path = pulled.store.blob_path(pulled.images[0].layers[1].digest);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(300_000).unwrap();
    let write = || pulled.containerd().write(&version, &pulled.store, &pulled.images).unwrap_err();
    let named = |text: &str| text.contains(&Path::new(&path).display().to_string());
    assert!(named(&render(&write())));
    fs::remove_file(&path).unwrap();
    assert!(named(&render(&write())));
}

#[test]
fn a_database_of_a_schema_that_an_unknown_node_may_not_read_is_refused() {
    let mut pulled = PulledStore::new();
    let layer = layer(&pulled.store, 1, 4096);
    pulled.image("registry.example.org/a:1", &[], OCI, false, &[layer]);
    let prepared = pulled.prepare().unwrap();
    let database = prepared.database(&pulled.images).unwrap();
    // Numbers as containerd writes them: twice the version.
    for (bytes, reads) in [([4_u8], true), ([6], true), ([8], false)] {
        let patched = changed(&database, |tree| {
            inside(tree, &["v1"]).pairs.insert(b"version".to_vec(), bytes.to_vec()).unwrap();
        });
        let version = prepared.writer().version.clone();
        let writer =
            DatabaseWriter { version, schema: schema_version(&bolt::read(&patched).unwrap()).unwrap() };
        assert_eq!(u64::from(bytes[0]) / 2, writer.schema);
        assert_eq!(compatible(&writer, &NodeContainerd::Unknown).is_ok(), reads, "{writer:?}");
    }
}
