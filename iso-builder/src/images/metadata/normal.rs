//! The metadata that a containerd wrote, without what depends on the time of the build, and checked: exactly the images
//! and their blobs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use base::containerd::{NAMESPACE, PINNED};
use base::digest::Digest;

use super::super::blob::Blob;
use super::super::stored_image::StoredImage;
use super::go;
use super::schema::{SCHEMA_BUCKET, VERSION_KEY};
use crate::bolt::Bucket;

/// The prefix of labels that protect what they name from the garbage collector.
const REFERENCE_LABEL: &str = "containerd.io/gc.ref.content.";
/// The prefixes of labels of blobs that depend on content only.
const KEPT_LABELS: [&str; 2] = [REFERENCE_LABEL, "containerd.io/distribution.source."];

/// The bucket at the end of `path`.
pub(super) fn descend<'a>(tree: &'a mut Bucket, path: &[&str]) -> Result<&'a mut Bucket> {
    path.iter().try_fold(tree, |bucket, key| {
        bucket.buckets.get_mut(key.as_bytes()).with_context(|| format!("there is no bucket {key}"))
    })
}

/// A tree with exactly `images` and their blobs, made from what containerd wrote. An import also stores the index of
/// the layout, which is the blob `layout`; no image refers to it.
pub(super) fn normalise(raw: &Bucket, images: &[StoredImage], layout: Digest, epoch: u64) -> Result<Bucket> {
    let schema = raw.bucket(&[SCHEMA_BUCKET]).context("there is no bucket v1")?;
    let version = schema.value(VERSION_KEY).context("it has no schema version")?;
    if let Some(other) = schema.buckets.keys().find(|name| name.as_slice() != NAMESPACE.as_bytes()) {
        bail!("it has another namespace, {}", String::from_utf8_lossy(other));
    }
    let time = go::time(epoch);
    let empty = Bucket::default();
    let found = |path: &[&str]| raw.bucket(path).unwrap_or(&empty);
    let images_bucket = normal_images(found(&[SCHEMA_BUCKET, NAMESPACE, "images"]), images, &time)?;
    let blobs = normal_blobs(found(&[SCHEMA_BUCKET, NAMESPACE, "content", "blob"]), images, layout, &time)?;
    let content = parent(b"blob", blobs);
    let mut namespace = parent(b"content", content);
    namespace.buckets.insert(b"images".to_vec(), images_bucket);
    let mut schema = parent(NAMESPACE.as_bytes(), namespace);
    schema.pairs.insert(VERSION_KEY.into(), version.to_vec());
    Ok(parent(SCHEMA_BUCKET.as_bytes(), schema))
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
        let mut kept = timed(found, time);
        let labels = kept.buckets.entry(b"labels".to_vec()).or_default();
        labels.pairs.insert(PINNED.0.into(), PINNED.1.into());
        normal.buckets.insert(name.into_bytes(), kept);
    }
    match raw.buckets.keys().find(|name| !normal.buckets.contains_key(*name)) {
        Some(other) => bail!("there is an image {} that was not asked for", String::from_utf8_lossy(other)),
        None => Ok(normal),
    }
}

fn normal_blobs(raw: &Bucket, images: &[StoredImage], layout: Digest, time: &[u8]) -> Result<Bucket> {
    let mut normal = Bucket::default();
    for blob in images.iter().flat_map(StoredImage::blobs) {
        let Blob { digest, size } = blob;
        let key = digest.oci();
        let found = raw.bucket(&[&key]).with_context(|| format!("the blob {digest} is missing"))?;
        let recorded = found.value("size").and_then(go::varint);
        ensure!(recorded == i64::try_from(size).ok(), "the blob {digest} does not have {size} bytes");
        let mut kept = timed(found, time);
        if let Some(labels) = kept.buckets.get_mut(b"labels".as_slice()) {
            labels.pairs.retain(|label, _| KEPT_LABELS.iter().any(|kept| label.starts_with(kept.as_bytes())));
        }
        normal.buckets.insert(key.into_bytes(), kept);
    }
    check_references(&normal, images)?;
    let stray =
        |digest: &&Vec<u8>| !normal.buckets.contains_key(*digest) && **digest != layout.oci().as_bytes();
    if let Some(digest) = raw.buckets.keys().find(stray) {
        bail!("there is a blob {} that belongs to no image", String::from_utf8_lossy(digest));
    }
    Ok(normal)
}

