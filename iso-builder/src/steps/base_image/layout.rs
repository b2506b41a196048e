//! OCI layouts: finds the image, and its layers in order (image-spec 1.1, `image-layout.md`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use formats::oci::{
    Descriptor, Document, ImageIndex, ImageManifest, LayerCompression, Platform, ResolveImageError,
    resolve_image,
};
use model::architecture::Architecture;
use serde::de::DeserializeOwned;

use super::super::limit::long;
use super::super::request::StepRequest;
use super::super::tree::Tree;
use super::archive;
use super::unreadable::unreadable;
use crate::images::import::{MAX_DOCUMENT_BYTES, retain_platform};

/// The annotation with an image's name.
const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";

fn name(descriptor: &Descriptor) -> Option<&str> {
    descriptor.annotations.get(NAME_ANNOTATION).map(String::as_str)
}

pub(super) fn unpack(request: &StepRequest, path: &Path, reference: Option<&str>, tree: &Tree) -> Result<()> {
    for layer in layers(path, reference, request.architecture, &request.scratch)? {
        archive::unpack(&layer, tree, &request.scratch, archive::ArchiveUse::Layer).with_context(|| {
            let name = layer.file_name().unwrap_or_default().to_string_lossy();
            format!("applying the layer {name} of {}", path.display())
        })?;
    }
    Ok(())
}

/// The files of an image's layers, lowest first. An archived layout is unpacked into `scratch`.
pub(crate) fn layers(
    path: &Path,
    reference: Option<&str>,
    architecture: Architecture,
    scratch: &Path,
) -> Result<Vec<PathBuf>> {
    let layout = if path.is_dir() { path.to_owned() } else { unpack_archive(path, scratch)? };
    let bytes = files::read_at_most(&layout.join("index.json"), MAX_DOCUMENT_BYTES)
        .map_err(|error| no_layout(path, &layout, error))?;
    let index: ImageIndex = parse(&bytes, "index.json", path)?;
    let image = Image { path, layout: &layout, architecture };
    let manifest = image.resolve(&choose(index, reference, architecture, path)?)?;
    let platform: Platform = parse(&image.bytes(&manifest.config)?, "configuration", path)?;
    if !platform.is_of(architecture.debian()) {
        return Err(other_platform(path, architecture, &format!("it is for {platform}")));
    }
    let file = |layer: &Descriptor| match LayerCompression::of_type(&layer.media_type).is_some() {
        true => image.blob(&layer.digest),
        false => Err(unknown_layer(path, layer)),
    };
    manifest.layers.iter().map(file).collect()
}

/// Unpacks an archived layout. The owners of its files do not matter, and an ordinary user could not set them.
fn unpack_archive(path: &Path, scratch: &Path) -> Result<PathBuf> {
    let directory = scratch.join("layout");
    files::make_directory(&directory, 0o755)?;
    let tar = long(Invocation::new("tar")).args(["--extract", "--no-same-owner", "--no-same-permissions"]);
    let tar = tar.arg("--file").arg(path).arg("--directory").arg(&directory);
    SystemRunner.run(&tar).map_err(|error| unreadable(path, "OCI archive", error))?;
    Ok(directory)
}

fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str, path: &Path) -> Result<T> {
    let parsed = serde_json::from_slice(bytes).with_context(|| format!("reading its {what}"));
    parsed.map_err(|error| unreadable(path, "OCI layout", error))
}

fn no_layout(path: &Path, layout: &Path, error: anyhow::Error) -> anyhow::Error {
    let failure = Failure::new(Class::Invalid, format!("{} is not a readable OCI layout", path.display()));
    let hint = if layout.join("manifest.json").exists() || layout.join("repositories").exists() {
        "This is an archive in Docker's own form; convert it: skopeo copy docker-archive:FILE oci-archive:NEW"
    } else if layout.join("usr").exists() {
        "This is a root file system; name it in base.archive or base.directory."
    } else {
        "An OCI layout has index.json at its top; `skopeo copy` makes one."
    };
    failure.because(error).hint(hint).into()
}

fn other_platform(path: &Path, architecture: Architecture, why: &str) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("{} has no image for linux/{architecture}", path.display()))
        .because(anyhow::anyhow!("{why}"))
        .hint(format!(
            "Copy the image of that platform: skopeo copy --override-arch {architecture} --override-os linux …"
        ))
        .into()
}

fn unknown_layer(path: &Path, layer: &Descriptor) -> anyhow::Error {
    let what = format!("{} has a layer that cannot be unpacked", path.display());
    Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("the layer {} is of the type {:?}", layer.digest, layer.media_type))
        .hint("Name an image whose layers are tar archives: plain, gzip or zstd, and not encrypted.")
        .into()
}

