use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Cursor};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::failure::{Class, Failure, class_of, render};
use base::progress::Progress;
use formats::oci::media_types;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::images::stored_image::StoredImage;

/// How the registry answers one request for a blob.
#[derive(Clone, Copy, Debug)]
enum BlobAnswer {
    Good,
    /// The connection breaks after so many bytes.
    Cut(usize),
    /// One byte of the answer is wrong.
    Corrupt(usize),
    Gone,
}

/// A registry in memory that counts what it sends.
#[derive(Default)]
struct FakeRegistry {
    documents: BTreeMap<String, Vec<u8>>,
    content: BTreeMap<Digest, Vec<u8>>,
    manners: Mutex<Vec<BlobAnswer>>,
    sent: AtomicU64,
    asked: Mutex<Vec<(Digest, u64)>>,
}

impl ImageRegistry for FakeRegistry {
    fn document(&self, reference: &ImageReference) -> Result<Vec<u8>> {
        self.documents
            .get(&reference.to_string())
            .cloned()
            .ok_or_else(|| Failure::new(Class::Network, format!("{reference} does not exist")).into())
    }

    fn blob(&self, _: &Repository, blob: Blob, offset: u64) -> Result<Box<dyn Read + Send>> {
        self.asked.lock().unwrap().push((blob.digest, offset));
        let manner = self.manners.lock().unwrap().pop().unwrap_or(BlobAnswer::Good);
        let content = self.content.get(&blob.digest).cloned().unwrap_or_default();
        let mut bytes = content[usize::try_from(offset)?..].to_vec();
        let cut = match manner {
            BlobAnswer::Good => false,
            BlobAnswer::Cut(count) => {
                bytes.truncate(count);
                true
            }
            BlobAnswer::Corrupt(place) => {
                let length = bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(place % length) {
                    *byte ^= 1;
                }
                false
            }
            BlobAnswer::Gone => {
                return Err(Failure::new(Class::Network, "the blob does not exist").into());
            }
        };
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(Box::new(Answer { bytes: Cursor::new(bytes), cut }))
    }
}

struct Answer {
    bytes: Cursor<Vec<u8>>,
    cut: bool,
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = buffer.len().min(1000);
        match self.bytes.read(&mut buffer[..limit])? {
            0 if self.cut => Err(io::Error::other(Failure::new(Class::Network, "the connection broke off"))),
            count => Ok(count),
        }
    }
}

impl FakeRegistry {
    fn add(&mut self, bytes: &[u8]) -> Blob {
        let blob = Blob { digest: Digest::of(bytes), size: bytes.len() as u64 };
        self.content.insert(blob.digest, bytes.to_vec());
        blob
    }

    /// An image with these layers under `name`; returns the digest of its manifest.
    fn image(&mut self, name: &str, layers: &[&[u8]]) -> Digest {
        self.image_for("amd64", name, layers)
    }

    fn image_for(&mut self, architecture: &str, name: &str, layers: &[&[u8]]) -> Digest {
        let describe = |kind: &str, blob: Blob| json!({ "mediaType": kind, "digest": blob.digest.oci(), "size": blob.size });
        let config = json!({ "os": "linux", "architecture": architecture, "of": name });
        let config = self.add(config.to_string().as_bytes());
        let layers: Vec<_> = layers.iter().map(|layer| describe("l", self.add(layer))).collect();
        let manifest = json!({ "schemaVersion": 2, "config": describe("c", config), "layers": layers });
        self.publish(name, serde_json::to_vec(&manifest).unwrap())
    }

    /// Makes an index under `name` of existing images, each with its architecture.
    fn index(&mut self, name: &str, images: &[(&str, Digest)]) -> Digest {
        let manifests: Vec<_> = images
            .iter()
            .map(|(architecture, digest)| {
                json!({
                    "mediaType": media_types::OCI_MANIFEST,
                    "digest": digest.oci(), "size": 1,
                    "platform": { "os": "linux", "architecture": architecture },
                })
            })
            .collect();
        self.publish(
            name,
            serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": manifests })).unwrap(),
        )
    }

