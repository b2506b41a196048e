//! Resolves a reference to the manifest for a machine; indexes are followed as containerd follows them.

use super::document::{Descriptor, Document, ImageIndex, ImageManifest};

/// Indexes inside indexes beyond this are refused; real images have one or two.
const MAX_INDEXES: usize = 8;
/// Images of one index for one platform beyond this are refused.
const MAX_SIBLINGS: usize = 32;

impl ImageIndex {
    /// The manifest or inner index for Linux on `architecture` (Go's name). Of several that fit the first counts, as it does for
    /// containerd. One that names no platform may be for any: it counts where no other fits, and the image's configuration
    /// decides.
    #[must_use]
    pub fn choose(&self, architecture: &str) -> Option<&Descriptor> {
        let is_named = |manifest: &&Descriptor| manifest.platform.is_some();
        self.needed(architecture).find(is_named).or_else(|| self.needed(architecture).next())
    }

    /// The documents that containerd reads while it imports the index: each that fits or names no platform.
    fn needed(&self, architecture: &str) -> impl Iterator<Item = &Descriptor> {
        self.manifests.iter().filter(move |manifest| match &manifest.platform {
            Some(platform) => platform.is_baseline_of(architecture),
            None => manifest.is_manifest() || manifest.is_index(),
        })
    }

    /// The platforms that there are, for a message.
    #[must_use]
    pub fn platforms(&self) -> Vec<String> {
        let platforms = self.manifests.iter().filter_map(|manifest| manifest.platform.as_ref());
        platforms.filter(|platform| platform.os != "unknown").map(ToString::to_string).collect()
    }
}

/// The image that a reference leads to on one kind of machine. `B` is what the reader knows of each document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedImage<B> {
    /// The indexes on the way, outermost first.
    pub indexes: Vec<B>,
    pub manifest: ImageManifest,
    /// The reader's result for the manifest.
    pub document: B,
    /// Other documents of the indexes that containerd reads while it imports them. Nothing that they name is needed.
    pub siblings: Vec<B>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveImageError {
    /// An index has nothing for the machine; its platforms.
    #[error("there is no image for linux/{architecture}; {}", there(.platforms))]
    Platform { architecture: String, platforms: Vec<String> },
    #[error("more than {MAX_INDEXES} indexes are inside each other")]
    Depth,
    #[error("its indexes list more than {MAX_SIBLINGS} other images for the platform")]
    Siblings,
    /// Reading a document.
    #[error(transparent)]
    Read(anyhow::Error),
}

fn there(platforms: &[String]) -> String {
    match platforms.is_empty() {
        true => "its index names no platform".to_owned(),
        false => format!("its platforms are: {}", platforms.join(", ")),
    }
}

