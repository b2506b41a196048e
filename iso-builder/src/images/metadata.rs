//! containerd's metadata database for a set of images, the same bytes for the same images.
//!
//! A containerd at build time writes the database, because only containerd knows its schema. What depends on the
//! moment is then taken out: times, leases, the index of the import. A node puts the database and the blobs in
//! place and starts containerd; nothing is imported there. The schema is described in containerd's
//! `metadata/buckets.go`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail, ensure};
use installer::digest::Digest;

use super::blob::Blob;
use super::containerd::Importer;
use super::image::StoredImage;
use super::store::Store;
use crate::bolt::{self, Bucket};

/// containerd's namespace of Kubernetes.
pub const NAMESPACE: &str = "k8s.io";
/// Where the database lies below containerd's root directory.
pub const IN_CONTAINERD_ROOT: &str = "io.containerd.metadata.v1.bolt/meta.db";

/// The bucket of the schema's major version.
const SCHEMA: &str = "v1";
/// Labels of blobs that depend on content only.
const KEPT_LABELS: [&str; 2] = ["containerd.io/gc.ref.", "containerd.io/distribution.source."];

/// The prepared metadata of a set of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    tree: Bucket,
}

/// Imports `images` of the finished `store` into a fresh containerd and takes over its metadata. All times become
/// `epoch`, in seconds since 1970. An image or blob that is missing, or there without being asked for, is an
/// error.
pub fn prepare(
    importer: &dyn Importer,
    store: &Store,
    images: &[StoredImage],
    epoch: u64,
) -> Result<Metadata> {
    let database = importer.import(store, images)?;
    let tree = bolt::read(&database).context("reading the metadata database that containerd wrote")?;
    let tree = normalise(&tree, images, epoch).context("checking what containerd imported")?;
    Ok(Metadata { tree })
}

impl Metadata {
    /// The database with those of the prepared images that are in `images`, and their blobs. A node's database
    /// must not name blobs that the node does not get: containerd would take its images for damaged.
    pub fn database(&self, images: &[StoredImage]) -> Result<Vec<u8>> {
        let names: BTreeSet<Vec<u8>> =
            images.iter().flat_map(StoredImage::names).map(|name| name.to_string().into_bytes()).collect();
        let blobs: BTreeSet<Vec<u8>> =
            images.iter().flat_map(StoredImage::blobs).map(|blob| blob.digest.oci().into_bytes()).collect();
        let mut tree = self.tree.clone();
        let namespace = descend(&mut tree, &[SCHEMA, NAMESPACE])?;
        descend(namespace, &["images"])?.buckets.retain(|name, _| names.contains(name));
        descend(namespace, &["content", "blob"])?.buckets.retain(|digest, _| blobs.contains(digest));
        ensure!(
            descend(namespace, &["images"])?.buckets.len() == names.len(),
            "an image was not among those that the metadata was prepared for"
        );
        Ok(bolt::write(&tree)?)
    }
}

fn descend<'a>(tree: &'a mut Bucket, path: &[&str]) -> Result<&'a mut Bucket> {
    path.iter().try_fold(tree, |bucket, key| {
        bucket.buckets.get_mut(key.as_bytes()).with_context(|| format!("there is no bucket {key}"))
    })
}

/// A tree with exactly `images` and their blobs, made from what containerd wrote.
fn normalise(raw: &Bucket, images: &[StoredImage], epoch: u64) -> Result<Bucket> {
    let schema = raw.bucket(&[SCHEMA]).context("there is no bucket v1")?;
    let version = schema.value("version").context("it has no schema version")?;
    if let Some(other) = schema.buckets.keys().find(|name| name.as_slice() != NAMESPACE.as_bytes()) {
        bail!("it has another namespace, {}", String::from_utf8_lossy(other));
    }
    let time = go_time(epoch);
    let empty = Bucket::default();
    let found = |path: &[&str]| raw.bucket(path).unwrap_or(&empty);
    let images_bucket = normal_images(found(&[SCHEMA, NAMESPACE, "images"]), images, &time)?;
    let blobs = normal_blobs(found(&[SCHEMA, NAMESPACE, "content", "blob"]), images, &time)?;
    let content = parent(b"blob", blobs);
    let mut namespace = parent(b"content", content);
    namespace.buckets.insert(b"images".to_vec(), images_bucket);
    let mut schema = parent(NAMESPACE.as_bytes(), namespace);
    schema.pairs.insert(b"version".to_vec(), version.to_vec());
    Ok(parent(SCHEMA.as_bytes(), schema))
}