    fn publish(&mut self, name: &str, document: Vec<u8>) -> Digest {
        let reference: ImageReference = name.parse().unwrap();
        let digest = Digest::of(&document);
        self.documents.insert(reference.repository().with_digest(digest).to_string(), document.clone());
        self.documents.insert(reference.to_string(), document);
        digest
    }
}

struct CacheFixture {
    _directory: tempfile::TempDir,
    cache: BlobCache,
}

fn ground() -> CacheFixture {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlobCache::open(directory.path()).unwrap();
    CacheFixture { _directory: directory, cache }
}

fn pinned(names: &[&str], fake: &FakeRegistry, cache: &BlobCache) -> Result<Vec<PinnedImage>> {
    let references: Vec<_> = names.iter().map(|name| name.parse().unwrap()).collect();
    resolve(&references, fake, cache, 3, &Progress::silent())
}

fn pull(names: &[&str], fake: &FakeRegistry, cache: &BlobCache) -> Result<Vec<StoredImage>> {
    let images = documents(&pinned(names, fake, cache)?, "amd64", fake, cache, 3)?;
    blobs(&images, fake, cache, 3, &Progress::silent())?;
    Ok(images)
}

fn large(seed: u32) -> Vec<u8> {
    (0..50_000_u32).map(|n| (n.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn shared_blobs_are_fetched_once_and_a_second_build_fetches_nothing() {
    let mut fake = FakeRegistry::default();
    let (base, own) = (large(1), large(2));
    fake.image("a.b/one:1", &[&base]);
    fake.image("a.b/two:1", &[&base, &own]);
    let ground = ground();
    let images = pull(&["a.b/one:1", "a.b/two:1"], &fake, &ground.cache).unwrap();
    let configs: u64 = images.iter().map(|image| image.config.size).sum();
    let unique = base.len() as u64 + own.len() as u64 + configs;
    assert_eq!(fake.sent.load(Ordering::Relaxed), unique);
    pull(&["a.b/one:1", "a.b/two:1"], &fake, &ground.cache).unwrap();
    assert_eq!(fake.sent.load(Ordering::Relaxed), unique);
    for blob in images.iter().flat_map(StoredImage::blobs) {
        assert!(ground.cache.holds(blob).unwrap());
    }
}

#[test]
fn an_index_stays_the_target_and_other_platforms_stay_away() {
    let mut fake = FakeRegistry::default();
    let (ours, other) = (large(1), large(2));
    let one = fake.image("a.b/ours:1", &[&ours]);
    let two = fake.image("a.b/ours:2", &[&other]);
    let index = fake.index("a.b/ours:all", &[("arm64", two), ("amd64", one)]);
    let ground = ground();
    let images = pull(&["a.b/ours:all"], &fake, &ground.cache).unwrap();
    assert_eq!(images[0].target().blob.digest, index);
    assert_eq!(images[0].manifest.blob.digest, one);
    assert!(!ground.cache.path(Digest::of(&other)).exists());
    let names: Vec<_> = images[0].names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a.b/ours:all".to_owned(), format!("a.b/ours@{}", index.oci())]);
    fake.index("a.b/ours:none", &[("arm64", two)]);
    let error = pull(&["a.b/ours:none"], &fake, &ground.cache).unwrap_err();
    let told = render(&error);
    assert!(class_of(&error) == Class::Invalid && told.contains("a.b/ours:none"), "{told}");
    assert!(told.contains("linux/amd64") && told.contains("linux/arm64"), "{told}");
}

#[test]
fn an_index_inside_an_index_is_followed_and_both_are_kept() {
    let mut fake = FakeRegistry::default();
    let image = fake.image("a.b/inner:1", &[b"layer"]);
    let inner = fake.index("a.b/inner:2", &[("arm64", image), ("amd64", image)]);
    let entry = json!({ "mediaType": media_types::OCI_INDEX, "digest": inner.oci(), "size": 1 });
    let outer = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] })).unwrap();
    let outer = fake.publish("a.b/inner:3", outer);
    let ground = ground();
    let images = pull(&["a.b/inner:3"], &fake, &ground.cache).unwrap();
    let on_the_way: Vec<_> = images[0].blobs().take(3).map(|blob| blob.digest).collect();
    assert_eq!(on_the_way, [outer, inner, image]);
    assert_eq!(images[0].target().blob.digest, outer);
}