/// Follows indexes from the document `top` to the manifest for Linux on `architecture`, as containerd does: it never turns back
/// from an inner index that has nothing. `read` reads the document of a descriptor.
///
/// # Errors
/// Nothing fits, there are more than [`MAX_INDEXES`] indexes or [`MAX_SIBLINGS`] other documents, or `read` fails.
pub fn resolve_image<B>(
    top: (Document, B),
    architecture: &str,
    mut read: impl FnMut(&Descriptor) -> anyhow::Result<(Document, B)>,
) -> Result<ResolvedImage<B>, ResolveImageError> {
    let (mut indexes, mut siblings, mut current) = (Vec::new(), Vec::new(), top);
    loop {
        let (index, document) = match current {
            (Document::Manifest(manifest), document) => {
                return Ok(ResolvedImage { indexes, manifest, document, siblings });
            }
            (Document::Index(index), document) => (index, document),
        };
        if indexes.len() == MAX_INDEXES {
            return Err(ResolveImageError::Depth);
        }
        indexes.push(document);
        let chosen = index.choose(architecture).ok_or_else(|| ResolveImageError::Platform {
            architecture: architecture.to_owned(),
            platforms: index.platforms(),
        })?;
        let mut others: Vec<Descriptor> =
            index.needed(architecture).filter(|other| other.digest != chosen.digest).cloned().collect();
        while let Some(other) = others.pop() {
            if siblings.len() == MAX_SIBLINGS {
                return Err(ResolveImageError::Siblings);
            }
            let (read, document) = read(&other).map_err(ResolveImageError::Read)?;
            siblings.push(document);
            if let Document::Index(inner) = read {
                others.extend(inner.needed(architecture).cloned());
            }
        }
        current = read(chosen).map_err(ResolveImageError::Read)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::media_types::{OCI_INDEX, OCI_MANIFEST};
    use super::*;
    use base::digest::Digest;
    use serde_json::json;

    /// An entry of an index: its media type and platform, written `OS/ARCHITECTURE[/VARIANT]`.
    fn entry(media_type: &str, platform: Option<&str>) -> serde_json::Value {
        let platform = platform.map(|text| {
            let words: Vec<_> = text.split('/').collect();
            match words[..] {
                [os, architecture, variant] => {
                    json!({ "os": os, "architecture": architecture, "variant": variant })
                }
                _ => json!({ "os": words[0], "architecture": words[1] }),
            }
        });
        json!({ "mediaType": media_type, "digest": Digest::of(b"x").oci(), "size": 3, "platform": platform })
    }

    fn index(platforms: &[Option<&str>]) -> ImageIndex {
        let manifests: Vec<_> = platforms.iter().map(|platform| entry(OCI_MANIFEST, *platform)).collect();
        serde_json::from_value(json!({ "manifests": manifests })).unwrap()
    }

    #[test]
    fn of_several_variants_the_one_that_every_machine_runs_is_taken() {
        for (platforms, architecture, expected) in [
            (&["linux/amd64/v3", "linux/amd64"][..], "amd64", Some(1)),
            (&["linux/amd64/v2", "linux/amd64/v1", "linux/amd64"], "amd64", Some(1)),
            (&["linux/amd64/v2", "linux/amd64/v1"], "amd64", Some(1)),
            (&["linux/amd64", "linux/amd64/v3"], "amd64", Some(0)),
            (&["linux/amd64/v3", "linux/amd64/v2"], "amd64", None),
            (&["windows/amd64", "linux/x86_64"], "amd64", Some(1)),
            (&["linux/arm64/v9", "linux/arm64/v8"], "arm64", Some(1)),
            (&["linux/arm/v7", "linux/aarch64"], "arm64", Some(1)),
            (&["unknown/unknown", "linux/arm64"], "amd64", None),
        ] {
            let index = index(&platforms.iter().map(|platform| Some(*platform)).collect::<Vec<_>>());
            let expected = expected.map(|at: usize| &index.manifests[at]);
            assert_eq!(index.choose(architecture), expected, "{platforms:?}");
        }
        let index = index(&[Some("unknown/unknown"), Some("linux/arm64"), Some("windows/amd64")]);
        assert_eq!(index.platforms(), ["linux/arm64", "windows/amd64"]);
    }

    #[test]
    fn a_manifest_that_names_no_platform_counts_where_no_other_fits() {
        let artifact = entry("application/json", None);
        let manifests = [artifact, entry(OCI_MANIFEST, Some("linux/arm64")), entry(OCI_MANIFEST, None)];
        let index: ImageIndex = serde_json::from_value(json!({ "manifests": manifests })).unwrap();
        assert_eq!(index.choose("arm64"), index.manifests.get(1));
        assert_eq!(index.choose("amd64"), index.manifests.get(2));
    }

    #[test]
    fn other_images_for_the_platform_come_along_as_documents() {
        let manifests: Vec<_> = ["linux/amd64/v3", "linux/amd64/v1", "linux/amd64", "linux/arm64"]
            .iter()
            .enumerate()
            .map(|(at, platform)| {
                let mut entry = entry(OCI_MANIFEST, Some(platform));
                entry["digest"] = Digest::of(&[at as u8]).oci().into();
                entry
            })
            .collect();
        let index: ImageIndex = serde_json::from_value(json!({ "manifests": manifests })).unwrap();
        let manifest: ImageManifest =
            serde_json::from_value(json!({ "config": entry("c", None), "layers": [] })).unwrap();
        let top = (Document::Index(index.clone()), Digest::of(b"top"));
        let resolved = resolve_image(top, "amd64", |descriptor| {
            Ok((Document::Manifest(manifest.clone()), descriptor.digest))
        });
        let resolved = resolved.unwrap();
        assert_eq!(resolved.document, index.manifests[1].digest);
        assert_eq!(resolved.siblings, [index.manifests[2].digest]);
    }

    #[test]
    fn inner_indexes_are_followed_and_a_circle_ends() {
        let inner: ImageIndex =
            serde_json::from_value(json!({ "manifests": [entry(OCI_INDEX, Some("linux/amd64"))] })).unwrap();
        let config = entry("c", None);
        let manifest = json!({ "config": config, "layers": [] });
        let manifest: ImageManifest = serde_json::from_value(manifest).unwrap();
        let mut left = 2;
        let resolved = resolve_image((Document::Index(inner.clone()), 0), "amd64", |_| {
            left -= 1;
            Ok(match left {
                0 => (Document::Manifest(manifest.clone()), 2),
                _ => (Document::Index(inner.clone()), 1),
            })
        });
        let resolved = resolved.unwrap();
        assert_eq!((resolved.indexes, resolved.document, resolved.siblings), (vec![0, 1], 2, vec![]));
        let circle = |_: &Descriptor| Ok((Document::Index(inner.clone()), 0));
        let error = resolve_image((Document::Index(inner.clone()), 0), "amd64", circle).unwrap_err();
        assert!(matches!(error, ResolveImageError::Depth));
        let error = resolve_image((Document::Index(inner.clone()), 0), "arm64", circle).unwrap_err();
        assert_eq!(error.to_string(), "there is no image for linux/arm64; its platforms are: linux/amd64");
    }
}