fn parent(key: &[u8], bucket: Bucket) -> Bucket {
    Bucket { buckets: BTreeMap::from([(key.to_vec(), bucket)]), ..Bucket::default() }
}

fn normal_images(raw: &Bucket, images: &[StoredImage], time: &[u8]) -> Result<Bucket> {
    let mut normal = Bucket::default();
    for (image, name) in
        images.iter().flat_map(|image| image.names().into_iter().map(move |name| (image, name)))
    {
        let name = name.to_string();
        let found = raw.bucket(&[&name]).with_context(|| format!("the image {name} is missing"))?;
        let target = found.bucket(&["target"]).with_context(|| format!("the image {name} has no target"))?;
        let digest = target.value("digest").unwrap_or_default();
        ensure!(
            digest == image.target().blob.digest.oci().as_bytes(),
            "the image {name} has the manifest {} instead of {}",
            String::from_utf8_lossy(digest),
            image.target().blob.digest
        );
        normal.buckets.insert(name.into_bytes(), timed(found, time));
    }
    match raw.buckets.keys().find(|name| !normal.buckets.contains_key(*name)) {
        Some(other) => bail!("there is an image {} that was not asked for", String::from_utf8_lossy(other)),
        None => Ok(normal),
    }
}

fn normal_blobs(raw: &Bucket, images: &[StoredImage], time: &[u8]) -> Result<Bucket> {
    let mut normal = Bucket::default();
    for blob in images.iter().flat_map(StoredImage::blobs) {
        let Blob { digest, size } = blob;
        let key = digest.oci();
        let found = raw.bucket(&[&key]).with_context(|| format!("the blob {digest} is missing"))?;
        let recorded = found.value("size").and_then(varint);
        ensure!(recorded == i64::try_from(size).ok(), "the blob {digest} does not have {size} bytes");
        let mut kept = timed(found, time);
        if let Some(labels) = kept.buckets.get_mut(b"labels".as_slice()) {
            labels.pairs.retain(|label, _| KEPT_LABELS.iter().any(|kept| label.starts_with(kept.as_bytes())));
        }
        normal.buckets.insert(key.into_bytes(), kept);
    }
    check_references(&normal, images)?;
    let manifests: BTreeSet<String> = images.iter().map(|image| image.target().blob.digest.oci()).collect();
    for (digest, bucket) in raw.buckets.iter().filter(|(digest, _)| !normal.buckets.contains_key(*digest)) {
        ensure!(
            is_index_of_the_import(bucket, &manifests),
            "there is a blob {} that belongs to no image",
            String::from_utf8_lossy(digest)
        );
    }
    Ok(normal)
}

/// The collector of containerd keeps what the labels of manifests name; without them it would delete the layers.
fn check_references(blobs: &Bucket, images: &[StoredImage]) -> Result<()> {
    for image in images {
        let labels = blobs.bucket(&[&image.manifest.blob.digest.oci(), "labels"]);
        let named: BTreeSet<&[u8]> =
            labels.into_iter().flat_map(|labels| labels.pairs.values()).map(Vec::as_slice).collect();
        let unnamed = |digest: &Digest| !named.contains(digest.oci().as_bytes());
        if let Some(digest) = [image.config]
            .into_iter()
            .chain(image.layers.iter().copied())
            .map(|blob| blob.digest)
            .find(unnamed)
        {
            return Err(anyhow!("nothing in the manifest of {} protects the blob {digest}", image.name));
        }
    }
    Ok(())
}

/// An import stores the layout's index too. No image refers to it, and containerd's collector removes it sooner
/// or later.
fn is_index_of_the_import(blob: &Bucket, manifests: &BTreeSet<String>) -> bool {
    let Some(labels) = blob.bucket(&["labels"]) else { return false };
    let to_manifest = |(label, digest): (&Vec<u8>, &Vec<u8>)| {
        label.starts_with(b"containerd.io/gc.ref.content.m.")
            && str::from_utf8(digest).is_ok_and(|digest| manifests.contains(digest))
    };
    !labels.pairs.is_empty() && labels.pairs.iter().all(to_manifest)
}

