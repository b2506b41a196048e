//! Releases whose manifest gives lengths that no medium has, as every command that reads one meets them.

use std::fs;
use std::path::Path;

use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use base::size::ByteSize;
use medium::artifact::{ArtifactForm, ArtifactReference, ReleaseArtifact};
use medium::payload_sources::open_release;
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::release::{MANIFEST, Release};
use proptest::prelude::*;
use transfer::registry::{Client, Settings};

use super::{pull, push};
use crate::media::finished::verify::verify;
use trust::TrustStore;

/// A release in which the length with this number is `size`: a payload's, the El Torito image's or the expanded image's.
fn with_size(number: usize, size: u64) -> Release {
    let mut release = testing::iso::release();
    let payloads = release.payloads.len();
    match (number % (payloads + 2)).checked_sub(payloads) {
        None => release.payloads[number % (payloads + 2)].size = size,
        Some(0) => release.iso.as_mut().unwrap().bios.as_mut().unwrap().eltorito_size = size,
        Some(_) => release.expanded.size = size,
    }
    release
}

/// A layout in `directory` with this `release.json`, in a manifest that gives its layers the lengths of `described`.
fn layout(directory: &Path, release: &[u8], described: &Release) -> ArtifactReference {
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let manifest =
        ReleaseArtifact::new(described, (release, None), true, &[]).manifest(ArtifactForm::Artifact).unwrap();
    for bytes in [release, &manifest] {
        fs::write(blobs.join(Digest::of(bytes).to_string()), bytes).unwrap();
    }
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": Digest::of(&manifest).oci(),
        "size": manifest.len(), "annotations": { "org.opencontainers.image.ref.name": "1" },
    }]});
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    fs::write(directory.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    format!("oci:{}:1", directory.display()).parse().unwrap()
}

/// The result of each command on the release: verifying, pushing, pulling, and reading it for an install.
fn commands(release: &Release, described: &Release) -> Vec<anyhow::Result<()>> {
    let directory = tempfile::tempdir().unwrap();
    let (tree, bytes) = (directory.path().join("tree"), release.to_bytes());
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(MANIFEST), &bytes).unwrap();
    let client = Client::new(Settings::default()).unwrap();
    let target = format!("oci:{}:1", directory.path().join("pushed").display()).parse().unwrap();
    let artifact = layout(&directory.path().join("layout"), &bytes, described);
    let (silent, output) = (Progress::silent(), directory.path().join("pulled"));
    vec![
        MediumReader::open_for_verification(&tree)
            .and_then(|medium| verify(&medium, &TrustStore::absent(), &silent))
            .map(drop),
        push(&tree, &TrustStore::absent(), &[], &target, &client, 1, &silent).map(drop),
        pull(&artifact, Architecture::Amd64, &TrustStore::absent(), &client, (&output, None), 1, &silent)
            .map(drop),
        open_release(&artifact, Architecture::Amd64, &client, &TrustStore::absent()).map(drop),
    ]
}

fn hostile() -> impl Strategy<Value = u64> {
    let limit = ByteSize::LARGEST_FILE.get();
    prop_oneof![Just(limit + 1), Just(u64::MAX), Just(u64::MAX / 2), u64::MAX - 4096.., limit + 1..]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_command_refuses_a_manifest_with_a_length_that_no_medium_has(
        number in 0_usize..64, size in hostile(), described in any::<bool>(),
    ) {
        let release = with_size(number, size);
        let said = if described { release.clone() } else { testing::iso::release() };
        for result in commands(&release, &said) {
            let error = result.unwrap_err();
            let text = render(&error);
            prop_assert!(matches!(class_of(&error), Class::Verification | Class::Invalid), "{}", text);
            prop_assert!(text.contains("the limit is 1 TiB"), "{}", text);
        }
    }

    #[test]
    fn no_command_panics_at_lengths_up_to_the_limit(
        numbers in prop::collection::vec(0_usize..64, 1..6), size in 0..=ByteSize::LARGEST_FILE.get(),
    ) {
        let mut release = testing::iso::release();
        for number in numbers {
            let part = with_size(number, size);
            for (payload, changed) in release.payloads.iter_mut().zip(&part.payloads) {
                payload.size = payload.size.max(changed.size);
            }
            release.iso = part.iso.or(release.iso);
            release.expanded.size = release.expanded.size.max(part.expanded.size);
        }
        for result in commands(&release, &release) {
            // A release whose payloads are missing may still be opened.
            if let Err(error) = result {
                prop_assert!(class_of(&error) != Class::Unexpected, "{}", render(&error));
            }
        }
    }
}
