//! Writes and reads the manifest of a release as an artifact, without input or output.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use formats::oci::{ArtifactManifest, Descriptor, media_types as oci};
use jiff::Timestamp;
use model::release::{MANIFEST, Purpose, Release, SIGNATURES};

use super::boot_code::BootCodePart;
use super::media_types::{self, RELEASE};
use crate::patches::{FROM, ReleasePatch};

const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";
const CREATED: &str = "org.opencontainers.image.created";

/// The form of the manifest. Newer registries accept all, older ones only forms that they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArtifactForm {
    /// With `artifactType`.
    Artifact,
    /// Without it: the media type of the configuration says what it is, as before the specification 1.1.
    Config,
    /// As a container image: `release.json` is the first layer, and configuration and layers have the media types of those of
    /// images.
    Image,
}

impl ArtifactForm {
    /// All forms, the preferred one first.
    pub const ALL: [Self; 3] = [Self::Artifact, Self::Config, Self::Image];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactLayer {
    /// Its path in a directory with the content of the medium.
    pub path: String,
    pub media_type: &'static str,
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
    /// Only of a patch: the root hash of the OS image that it applies to.
    pub from: Option<Digest>,
}

/// A release as it goes into a registry.
#[derive(Debug)]
pub struct ReleaseArtifact<'a> {
    release: &'a Release,
    /// `release.json`.
    config: Descriptor,
    layers: Vec<ArtifactLayer>,
}

impl<'a> ReleaseArtifact<'a> {
    /// The release with the manifest `bytes` and these signatures of it. `boot_code`: include the boot code for ISOs.
    #[must_use]
    pub fn new(
        release: &'a Release,
        (bytes, signatures): (&[u8], Option<&[u8]>),
        boot_code: bool,
        patches: &[ReleasePatch],
    ) -> Self {
        let payloads = release.carried_payloads().map(|payload| ArtifactLayer {
            path: payload.path.clone(),
            media_type: media_types::of(payload.purpose),
            digest: payload.sha256,
            size: payload.size,
            from: None,
        });
        let code = release.iso.iter().filter_map(|iso| iso.bios.as_ref()).filter(|_| boot_code);
        let code = code.flat_map(BootCodePart::of);
        let code = code.map(|part| ArtifactLayer {
            path: part.path.to_owned(),
            media_type: media_types::BOOT_CODE,
            digest: part.sha256,
            size: part.size,
            from: None,
        });
        let patches = patches.iter().map(|patch| ArtifactLayer {
            path: patch.path.clone(),
            media_type: media_types::of(Purpose::Patch),
            digest: patch.sha256,
            size: patch.size,
            from: Some(patch.from),
        });
        // The last layer, so that signing a release changes nothing before it.
        let signatures = signatures.map(|text| ArtifactLayer {
            path: SIGNATURES.to_owned(),
            media_type: media_types::SIGNATURES,
            digest: Digest::of(text),
            size: text.len() as u64,
            from: None,
        });
        let mut known = BTreeSet::new();
        let layers = payloads.chain(code).chain(patches).chain(signatures);
        let layers = layers.filter(|layer| known.insert(layer.digest)).collect();
        let config = descriptor(RELEASE, Digest::of(bytes), bytes.len() as u64, None);
        Self { release, config, layers }
    }

    /// The blobs beside `release.json`, each digest once.
    #[must_use]
    pub fn layers(&self) -> &[ArtifactLayer] {
        &self.layers
    }

    /// The configuration document, if this form has another one than `release.json`.
    pub fn stand_in(&self, form: ArtifactForm) -> Result<Option<Vec<u8>>> {
        if form != ArtifactForm::Image {
            return Ok(None);
        }
        let layers = [self.config.digest].into_iter().chain(self.layers.iter().map(|layer| layer.digest));
        let layers: Vec<_> = layers.map(|digest| digest.oci()).collect();
        let config = serde_json::json!({
            "architecture": self.release.architecture, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": layers },
        });
        Ok(Some(serde_json::to_vec(&config)?))
    }