/// Checks that the labels of indexes and manifests name all their children; otherwise containerd's garbage collector
/// would delete the manifest, or the layers.
fn check_references(blobs: &Bucket, images: &[StoredImage]) -> Result<()> {
    for image in images {
        let manifest = image.manifest.blob;
        let documents: Vec<Blob> = image.indexes.iter().map(|index| index.blob).chain([manifest]).collect();
        for pair in documents.windows(2) {
            check_document(blobs, image, pair[0], &pair[1..])?;
        }
        let content: Vec<Blob> = [image.config].into_iter().chain(image.layers.iter().copied()).collect();
        check_document(blobs, image, manifest, &content)?;
    }
    Ok(())
}

/// Checks that `document` of `image` has a label for each of `children`.
fn check_document(blobs: &Bucket, image: &StoredImage, document: Blob, children: &[Blob]) -> Result<()> {
    let labels = blobs.bucket(&[&document.digest.oci(), "labels"]);
    let references = labels.into_iter().flat_map(|labels| &labels.pairs);
    let references = references.filter(|(label, _)| label.starts_with(REFERENCE_LABEL.as_bytes()));
    let named: BTreeSet<&[u8]> = references.map(|(_, digest)| digest.as_slice()).collect();
    let unnamed = |digest: &Digest| !named.contains(digest.oci().as_bytes());
    match children.iter().map(|blob| blob.digest).find(unnamed) {
        Some(digest) => bail!("no label in the image {} protects the blob {digest}", image.name),
        None => Ok(()),
    }
}

/// The bucket with both of its times set.
fn timed(bucket: &Bucket, time: &[u8]) -> Bucket {
    let mut bucket = bucket.clone();
    for key in ["createdat", "updatedat"] {
        bucket.pairs.insert(key.into(), time.to_vec());
    }
    bucket
}

#[cfg(test)]
mod tests {
    use formats::oci::media_types;

    use super::super::super::containerd_version::DatabaseWriter;
    use super::super::super::stored_image::ImageDocument;
    use super::super::ContainerdMetadata;
    use super::*;
    use crate::bolt;

    fn blob(name: &str) -> Blob {
        Blob { digest: Digest::of(name.as_bytes()), size: 3 }
    }

