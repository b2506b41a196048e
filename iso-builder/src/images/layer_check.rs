//! Checks that a node's containerd can unpack the images of a store.
//!
//! containerd compares nothing while images are imported; it unpacks them when a node first needs them, and finds only then that
//! a layer is not what its manifest and configuration say. So every layer is read here as containerd would read it: by its media
//! type, to its end, and compared with its `diff_id`. See containerd's `core/images/mediatypes.go` and `pkg/rootfs/apply.go`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use anyhow::{Context, Result, bail};
use base::digest::{Digest, HashingReader};
use base::failure::{Class, Failure};
use base::files::read_at_most;
use base::parallel;
use base::progress::Progress;
use formats::oci::{Document, ImageReference, LayerCompression, prefixed};
use serde::Deserialize;

use super::blob::Blob;
use super::import::MAX_DOCUMENT_BYTES;
use super::store::Store;
use super::stored_image::StoredImage;
use crate::archive::{Compression, compression};

/// The part of an image's configuration that says what its layers are, unpacked.
#[derive(Deserialize)]
struct Configuration {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<DiffId>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct DiffId(#[serde(with = "prefixed")] Digest);

/// The expected digests of one layer. Images share layers, so each is checked once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ExpectedLayer {
    blob: Blob,
    media_type: String,
    /// Digest of the tar archive, not compressed.
    diff_id: DiffId,
}

/// Checks every layer of `images` in `store`, `jobs` at a time.
///
/// # Errors
/// [`Class::Verification`], with the image, its layer and the reason.
pub fn check(store: &Store, images: &[StoredImage], jobs: usize, progress: &Progress) -> Result<()> {
    let mut layers: BTreeMap<ExpectedLayer, (&ImageReference, String)> = BTreeMap::new();
    for image in images {
        let expected = expected(store, image).map_err(|error| refused(&image.name, error))?;
        let count = expected.len();
        for (number, layer) in (1..).zip(expected) {
            layers.entry(layer).or_insert((&image.name, format!("layer {number} of {count}")));
        }
    }
    let layers: Vec<_> = layers.into_iter().collect();
    let message = format!("Checking that containerd can unpack {} layers", layers.len());
    let check = || {
        parallel::for_each(&layers, jobs, |(layer, (image, place))| {
            let checked =
                check_layer(store, layer).with_context(|| format!("{place} ({})", layer.blob.digest.oci()));
            checked.map_err(|error| refused(image, error))
        })
    };
    if layers.is_empty() { Ok(()) } else { progress.within("check-layers", message, check) }
}

fn refused(image: &ImageReference, error: anyhow::Error) -> anyhow::Error {
    // A disk that cannot be read says nothing about the image.
    if base::failure::class_of(&error) == Class::DiskIo {
        return error;
    }
    Failure::new(Class::Verification, format!("containerd cannot unpack the image {image}"))
        .because(error)
        .hint("Build or save the image again with a current tool, or name another version of it.")
        .into()
}

/// The layers that manifest and configuration of an image speak of.
fn expected(store: &Store, image: &StoredImage) -> Result<Vec<ExpectedLayer>> {
    let read = |digest| read_at_most(&store.blob_path(digest), MAX_DOCUMENT_BYTES);
    let Document::Manifest(manifest) =
        Document::parse(&read(image.manifest.blob.digest)?, &image.manifest.media_type)?
    else {
        bail!("its manifest is an index");
    };
    let configuration: Configuration =
        serde_json::from_slice(&read(image.config.digest)?).context("reading its configuration")?;
    let (layers, diff_ids) = (manifest.layers, configuration.rootfs.diff_ids);
    if layers.len() != diff_ids.len() {
        let (layers, diff_ids) = (layers.len(), diff_ids.len());
        bail!("its manifest lists {layers} layers, and its configuration {diff_ids} (rootfs.diff_ids)");
    }
    let layer = |(layer, diff_id): (formats::oci::Descriptor, DiffId)| ExpectedLayer {
        blob: Blob { digest: layer.digest, size: layer.size },
        media_type: layer.media_type,
        diff_id,
    };
    Ok(layers.into_iter().zip(diff_ids).map(layer).collect())
}

fn check_layer(store: &Store, layer: &ExpectedLayer) -> Result<()> {
    let file = File::open(store.blob_path(layer.blob.digest)).context("opening it")?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let media_type = &layer.media_type;
    let tar: Box<dyn io::Read> = match LayerCompression::of_type(media_type) {
        None => bail!("containerd knows no layers of the type {media_type:?}"),
        Some(LayerCompression::Recognized) => {
            compression::plain(reader).context("reading how it is compressed")?
        }
        Some(LayerCompression::None) => {
            let found = Compression::of(reader.fill_buf().context("reading it")?)?;
            if found != Compression::None {
                bail!("its type {media_type} means no compression, and it is compressed with {found}");
            }
            Box::new(reader)
        }
    };
    let mut tar = tar::Archive::new(HashingReader::new(tar));
    for entry in tar.entries().context("reading it as a tar archive")? {
        entry.context("reading it as a tar archive")?;
    }
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).context("reading it to its end")?;
    let found = rest.digest();
    if found != layer.diff_id.0 {
        let (found, expected) = (found.oci(), layer.diff_id.0.oci());
        bail!("unpacked it has the digest {found}, and the configuration says {expected}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::stored_image::ImageDocument;
    use super::*;
    use formats::oci::media_types::{DOCKER_LAYER, OCI_LAYER, OCI_LAYER_GZIP, OCI_LAYER_ZSTD, OCI_MANIFEST};
    use serde_json::json;

    fn tar_of(content: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, "file", content).unwrap();
        builder.into_inner().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        zstd::encode_all(content, 3).unwrap()
    }

    /// The outcome for an image of these layers (media type and bytes) whose configuration has these `diff_ids`.
    fn checked(layers: &[(&str, Vec<u8>)], diff_ids: &[Digest]) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path()).unwrap();
        let diff_ids: Vec<_> = diff_ids.iter().map(|digest| digest.oci()).collect();
        let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = store.add(&serde_json::to_vec(&config).unwrap()).unwrap();
        let blobs: Vec<_> = layers.iter().map(|(_, bytes)| store.add(bytes).unwrap()).collect();
        let described = layers.iter().zip(&blobs).map(|((media_type, _), blob)| {
            json!({ "mediaType": media_type, "digest": blob.digest.oci(), "size": blob.size })
        });
        let config_descriptor =
            json!({ "mediaType": "c", "digest": config.digest.oci(), "size": config.size });
        let manifest = json!({ "schemaVersion": 2, "config": config_descriptor, "layers": described.collect::<Vec<_>>() });
        let blob = store.add(&serde_json::to_vec(&manifest).unwrap()).unwrap();
        let image = StoredImage {
            name: "a.b/app:1".parse().unwrap(),
            roles: Vec::new(),
            indexes: Vec::new(),
            siblings: Vec::new(),
            manifest: ImageDocument { media_type: OCI_MANIFEST.into(), blob },
            config,
            layers: blobs,
        };
        let outcome = check(&store, &[image], 2, &Progress::silent());
        outcome.map_err(|error| {
            assert_eq!(base::failure::class_of(&error), Class::Verification);
            base::failure::render(&error)
        })
    }

    #[test]
    fn layers_that_containerd_unpacks_pass() {
        let tar = tar_of(b"content");
        let diff_id = Digest::of(&tar);
        for (media_type, bytes) in [
            (OCI_LAYER, tar.clone()),
            (OCI_LAYER_ZSTD, zstd(&tar)),
            // A type that names a compression is not believed.
            (OCI_LAYER_GZIP, zstd(&tar)),
            (OCI_LAYER_GZIP, tar.clone()),
            (DOCKER_LAYER, zstd(&tar)),
        ] {
            assert_eq!(checked(&[(media_type, bytes)], &[diff_id]), Ok(()), "{media_type}");
        }
        assert_eq!(checked(&[], &[]), Ok(()));
    }

    #[test]
    fn a_layer_that_containerd_does_not_unpack_is_named_with_the_reason() {
        let tar = tar_of(b"content");
        let diff_id = Digest::of(&tar);
        let cut = zstd(&tar)[..20].to_vec();
        let garbage = vec![b'x'; 2048];
        for (layers, diff_ids, reason) in [
            (
                vec![(OCI_LAYER, zstd(&tar))],
                vec![diff_id],
                "means no compression, and it is compressed with zstd",
            ),
            (vec![(OCI_LAYER_ZSTD, zstd(&tar))], vec![Digest::of(b"other")], "unpacked it has the digest"),
            (vec![(OCI_LAYER, tar.clone())], vec![], "lists 1 layers, and its configuration 0"),
            (
                vec![(OCI_LAYER, tar.clone())],
                vec![diff_id, diff_id],
                "lists 1 layers, and its configuration 2",
            ),
            (vec![(OCI_LAYER_ZSTD, cut)], vec![diff_id], "layer 1 of 1"),
            (
                vec![(OCI_LAYER, tar.clone()), (OCI_LAYER, garbage.clone())],
                vec![diff_id, Digest::of(&garbage)],
                "layer 2 of 2",
            ),
            (
                vec![("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", tar.clone())],
                vec![diff_id],
                "knows no layers of the type",
            ),
            (vec![(OCI_LAYER_GZIP, b"\xfd7zXZ\0rest".to_vec())], vec![diff_id], "xz"),
        ] {
            let told = checked(&layers, &diff_ids).unwrap_err();
            assert!(
                told.contains("containerd cannot unpack the image a.b/app:1") && told.contains(reason),
                "{told}"
            );
        }
    }
}