    /// The artifact's manifest. The same release gives the same bytes.
    pub fn manifest(&self, form: ArtifactForm) -> Result<Vec<u8>> {
        let layers = self.layers.iter().map(|layer| {
            let media_type = if form == ArtifactForm::Image { oci::OCI_LAYER } else { layer.media_type };
            let mut descriptor = descriptor(media_type, layer.digest, layer.size, Some(&layer.path));
            let from = layer.from.map(|from| (FROM.to_owned(), from.to_string()));
            descriptor.annotations.extend(from);
            descriptor
        });
        let mut manifest = match self.stand_in(form)? {
            Some(config) => {
                let config = descriptor(oci::OCI_CONFIG, Digest::of(&config), config.len() as u64, None);
                let release =
                    descriptor(oci::OCI_LAYER, self.config.digest, self.config.size, Some(MANIFEST));
                ArtifactManifest::new(config, [release].into_iter().chain(layers).collect())
            }
            None => ArtifactManifest::new(self.config.clone(), layers.collect()),
        };
        manifest.artifact_type = (form == ArtifactForm::Artifact).then(|| RELEASE.to_owned());
        let Release { name, version, epoch, .. } = self.release;
        let created = i64::try_from(*epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
        let created = created.context("the time of the release is out of range")?.to_string();
        let title = format!("{name} {version}");
        manifest.annotations = [(TITLE, title), (VERSION, version.clone()), (CREATED, created)]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        Ok(manifest.to_bytes()?)
    }
}

/// A parsed manifest of an artifact.
#[derive(Debug)]
pub struct ReadArtifact {
    /// `release.json`.
    pub release: Descriptor,
    /// The digests of the other blobs.
    pub layers: BTreeSet<Digest>,
    pub patches: Vec<ReleasePatch>,
    /// The signatures of `release.json`; none if the release is unsigned.
    pub signatures: Option<Descriptor>,
}

/// Reads the manifest `bytes` of an artifact that `named` names.
///
/// # Errors
/// [`Class::Invalid`] where it is something else than a release.
pub fn read(bytes: &[u8], named: &str) -> Result<ReadArtifact> {
    let what = || format!("reading the manifest of {named}");
    let manifest = ArtifactManifest::parse(bytes).class(Class::Invalid, what)?;
    let layers = manifest.layers.iter().map(|layer| layer.digest).collect();
    let patches = manifest.layers.iter().filter_map(ReleasePatch::of_layer).collect();
    let titled = |name: &str| {
        let is_titled = |layer: &&Descriptor| layer.annotations.get(TITLE).is_some_and(|title| title == name);
        manifest.layers.iter().find(is_titled).cloned()
    };
    let signatures = titled(SIGNATURES);
    let kind = manifest.config.media_type.clone();
    let release = match kind == RELEASE {
        true => Some(manifest.config.clone()),
        false => titled(MANIFEST),
    };
    let release = release.ok_or_else(|| {
        let kind: String = kind.chars().filter(|c| !c.is_control()).take(200).collect();
        Failure::new(Class::Invalid, format!("{named} is not a release"))
            .because(anyhow::anyhow!("its configuration is {kind:?}"))
            .hint("Name what `iso-builder push` published.")
    })?;
    Ok(ReadArtifact { release, layers, patches, signatures })
}

fn descriptor(media_type: &str, digest: Digest, size: u64, title: Option<&str>) -> Descriptor {
    let annotations: BTreeMap<_, _> =
        title.iter().map(|title| (TITLE.to_owned(), (*title).to_owned())).collect();
    Descriptor { media_type: media_type.to_owned(), digest, size, annotations, platform: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use model::release::MediumKind;
    use serde_json::Value;

    #[test]
    fn every_form_leads_back_to_the_release_and_has_every_payload_once() {
        let mut release = testing::iso::release();
        let mut twin = release.payloads[0].clone();
        twin.path = "EFI/debian/copy.efi".into();
        release.payloads.push(twin);
        let bytes = release.to_bytes();
        let patch = ReleasePatch::new(Digest::of(b"the image before"), 9, Digest::of(b"a patch"));
        let text = b"untrusted comment: a\n";
        let patches = std::slice::from_ref(&patch);
        let artifact = ReleaseArtifact::new(&release, (&bytes, Some(text)), true, patches);
        // Of 16 payloads two are the same; two pieces of boot code, a patch, and the signatures.
        assert_eq!(artifact.layers().len(), 19);
        let unsigned = ReleaseArtifact::new(&release, (&bytes, None), true, patches);
        assert_eq!(artifact.layers()[..18], *unsigned.layers());
        for form in ArtifactForm::ALL {
            let manifest = artifact.manifest(form).unwrap();
            let found = read(&manifest, "a.b/c:1").unwrap();
            let signatures = found.signatures.unwrap();
            assert_eq!(
                (signatures.digest, signatures.size),
                (Digest::of(text), text.len() as u64),
                "{form:?}"
            );
            let layers = serde_json::from_slice::<Value>(&manifest).unwrap()["layers"].clone();
            let last = layers.as_array().unwrap().last().unwrap();
            assert_eq!(last["annotations"][TITLE], SIGNATURES, "{form:?}");
            assert_eq!(last["mediaType"] == media_types::SIGNATURES, form != ArtifactForm::Image);
            let bare = unsigned.manifest(form).unwrap();
            assert_eq!(read(&bare, "a.b/c:1").unwrap().signatures, None, "{form:?}");
            assert_eq!((found.release.digest, found.release.size), (Digest::of(&bytes), bytes.len() as u64));
            assert!(artifact.layers().iter().all(|layer| found.layers.contains(&layer.digest)), "{form:?}");
            assert_eq!(found.patches, std::slice::from_ref(&patch), "{form:?}");
        }
    }

    #[test]
    fn the_manifest_says_what_the_artifact_is_and_carries_the_time_of_the_release() {
        let release = testing::release::release();
        let bytes = release.to_bytes();
        let artifact = ReleaseArtifact::new(&release, (&bytes, None), false, &[]);
        let manifest: Value =
            serde_json::from_slice(&artifact.manifest(ArtifactForm::Artifact).unwrap()).unwrap();
        assert_eq!(manifest["artifactType"], RELEASE);
        assert_eq!(manifest["config"]["digest"], Digest::of(&bytes).oci());
        assert_eq!(manifest["annotations"][CREATED], "2023-11-14T22:13:20Z");
        assert_eq!(manifest["annotations"][VERSION], "0.1.0");
        assert_eq!(manifest["layers"][5]["annotations"][TITLE], "live/rootfs.squashfs");
        assert_eq!(manifest["layers"][5]["mediaType"], "application/vnd.nqrust.root.v1.squashfs");
        let image: Value = serde_json::from_slice(&artifact.manifest(ArtifactForm::Image).unwrap()).unwrap();
        assert_eq!(image["config"]["mediaType"], oci::OCI_CONFIG);
        assert_eq!(image.get("artifactType"), None);
    }

    #[test]
    fn what_a_net_install_leaves_to_the_network_is_not_in_the_artifact() {
        let release = Release { medium: MediumKind::NetInstall, ..testing::release::release() };
        let artifact = ReleaseArtifact::new(&release, (b"", None), false, &[]);
        assert!(artifact.layers().iter().all(|layer| !layer.path.starts_with("images/blobs/")));
        assert_eq!(artifact.layers().len(), 12);
    }

    #[test]
    fn a_container_image_is_no_release() {
        let image =
            br#"{"schemaVersion": 2, "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "size": 0},
            "layers": []}"#;
        let error = read(image, "a.b/c:1").unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(format!("{error:#}").contains("a.b/c:1 is not a release"), "{error:#}");
    }
}