#[test]
fn an_image_of_another_platform_is_refused_though_nothing_but_its_configuration_says_so() {
    let mut fake = FakeRegistry::default();
    fake.image_for("arm64", "a.b/arm:1", &[b"arm"]);
    let ground = ground();
    let error = pull(&["a.b/arm:1"], &fake, &ground.cache).unwrap_err();
    let told = render(&error);
    assert!(class_of(&error) == Class::Invalid && told.contains("a.b/arm:1"), "{told}");
    assert!(told.contains("linux/amd64") && told.contains("linux/arm64"), "{told}");
    assert!(!ground.cache.path(Digest::of(b"arm")).exists(), "no layer is fetched");
}

#[test]
fn a_tag_that_moves_does_not_move_what_is_pinned() {
    let mut fake = FakeRegistry::default();
    let before = fake.image("a.b/c:1", &[b"before"]);
    let ground = ground();
    let pinned = pinned(&["a.b/c:1"], &fake, &ground.cache).unwrap();
    fake.image("a.b/c:1", &[b"after"]);
    let images = documents(&pinned, "amd64", &fake, &ground.cache, 1).unwrap();
    assert_eq!(images[0].manifest.blob.digest, before);
}

#[test]
fn a_damaged_blob_of_the_cache_is_fetched_again_and_nothing_else_is() {
    let mut fake = FakeRegistry::default();
    let layer = large(1);
    fake.image("a.b/c:1", &[&layer, &large(2)]);
    let ground = ground();
    pull(&["a.b/c:1"], &fake, &ground.cache).unwrap();
    let path = ground.cache.path(Digest::of(&layer));
    let mut damaged = layer.clone();
    damaged[100] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, damaged).unwrap();
    fake.asked.lock().unwrap().clear();
    pull(&["a.b/c:1"], &fake, &ground.cache).unwrap();
    assert_eq!(*fake.asked.lock().unwrap(), [(Digest::of(&layer), 0)]);
    assert_eq!(fs::read(path).unwrap(), layer);
}

#[test]
fn after_a_cut_only_the_rest_is_fetched() {
    let mut fake = FakeRegistry::default();
    let layer = large(1);
    fake.image("a.b/c:1", &[&layer]);
    let ground = ground();
    let images =
        documents(&pinned(&["a.b/c:1"], &fake, &ground.cache).unwrap(), "amd64", &fake, &ground.cache, 1);
    let images = images.unwrap();
    *fake.manners.lock().unwrap() = vec![BlobAnswer::Cut(30_000)];
    let error = blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap_err();
    assert!(class_of(&error) == Class::Network && render(&error).contains("a.b/c:1"), "{}", render(&error));
    assert!(!ground.cache.path(Digest::of(&layer)).exists(), "what is not whole has no name");
    fake.asked.lock().unwrap().clear();
    fake.sent.store(0, Ordering::Relaxed);
    blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
    assert!(fake.asked.lock().unwrap().contains(&(Digest::of(&layer), 30_000)));
    assert_eq!(fake.sent.load(Ordering::Relaxed), 20_000);
}