    fn image(name: &str, layer: &str) -> StoredImage {
        StoredImage {
            name: name.parse().unwrap(),
            roles: vec![],
            indexes: Vec::new(),
            siblings: Vec::new(),
            manifest: ImageDocument {
                media_type: media_types::OCI_MANIFEST.into(),
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

    fn indexed(name: &str, layer: &str) -> StoredImage {
        let media_type = media_types::OCI_INDEX.into();
        let index = ImageDocument { media_type, blob: blob(&format!("{name} index")) };
        StoredImage { indexes: vec![index], ..image(name, layer) }
    }

    fn layout() -> Digest {
        Digest::of(b"index.json")
    }

    fn writer() -> DatabaseWriter {
        DatabaseWriter { version: "1.6.20".parse().unwrap(), schema: 3 }
    }

    /// The database that containerd writes when it imports `images` at `time`.
    fn imported(images: &[StoredImage], time: &[u8]) -> Bucket {
        let (mut blobs, mut entries) = (Bucket::default(), Bucket::default());
        for image in images {
            let digest = |blob: Blob| blob.digest.oci();
            let manifest = digest(image.manifest.blob);
            let labels = [
                ("containerd.io/gc.ref.content.config", &*digest(image.config)),
                ("containerd.io/gc.ref.content.l.0", &digest(image.layers[0])),
                ("containerd.io/gc.expire", "2030-01-01T00:00:00Z"),
            ];
            blobs.buckets.insert(manifest.clone().into(), raw_blob(&labels, time));
            for blob in [image.config, image.layers[0]] {
                blobs.buckets.insert(digest(blob).into(), raw_blob(&[], time));
            }
            for index in &image.indexes {
                let labels = [("containerd.io/gc.ref.content.m.0", &*manifest)];
                blobs.buckets.insert(digest(index.blob).into(), raw_blob(&labels, time));
            }
            let target = digest(image.target().blob);
            let target = bucket(&[("digest", target.as_bytes())], &[]);
            let entry = bucket(&[("createdat", time), ("updatedat", time)], &[("target", target)]);
            for name in image.names() {
                entries.buckets.insert(name.to_string().into_bytes(), entry.clone());
            }
        }
        blobs.buckets.insert(layout().oci().into(), raw_blob(&[], time));
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
        let normal = normalise(&imported(&images, b"monday"), &images, layout(), 0).unwrap();
        assert_eq!(normal, normalise(&imported(&images, b"friday"), &images, layout(), 0).unwrap());
        assert_eq!(normal.bucket(&["v1"]).unwrap().value("version"), Some(&[6][..]));
        assert!(normal.bucket(&["v1", "k8s.io", "leases"]).is_none());
        let blobs = normal.bucket(&["v1", "k8s.io", "content", "blob"]).unwrap();
        assert_eq!(blobs.buckets.len(), 5, "two manifests, two configurations, one layer");
        let labels = blobs.bucket(&[&images[0].manifest.blob.digest.oci(), "labels"]).unwrap();
        assert_eq!(labels.pairs.len(), 2, "references stay, the expiry goes");
        let labels = normal.bucket(&["v1", "k8s.io", "images", "localhost/a:1", "labels"]).unwrap();
        assert_eq!(labels.value(PINNED.0), Some(PINNED.1.as_bytes()));
    }

    #[test]
    fn more_or_less_than_was_asked_for_is_an_error() {
        let [a, b] = two();
        let both = imported(&[a.clone(), b.clone()], b"now");
        let message = |raw: &Bucket, images: &[StoredImage]| {
            format!("{:#}", normalise(raw, images, layout(), 0).unwrap_err())
        };
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
    fn a_blob_that_no_label_protects_is_an_error() {
        let images = [indexed("localhost/a:1", "base")];
        let (index, manifest) = (images[0].target(), &images[0].manifest);
        for (document, label) in [
            (index, "containerd.io/gc.ref.content.m.0"),
            (manifest, "containerd.io/gc.ref.content.config"),
            (manifest, "containerd.io/gc.ref.content.l.0"),
        ] {
            let mut raw = imported(&images, b"now");
            assert!(normalise(&raw, &images, layout(), 0).is_ok());
            let document = document.blob.digest.oci();
            let labels =
                descend(&mut raw, &["v1", "k8s.io", "content", "blob", &document, "labels"]).unwrap();
            labels.pairs.remove(label.as_bytes());
            let error = format!("{:#}", normalise(&raw, &images, layout(), 0).unwrap_err());
            assert!(error.contains("protects") && error.contains("localhost/a:1"), "{label}: {error}");
        }
    }

    #[test]
    fn a_subset_keeps_shared_blobs_and_loses_the_others() {
        let [a, b] = two();
        let tree =
            normalise(&imported(&[a.clone(), b.clone()], b"now"), &[a.clone(), b.clone()], layout(), 0)
                .unwrap();
        let alone =
            normalise(&imported(std::slice::from_ref(&b), b"now"), std::slice::from_ref(&b), layout(), 0)
                .unwrap();
        let subset = ContainerdMetadata { tree, writer: writer() }.database(&[b]).unwrap();
        assert_eq!(bolt::read(&subset).unwrap(), alone);
        assert!(ContainerdMetadata { tree: alone, writer: writer() }.database(&[a]).is_err());
    }
}
