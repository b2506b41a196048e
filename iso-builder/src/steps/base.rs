//! `base.tar` from something that is a root file system already: an OCI image, an archive, a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use installer::command::{Invocation, Runner, SystemRunner};
use installer::digest::Digest;
use installer::failure::{Class, Failure};
use installer::files;
use serde::{Deserialize, Serialize};

use super::Request;
use super::packages::long;
use super::tree::Tree;

/// Where a base comes from. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An OCI layout (directory or tar archive), and which of its images.
    Oci(PathBuf, Option<String>),
    /// A tar archive.
    Archive(PathBuf),
    /// A directory.
    Directory(PathBuf),
}

/// Makes `base.tar`.
pub(super) fn import(request: &Request, source: &Source) -> Result<()> {
    let tree = Tree::empty(&request.scratch)?;
    match source {
        Source::Archive(path) => {
            tree.extract(path, &[]).map_err(|error| not_a(path, "tar archive", error))?
        }
        Source::Directory(path) => copy(path, &tree)?,
        Source::Oci(path, reference) => unpack_image(request, path, reference.as_deref(), &tree)?,
    }
    if !tree.path("usr").is_dir() || !tree.path("etc").is_dir() {
        return Err(Failure::new(
            Class::Invalid,
            format!("{} holds no root file system", source.path().display()),
        )
        .hint("A base has at least /usr and /etc at its top.")
        .into());
    }
    tree.pack(&request.out.join("base.tar"), request.epoch)
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::Oci(path, _) | Self::Archive(path) | Self::Directory(path) => path,
        }
    }
}

fn not_a(path: &Path, what: &str, error: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("{} is not a readable {what}", path.display())).because(error).into()
}

fn copy(directory: &Path, tree: &Tree) -> Result<()> {
    let mut from = directory.as_os_str().to_owned();
    from.push("/.");
    let cp = long(Invocation::new("cp")).args(["--archive", "--reflink=auto"]).arg(from).arg(tree.root());
    SystemRunner.run(&cp).with_context(|| format!("copying {}", directory.display()))?;
    Ok(())
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: Digest,
    #[serde(default, rename = "mediaType")]
    media_type: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// Unpacks the layers of an image in an OCI layout (image-spec 1.1, `image-layout.md` and `layer.md`).
fn unpack_image(request: &Request, path: &Path, reference: Option<&str>, tree: &Tree) -> Result<()> {
    let layout = if path.is_dir() {
        path.to_owned()
    } else {
        let directory = request.scratch.join("layout");
        files::make_directory(&directory, 0o755)?;
        let tar = long(Invocation::new("tar")).arg("--extract").arg("--file").arg(path);
        SystemRunner
            .run(&tar.arg("--directory").arg(&directory))
            .map_err(|error| not_a(path, "OCI archive", error))?;
        directory
    };
    let index = files::read_at_most(&layout.join("index.json"), 4 << 20)
        .map_err(|error| not_a(path, "OCI layout", error))?;
    let index: Index = serde_json::from_slice(&index).context("reading index.json")?;
    let manifest = resolve(&layout, choose(index, reference, path)?)?;
    for layer in &manifest.layers {
        apply_layer(&blob_path(&layout, &layer.digest)?, tree)
            .with_context(|| format!("applying the layer {}", layer.digest))?;
    }
    Ok(())
}

fn choose(index: Index, reference: Option<&str>, path: &Path) -> Result<Descriptor> {
    const NAME: &str = "org.opencontainers.image.ref.name";
    let named = |d: &Descriptor| d.annotations.get(NAME).cloned();
    let names: Vec<String> = index.manifests.iter().filter_map(named).collect();
    let mut matching: Vec<Descriptor> = index
        .manifests
        .into_iter()
        .filter(|d| reference.is_none() || named(d).as_deref() == reference)
        .collect();
    if matching.len() == 1
        && let Some(only) = matching.pop()
    {
        return Ok(only);
    }
    Err(Failure::new(Class::Invalid, format!("{} does not say which image is meant", path.display()))
        .because(anyhow::anyhow!("{} images fit; its names are: {}", matching.len(), names.join(", ")))
        .hint("Name one of them in base.oci.reference.")
        .into())
}

/// Reads a manifest, through an index of platforms where there is one.
fn resolve(layout: &Path, descriptor: Descriptor) -> Result<Manifest> {
    let bytes = files::read_at_most(&blob_path(layout, &descriptor.digest)?, 4 << 20)?;
    let is_index = descriptor.media_type.ends_with("image.index.v1+json")
        || descriptor.media_type.ends_with("manifest.list.v2+json");
    if !is_index {
        return serde_json::from_slice(&bytes).context("reading the image's manifest");
    }
    let index: Index = serde_json::from_slice(&bytes).context("reading the image's index")?;
    let fits =
        |d: &Descriptor| d.platform.as_ref().is_some_and(|p| p.os == "linux" && p.architecture == "amd64");
    match index.manifests.into_iter().find(fits) {
        Some(found) if !found.media_type.contains("index") => resolve(layout, found),
        _ => bail!("the image has no manifest for linux/amd64"),
    }
}

/// The file of a blob, after its content was compared with its digest.
fn blob_path(layout: &Path, digest: &Digest) -> Result<PathBuf> {
    let path = layout.join("blobs/sha256").join(digest.to_string());
    if crate::cache::digest_of(&path)?.0 != *digest {
        let what = format!("the blob {} does not have its digest", path.display());
        return Err(Failure::new(Class::Verification, what).into());
    }
    Ok(path)
}

/// Unpacks one layer and carries out its whiteouts: those first that hide content of lower layers.
fn apply_layer(blob: &Path, tree: &Tree) -> Result<()> {
    let list = long(Invocation::new("tar")).args(["--list", "--quoting-style=literal", "--file"]).arg(blob);
    let names = SystemRunner.run(&list)?;
    for name in String::from_utf8_lossy(&names).lines() {
        let path = Path::new(name);
        let Some(mark) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(".wh."))
        else {
            continue;
        };
        let parent = inside(path.parent().unwrap_or(Path::new("")))?;
        let directory = tree.root().join(parent);
        if mark == ".wh..opq" {
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                remove(&entry?.path())?;
            }
        } else {
            remove(&directory.join(mark))?;
        }
    }
    tree.extract(blob, &["--exclude=.wh.*"])
}

/// A relative path that stays inside; layers are foreign input.
fn inside(path: &Path) -> Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir | Component::RootDir => {}
            _ => bail!("the layer names {}, which leads out of the tree", path.display()),
        }
    }
    Ok(plain)
}

fn remove(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(fs::remove_dir_all(path)?),
        Ok(_) => Ok(fs::remove_file(path)?),
        Err(_) => Ok(()),
    }
}
