//! The release of Kubernetes that `make kubernetes` built, as the image builder reads it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use formats::oci::ImageReference;
use iso_builder::kubernetes::upstream::{roles, upstream_images};
use model::config::Role;
use model::kubernetes::{KubernetesVersion, UpstreamImages};
use serde_json::Value;

use crate::{paths, programs};

const LIMIT: Duration = Duration::from_secs(60);

/// Programs and archives of images.
#[derive(Clone, Debug)]
pub struct KubernetesRelease {
    directory: PathBuf,
    pub version: KubernetesVersion,
    archives: BTreeMap<String, PathBuf>,
}

impl KubernetesRelease {
    /// The release at `target/kubernetes`, where the definition of the default image looks too.
    pub fn built() -> Result<Self> {
        Self::made_by("kubernetes")
    }

    /// The minor version before it.
    pub fn built_before() -> Result<Self> {
        Self::made_by("kubernetes-before")
    }

    fn made_by(target: &str) -> Result<Self> {
        let link = paths::target().join(target);
        let directory = link
            .canonicalize()
            .with_context(|| format!("{} is missing; run `make {target}`", link.display()))?;
        let mut ask = Command::new(directory.join("kubeadm"));
        let said = programs::run(ask.args(["version", "--output", "short"]), LIMIT)?.success("kubeadm")?;
        let version = said.trim().parse().context("the version of kubeadm")?;
        let mut archives = BTreeMap::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(".tar.zst") {
                archives.insert(image_of(&path)?, path);
            }
        }
        Ok(Self { directory, version, archives })
    }

    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The images that have versions of their own.
    pub fn images(&self) -> Result<UpstreamImages> {
        let names: Result<Vec<ImageReference>, _> = self.archives.keys().map(|name| name.parse()).collect();
        upstream_images(&names.context("the names of images")?, &self.version)
    }

    /// Every image by its name, with its archive, which zstd has compressed.
    #[must_use]
    pub fn archives(&self) -> &BTreeMap<String, PathBuf> {
        &self.archives
    }

    /// The archives of the images that nodes of `role` get.
    pub fn archives_for(&self, role: Role) -> Result<Vec<&Path>> {
        let mut wanted = Vec::new();
        for (name, archive) in &self.archives {
            let roles = roles(&name.parse().context("the name of an image")?);
            if roles.is_empty() || roles.contains(&role) {
                wanted.push(archive.as_path());
            }
        }
        ensure!(!wanted.is_empty(), "the release in {} has no images", self.directory.display());
        Ok(wanted)
    }
}

/// The name of the only image in an archive of Docker's form.
fn image_of(archive: &Path) -> Result<String> {
    let mut read = Command::new("tar");
    read.args(["--extract", "--zstd", "--to-stdout", "--occurrence", "--file"])
        .arg(archive)
        .arg("manifest.json");
    let manifest = programs::run(&mut read, LIMIT)?.success("reading an archive of an image")?;
    let manifest: Value = serde_json::from_str(&manifest)?;
    let name = manifest[0]["RepoTags"][0].as_str().map(str::to_owned);
    name.with_context(|| format!("{} has no name of an image", archive.display()))
}