/// Chooses the image: by its name, and among several of that name by its platform.
fn choose(
    index: ImageIndex,
    reference: Option<&str>,
    architecture: Architecture,
    path: &Path,
) -> Result<Descriptor> {
    let names: Vec<String> = index.manifests.iter().filter_map(name).map(str::to_owned).collect();
    let meant = |d: &Descriptor| reference.is_none() || name(d) == reference;
    let mut matching: Vec<Descriptor> = index.manifests.into_iter().filter(meant).collect();
    retain_platform(&mut matching, architecture.debian());
    if matching.len() == 1
        && let Some(only) = matching.pop()
    {
        return Ok(only);
    }
    let names = if names.is_empty() {
        "it names none".to_owned()
    } else {
        format!("its names are: {}", names.join(", "))
    };
    Err(Failure::new(Class::Invalid, format!("the image in {} cannot be chosen", path.display()))
        .because(anyhow::anyhow!("{} images match; {names}", matching.len()))
        .hint("Name one of them in base.oci.reference.")
        .into())
}

/// A layout, its path in messages, and the architecture of the image that is taken from it.
struct Image<'a> {
    path: &'a Path,
    layout: &'a Path,
    architecture: Architecture,
}

impl Image<'_> {
    /// Reads a manifest, through an index of platforms if there is one.
    fn resolve(&self, descriptor: &Descriptor) -> Result<ImageManifest> {
        let read = |descriptor: &Descriptor| Ok((self.document(descriptor)?, ()));
        let resolved = resolve_image(read(descriptor)?, self.architecture.debian(), read);
        resolved.map(|resolved| resolved.manifest).map_err(|error| match error {
            ResolveImageError::Platform { .. } => {
                other_platform(self.path, self.architecture, &error.to_string())
            }
            ResolveImageError::Read(error) => error,
            ResolveImageError::Depth | ResolveImageError::Siblings => {
                unreadable(self.path, "OCI layout", error.into())
            }
        })
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Document> {
        let document = Document::parse(&self.bytes(descriptor)?, &descriptor.media_type);
        let document = document.with_context(|| format!("reading {}", descriptor.digest.oci()));
        document.map_err(|error| unreadable(self.path, "OCI layout", error))
    }

    fn bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let bytes = files::read_at_most(&self.blob(&descriptor.digest)?, MAX_DOCUMENT_BYTES);
        bytes.map_err(|error| unreadable(self.path, "OCI layout", error))
    }

    /// The file of a blob, after comparing its content with its digest.
    fn blob(&self, digest: &Digest) -> Result<PathBuf> {
        let file = self.layout.join("blobs/sha256").join(digest.to_string());
        let why = match crate::files::digest_of_file(&file) {
            Ok((found, _)) if found == *digest => return Ok(file),
            Ok((found, _)) => anyhow::anyhow!("its digest is {found}"),
            Err(error) => error,
        };
        let what = format!("the blob {digest} of {} is damaged or missing", self.path.display());
        Err(Failure::new(Class::Verification, what)
            .because(why)
            .hint("Make the layout again, for instance with `skopeo copy`.")
            .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(manifests: &str) -> ImageIndex {
        serde_json::from_str(&format!(r#"{{"manifests": [{manifests}]}}"#)).unwrap()
    }

    fn entry(digit: char, name: &str, architecture: &str) -> String {
        let digest = digit.to_string().repeat(64);
        format!(
            r#"{{"digest": "sha256:{digest}", "size": 1, "annotations": {{"{NAME_ANNOTATION}": "{name}"}},
                "platform": {{"os": "linux", "architecture": "{architecture}"}}}}"#
        )
    }

    #[test]
    fn among_several_platforms_ours_is_meant_and_among_several_names_the_reference() {
        let all = [entry('1', "a", "arm64"), entry('2', "a", "amd64"), entry('3', "b", "amd64")].join(",");
        let chosen = |reference, architecture| {
            let chosen = choose(index(&all), reference, architecture, Path::new("x"));
            chosen.map(|descriptor| descriptor.digest.to_string())
        };
        assert!(chosen(Some("a"), Architecture::Amd64).unwrap().starts_with('2'));
        assert!(chosen(Some("a"), Architecture::Arm64).unwrap().starts_with('1'));
        assert!(chosen(Some("b"), Architecture::Amd64).unwrap().starts_with('3'));
        let told = base::failure::render(&chosen(None, Architecture::Amd64).unwrap_err());
        assert!(told.contains("2 images match; its names are: a, a, b"), "{told}");
        assert!(choose(index(""), None, Architecture::Amd64, Path::new("x")).is_err());
    }
}
