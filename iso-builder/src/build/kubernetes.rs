//! The step that lays out the files of the Kubernetes distribution for the OS image, and what it needs of the base.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use model::config::Distribution;
use serde_json::json;
use walkdir::WalkDir;

use super::context::Build;
use super::release_images::ReleaseImages;
use crate::cache::{StepKey, StepOutputs};
use crate::kubernetes::system::NEEDED_FILES;
use crate::steps::{DistributionSource, StepWork};

impl Build<'_> {
    /// The files of the distribution for the OS image, below [`crate::steps::OVERLAY_OUTPUT`].
    pub(super) fn distribution(&self) -> Result<Option<StepOutputs>> {
        let Some(ReleaseImages { release, runtime, upstream, .. }) = &self.inputs.release else {
            return Ok(None);
        };
        let loaded = &self.inputs.loaded;
        let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
        let programs = spec.programs(loaded.definition.architecture.debian());
        let layers: Vec<_> = runtime.iter().flat_map(|(_, image)| image.layers.clone()).collect();
        let digests: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
        let inputs = json!({
            "version": release.locked.version,
            "programs": programs.iter().map(|name| release.digest(name)).collect::<Result<Vec<_>>>()?,
            "images": upstream,
            "runtime": digests,
        });
        let whole = |name: &String| {
            let path = release.path(name);
            path.canonicalize().with_context(|| format!("resolving {}", path.display()))
        };
        let blobs = runtime.iter().flat_map(|(store, image)| {
            image.layers.iter().map(|layer| store.blob_path(layer.digest)).collect::<Vec<_>>()
        });
        let from = DistributionSource {
            version: release.locked.version.clone(),
            programs: programs.iter().map(whole).collect::<Result<_>>()?,
            runtime: blobs.collect(),
            images: upstream.clone(),
        };
        let message = format!("Laying out {} {}", spec.distribution.name(), spec.version);
        let outputs = self.inputs.cache.step(&StepKey::new("distribution", 3, inputs), |out| {
            self.progress.within("distribution", message, || {
                self.sandboxed(StepWork::Distribution(Box::new(from)), out)
            })
        })?;
        Ok(Some(outputs))
    }
}

/// Where programs are; with or without /usr in one.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/sbin"];

impl Build<'_> {
    /// Fails unless the base and the definition's overlays have what nodes of kubeadm start. Releases of RKE2 and K3s bring
    /// it.
    pub(super) fn check_base(&self, base: &StepOutputs) -> Result<()> {
        let definition = &self.inputs.loaded.definition;
        if definition.kubernetes.as_ref().is_none_or(|spec| spec.distribution != Distribution::Kubeadm) {
            return Ok(());
        }
        let mut present = archived(&base.path("base.tar"))?;
        for overlay in &definition.overlays.rootfs {
            let root = self.inputs.loaded.resolve(overlay);
            for entry in WalkDir::new(&root) {
                let entry = entry.with_context(|| format!("reading {}", root.display()))?;
                present.extend(entry.path().strip_prefix(&root).map(Path::to_owned));
            }
        }
        lacks(&present)
    }
}

/// The paths in a tar archive.
fn archived(archive: &Path) -> Result<BTreeSet<PathBuf>> {
    let reading = || format!("reading {}", archive.display());
    let mut tar = tar::Archive::new(File::open(archive).with_context(reading)?);
    let mut paths = BTreeSet::new();
    for entry in tar.entries_with_seek().with_context(reading)? {
        let path = entry.with_context(reading)?.path().with_context(reading)?.into_owned();
        // As mmdebstrap writes them.
        paths.insert(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
    }
    Ok(paths)
}

fn lacks(present: &BTreeSet<PathBuf>) -> Result<()> {
    let has = |file: &str| {
        let within = |directory: &&str| present.contains(&Path::new(directory).join(file));
        if file.contains('/') {
            present.contains(Path::new(file))
        } else {
            PROGRAM_DIRECTORIES.iter().any(within)
        }
    };
    let missing: Vec<_> = NEEDED_FILES.into_iter().filter(|(file, _)| !has(file)).collect();
    // kubeadm compares it with what containers need.
    let is_kernel = |path: &PathBuf| path.to_str().is_some_and(|path| path.starts_with("boot/config-"));
    let what = "the base lacks what nodes of kubeadm need";
    if !missing.is_empty() {
        let files: Vec<_> = missing.iter().map(|(file, _)| *file).collect();
        let packages: BTreeSet<_> = missing.iter().map(|(_, package)| *package).collect();
        let packages = packages.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(Class::Invalid, what)
            .because(anyhow::anyhow!("it has no {}", files.join(", ")))
            .hint(format!("Include these packages of Debian in the base: {packages}"))
            .into());
    }
    if !present.iter().any(is_kernel) {
        return Err(Failure::new(Class::Invalid, what)
            .because(anyhow::anyhow!("there is no configuration of its kernel, boot/config-RELEASE"))
            .hint("Take the kernel from a package of Debian, or put its configuration beside it.")
            .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_has_all_programs_wherever_they_are_and_what_it_lacks_is_named_with_its_package() {
        let place = |(index, (file, _)): (usize, (&str, &str))| {
            let directory = PROGRAM_DIRECTORIES[index % PROGRAM_DIRECTORIES.len()];
            if file.contains('/') { PathBuf::from(file) } else { Path::new(directory).join(file) }
        };
        let kernel = PathBuf::from("boot/config-6.12.1-amd64");
        let mut whole: BTreeSet<_> = NEEDED_FILES.into_iter().enumerate().map(place).collect();
        whole.insert(kernel.clone());
        lacks(&whole).unwrap();
        let told = |gone: &[&str]| {
            let fewer = whole.iter().filter(|path| !gone.iter().any(|name| path.ends_with(name)));
            base::failure::render(&lacks(&fewer.cloned().collect()).unwrap_err())
        };
        let text = told(&["nft", "cni/bridge", "cni/portmap"]);
        assert!(text.contains("it has no usr/lib/cni/bridge, usr/lib/cni/portmap, nft"), "{text}");
        assert!(text.contains("in the base: containernetworking-plugins, nftables"), "{text}");
        assert!(told(&["config-6.12.1-amd64"]).contains("boot/config-RELEASE"));
        // iproute2 has a program of this name, too.
        whole.insert("usr/sbin/bridge".into());
        let fewer: BTreeSet<_> = whole.iter().filter(|path| !path.ends_with("cni/bridge")).cloned().collect();
        assert!(lacks(&fewer).is_err());
    }
}