#[test]
fn a_corrupted_blob_never_gets_its_name_and_a_part_that_was_wrong_is_had_anew() {
    let mut fake = FakeRegistry::default();
    let layer = large(1);
    fake.image("a.b/c:1", &[&layer]);
    let ground = ground();
    let images =
        documents(&pinned(&["a.b/c:1"], &fake, &ground.cache).unwrap(), "amd64", &fake, &ground.cache, 1)
            .unwrap();
    *fake.manners.lock().unwrap() = (777..780).map(BlobAnswer::Corrupt).collect();
    let error = blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap_err();
    let told = render(&error);
    assert!(class_of(&error) == Class::Verification && told.contains("a.b/c:1"), "{told}");
    let path = ground.cache.path(Digest::of(&layer));
    assert!(!path.exists() && !path.with_extension("part").exists());
    // The part that an earlier build left is damaged.
    fs::write(path.with_extension("part"), vec![7; 40_000]).unwrap();
    blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), layer);
    // A byte that is damaged in transit does not end the build.
    fs::remove_file(&path).unwrap();
    *fake.manners.lock().unwrap() = vec![BlobAnswer::Corrupt(40_000), BlobAnswer::Corrupt(0)];
    blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
    assert_eq!(fs::read(path).unwrap(), layer);
}

#[test]
fn a_blob_that_one_repository_lost_comes_from_another() {
    let mut fake = FakeRegistry::default();
    let layer = large(1);
    fake.image("a.b/one:1", &[&layer]);
    fake.image("c.d/two:1", &[&layer]);
    let ground = ground();
    let names = ["a.b/one:1", "c.d/two:1"];
    let images =
        documents(&pinned(&names, &fake, &ground.cache).unwrap(), "amd64", &fake, &ground.cache, 1).unwrap();
    *fake.manners.lock().unwrap() = vec![BlobAnswer::Gone];
    blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
    assert_eq!(fs::read(ground.cache.path(Digest::of(&layer))).unwrap(), layer);
}

#[test]
fn without_the_network_the_cache_is_enough_or_the_failure_says_what_is_missing() {
    let mut fake = FakeRegistry::default();
    fake.image("a.b/c:1", &[&large(1)]);
    let ground = ground();
    let pins = pinned(&["a.b/c:1"], &fake, &ground.cache).unwrap();
    let error = documents(&pins, "amd64", &OfflineRegistry, &super::tests::ground().cache, 1).unwrap_err();
    assert!(class_of(&error) == Class::Network && render(&error).contains("a.b/c:1"), "{}", render(&error));
    documents(&pins, "amd64", &fake, &ground.cache, 1).unwrap();
    let images = documents(&pins, "amd64", &OfflineRegistry, &ground.cache, 1).unwrap();
    assert!(blobs(&images, &OfflineRegistry, &ground.cache, 1, &Progress::silent()).is_err());
    blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
    blobs(&images, &OfflineRegistry, &ground.cache, 1, &Progress::silent()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn however_often_it_breaks_off_a_blob_is_whole_or_absent(
        manners in prop::collection::vec((0_u8..4, 0_usize..60_000), 0..6),
    ) {
        let mut fake = FakeRegistry::default();
        let layer = large(1);
        fake.image("a.b/c:1", &[&layer]);
        let ground = ground();
        let images =
            documents(&pinned(&["a.b/c:1"], &fake, &ground.cache).unwrap(), "amd64", &fake, &ground.cache, 1).unwrap();
        *fake.manners.lock().unwrap() = manners.iter().map(|(kind, place)| match kind {
            0 => BlobAnswer::Cut(*place),
            1 => BlobAnswer::Corrupt(*place),
            2 => BlobAnswer::Gone,
            _ => BlobAnswer::Good,
        }).collect();
        let path = ground.cache.path(Digest::of(&layer));
        for _ in 0..=manners.len() {
            let done = blobs(&images, &fake, &ground.cache, 1, &Progress::silent());
            prop_assert!(!path.exists() || fs::read(&path).unwrap() == layer);
            if done.is_ok() {
                break;
            }
        }
        blobs(&images, &fake, &ground.cache, 1, &Progress::silent()).unwrap();
        prop_assert!(fs::read(&path).unwrap() == layer);
    }
}