/// The bucket with both of its times set.
fn timed(bucket: &Bucket, time: &[u8]) -> Bucket {
    let mut bucket = bucket.clone();
    for key in ["createdat", "updatedat"] {
        bucket.pairs.insert(key.into(), time.to_vec());
    }
    bucket
}

/// A moment in UTC as Go's `time.Time.MarshalBinary` writes it: version 1, seconds since the year 1 and
/// nanoseconds, big-endian, and -1 for UTC.
fn go_time(epoch: u64) -> Vec<u8> {
    const YEAR_1_TO_1970: u64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend(epoch.saturating_add(YEAR_1_TO_1970).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend((-1_i16).to_be_bytes());
    bytes
}

/// A number as Go's `binary.PutVarint` writes it: zigzag, seven bits a byte.
fn varint(bytes: &[u8]) -> Option<i64> {
    let mut number: u64 = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let shift = u32::try_from(index).ok()?.checked_mul(7).filter(|shift| *shift < 64)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (index + 1 == bytes.len())
                .then_some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::image::Target;
    use super::*;
    use proptest::prelude::*;

    fn blob(name: &str) -> Blob {
        Blob { digest: Digest::of(name.as_bytes()), size: 3 }
    }

    fn image(name: &str, layer: &str) -> StoredImage {
        StoredImage {
            name: name.parse().unwrap(),
            roles: vec![],
            index: None,
            manifest: Target {
                media_type: "application/vnd.oci.image.manifest.v1+json".into(),
                blob: blob(&format!("{name} manifest")),
            },
            config: blob(&format!("{name} config")),
            layers: vec![blob(layer)],
        }
    }

    fn bucket(pairs: &[(&str, &[u8])], buckets: &[(&str, Bucket)]) -> Bucket {
        Bucket {
            pairs: pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.to_vec())).collect(),
            buckets: buckets.iter().map(|(key, bucket)| (key.as_bytes().to_vec(), bucket.clone())).collect(),
            sequence: 0,
        }
    }

    fn raw_blob(labels: &[(&str, &str)], time: &[u8]) -> Bucket {
        let labels: Vec<_> = labels.iter().map(|(label, value)| (*label, value.as_bytes())).collect();
        bucket(
            &[("createdat", time), ("updatedat", time), ("size", &[6])],
            &[("labels", bucket(&labels, &[]))],
        )
    }

    /// What containerd writes when it imports `images` at `time`.
    fn imported(images: &[StoredImage], time: &[u8]) -> Bucket {
        let (mut blobs, mut entries) = (Bucket::default(), Bucket::default());
        for image in images {
            let digests: Vec<String> = image.blobs().map(|blob| blob.digest.oci()).collect();
            let labels = [
                ("containerd.io/gc.ref.content.config", digests[1].as_str()),
                ("containerd.io/gc.ref.content.l.0", &digests[2]),
                ("containerd.io/gc.expire", "2030-01-01T00:00:00Z"),
            ];
            blobs.buckets.insert(digests[0].clone().into(), raw_blob(&labels, time));
            for digest in &digests[1..] {
                blobs.buckets.insert(digest.clone().into(), raw_blob(&[], time));
            }
            let target = bucket(&[("digest", digests[0].as_bytes())], &[]);
            let entry = bucket(&[("createdat", time), ("updatedat", time)], &[("target", target)]);
            for name in image.names() {
                entries.buckets.insert(name.to_string().into_bytes(), entry.clone());
            }
        }
        let index = [("containerd.io/gc.ref.content.m.0", &*images[0].manifest.blob.digest.oci())];
        blobs.buckets.insert(b"sha256:index".to_vec(), raw_blob(&index, time));
        let leases = bucket(&[], &[("lease", Bucket::default())]);
        let content = bucket(&[], &[("blob", blobs), ("ingests", Bucket::default())]);
        let namespace = bucket(&[], &[("content", content), ("images", entries), ("leases", leases)]);
        bucket(&[], &[("v1", bucket(&[("version", &[6])], &[("k8s.io", namespace)]))])
    }

    fn two() -> [StoredImage; 2] {
        [image("localhost/a:1", "base"), image("localhost/b:1", "base")]
    }

    #[test]
    fn the_moment_and_the_leftovers_of_the_import_disappear() {
        let images = two();
        let normal = normalise(&imported(&images, b"monday"), &images, 0).unwrap();
        assert_eq!(normal, normalise(&imported(&images, b"friday"), &images, 0).unwrap());
        assert_eq!(normal.bucket(&["v1"]).unwrap().value("version"), Some(&[6][..]));
        assert!(normal.bucket(&["v1", "k8s.io", "leases"]).is_none());
        let blobs = normal.bucket(&["v1", "k8s.io", "content", "blob"]).unwrap();
        assert_eq!(blobs.buckets.len(), 5, "two manifests, two configurations, one layer");
        let labels = blobs.bucket(&[&images[0].manifest.blob.digest.oci(), "labels"]).unwrap();
        assert_eq!(labels.pairs.len(), 2, "references stay, the expiry goes");
    }

    #[test]
    fn more_or_less_than_was_asked_for_is_an_error() {
        let [a, b] = two();
        let both = imported(&[a.clone(), b.clone()], b"now");
        let message =
            |raw: &Bucket, images: &[StoredImage]| format!("{:#}", normalise(raw, images, 0).unwrap_err());
        assert!(message(&both, std::slice::from_ref(&a)).contains("localhost/b:1"));
        let one = imported(std::slice::from_ref(&a), b"now");
        assert!(message(&one, &[a.clone(), b]).contains("localhost/b:1 is missing"));
        let mut lost = one.clone();
        let blobs = descend(&mut lost, &["v1", "k8s.io", "content", "blob"]).unwrap();
        blobs.buckets.remove(a.layers[0].digest.oci().as_bytes());
        assert!(message(&lost, std::slice::from_ref(&a)).contains("is missing"));
        let mut stray = one;
        let blobs = descend(&mut stray, &["v1", "k8s.io", "content", "blob"]).unwrap();
        blobs.buckets.insert(b"sha256:stray".to_vec(), raw_blob(&[], b"now"));
        assert!(message(&stray, &[a]).contains("belongs to no image"));
    }

    #[test]
    fn a_layer_that_no_label_protects_is_an_error() {
        let images = two();
        let mut raw = imported(&images, b"now");
        let manifest = images[0].manifest.blob.digest.oci();
        let labels = descend(&mut raw, &["v1", "k8s.io", "content", "blob", &manifest, "labels"]).unwrap();
        labels.pairs.remove(b"containerd.io/gc.ref.content.l.0".as_slice());
        assert!(format!("{:#}", normalise(&raw, &images, 0).unwrap_err()).contains("protects"));
    }

    #[test]
    fn a_subset_keeps_shared_blobs_and_loses_the_others() {
        let [a, b] = two();
        let tree = normalise(&imported(&[a.clone(), b.clone()], b"now"), &[a.clone(), b.clone()], 0).unwrap();
        let alone =
            normalise(&imported(std::slice::from_ref(&b), b"now"), std::slice::from_ref(&b), 0).unwrap();
        let subset = Metadata { tree }.database(&[b]).unwrap();
        assert_eq!(bolt::read(&subset).unwrap(), alone);
        assert!(Metadata { tree: alone }.database(&[a]).is_err());
    }

    #[test]
    fn the_time_has_the_form_of_go() {
        // What `time.Unix(0, 0).UTC().MarshalBinary()` gives.
        let expected = [1, 0, 0, 0, 0x0e, 0x77, 0x91, 0xf7, 0, 0, 0, 0, 0, 0xff, 0xff];
        assert_eq!(go_time(0), expected);
    }

    #[test]
    fn numbers_are_read_as_go_writes_them() {
        for (bytes, number) in [(&[6][..], 3), (&[5], -3), (&[0x80, 0x03], 192), (&[0xb6, 0x05], 347)] {
            assert_eq!(varint(bytes), Some(number));
        }
        for bytes in [&[][..], &[0x80], &[6, 0], &[0x80; 11]] {
            assert_eq!(varint(bytes), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_number_or_not(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = varint(&bytes);
        }
    }
}
