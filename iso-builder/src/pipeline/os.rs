//! The steps that make the operating system: base, kernel and initrd, OS image.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files::{self, parent, write_atomically};
use serde_json::json;
use trust::TrustStore;
use trust::store::TRUST_STORE;

use super::base_system::BaseSystem;
use super::context::Build;
use super::extensions::MadeExtensions;
use super::overlay::Overlay;
use super::program::BuildInstaller;
use super::{hardware, initrd, overlay};
use crate::cache::{StepKey, StepOutputs};
use crate::definition::Base;
use crate::packages::ResolvedPackage;
use crate::product::ProductTree;
use crate::steps::{
    BaseSource, COVERAGE_OUTPUT, IMAGE_HASHES_OUTPUT, IMAGE_OUTPUT, ImageCompression, ImageHashes,
    OVERLAY_OUTPUT, ProductIdentity, RootfsSource, StepWork, keep_epoch,
};

/// The step that makes the OS image.
const ROOTFS: &str = "rootfs";
/// Of the hashes of an OS image.
const HASHES_BYTES_MAX: u64 = 1 << 20;

impl Build<'_> {
    fn base_packages(&self) -> Vec<&ResolvedPackage> {
        let Some(base) = self.inputs.loaded.definition.base_list() else { return Vec::new() };
        self.lock.packages_for(|list| *list == base)
    }

    pub(super) fn base_key(&self) -> StepKey {
        let definition = &self.inputs.loaded.definition;
        let debian = matches!(definition.base, Base::Debian(_));
        let packages = self.base_packages().into_iter().map(|package| package.sha256);
        let base = match &definition.base {
            Base::Debian(_) => json!({ "debian": { "include": definition.base_packages() } }),
            other => json!(other),
        };
        let inputs = json!({
            "epoch": self.given_epoch(),
            "base": base,
            "suite": debian.then_some(&definition.packages.suite),
            "digest": self.lock.base,
            "packages": packages.collect::<Vec<_>>(),
        });
        StepKey::new("base", 5, inputs)
    }

    /// The root file system before anything of ours.
    pub(super) fn base(&self) -> Result<BaseSystem> {
        let definition = &self.inputs.loaded.definition;
        let absolute = |path: &PathBuf| -> Result<PathBuf> {
            let path = self.inputs.loaded.resolve(path);
            path.canonicalize().with_context(|| format!("resolving {}", path.display()))
        };
        let outputs = self.inputs.cache.step(&self.base_key(), |out| {
            let import = |source| (StepWork::Import { source, epoch: self.given_epoch() }, 0);
            let (work, epoch) = match &definition.base {
                Base::Debian(_) => {
                    let repository = self.repository(&self.base_packages())?;
                    let epoch = self.epoch_of(&repository)?;
                    keep_epoch(out, epoch)?;
                    let (suite, include) = (definition.packages.suite.clone(), definition.base_packages());
                    (StepWork::Bootstrap { suite, repository, include }, epoch)
                }
                Base::Oci(base) => import(BaseSource::Oci(absolute(&base.path)?, base.reference.clone())),
                Base::Archive(base) => import(BaseSource::Archive(absolute(&base.path)?)),
                Base::Directory(base) => import(BaseSource::Directory(absolute(&base.path)?)),
            };
            self.progress
                .within("base", "Putting the base system together", || self.sandboxed(work, epoch, out))
        })?;
        BaseSystem::new(outputs)
    }

    /// `vmlinuz`, `initrd` as dracut makes it, `kernel-release`, `loaders/`.
    pub(super) fn kernel(&self, base: &BaseSystem, extensions: &MadeExtensions) -> Result<StepOutputs> {
        let mut overlays = vec![Overlay::Product(Arc::clone(&self.product), ProductTree::Initrd)];
        overlays.extend(extensions.initrd.iter().cloned());
        overlays.extend(self.overlays(&self.inputs.loaded.definition.overlays.initrd)?);
        let inputs = json!({
            "base": base.digest()?,
            "architecture": self.inputs.loaded.definition.architecture,
            "overlays": overlay::digests(&overlays)?,
        });
        self.inputs.cache.step(&StepKey::new("kernel", 12, inputs), |out| {
            let work = StepWork::Kernel { base: base.archive()?, overlays: overlay::paths(&overlays)? };
            self.progress.within("initrd", "Making the initrd and the boot loaders", || {
                self.sandboxed(work, base.epoch, out)
            })
        })
    }

    /// `initrd`: that of dracut with the installer and the trust store, by which it checks the release before it mounts its OS image. A step
    /// of its own, because dracut takes longer than this and knows neither.
    pub(super) fn initrd(
        &self,
        kernel: &StepOutputs,
        installer: &BuildInstaller,
        trust: &TrustStore,
    ) -> Result<StepOutputs> {
        let store = trust.to_bytes();
        let inputs = json!({
            "kernel": kernel.digest()?,
            "installer": installer.sha256,
            "trust": Digest::of(&store),
        });
        self.inputs.cache.step(&StepKey::new("initrd", 1, inputs), |out| {
            self.progress.within("initrd", "Adding the installer to the initrd", || {
                initrd::complete(&kernel.path("initrd")?, &installer.path, &store, out)
            })
        })
    }

    /// `rootfs.squashfs`, and what its kernel and its firmware can drive.
    pub(super) fn rootfs(
        &self,
        base: &BaseSystem,
        distribution: Option<&StepOutputs>,
        extensions: &MadeExtensions,
        installer: &BuildInstaller,
        trust: &TrustStore,
    ) -> Result<StepOutputs> {
        let definition = &self.inputs.loaded.definition;
        // The definition's overlays can change what the distribution and the product bring.
        let overlays: Vec<_> = distribution
            .map(|outputs| Overlay::Output(outputs.clone(), OVERLAY_OUTPUT))
            .into_iter()
            .chain([Overlay::Product(Arc::clone(&self.product), ProductTree::Rootfs)])
            .chain(extensions.rootfs.iter().cloned())
            .chain(self.overlays(&definition.overlays.rootfs)?)
            .chain(self.shipped()?)
            // Nothing else can change whom the nodes trust.
            .chain([self.trust_store(trust)?])
            .collect();
        let identity = ProductIdentity {
            id: definition.id.clone(),
            name: definition.name.clone(),
            version: definition.version.clone(),
        };
        let level = definition.profile.zstd_level();
        let inputs = json!({
            "base": base.digest()?,
            "overlays": overlay::digests(&overlays)?,
            "installer": installer.sha256,
            "identity": identity,
            "compression": ImageCompression::at_level(level),
        });
        self.inputs.cache.step(&StepKey::new(ROOTFS, 13, inputs), |out| {
            let rootfs = RootfsSource {
                base: base.archive()?,
                overlays: overlay::paths(&overlays)?,
                installer: installer.path.clone(),
                identity,
                level,
                earlier: self.earlier_image(level),
            };
            let message = format!("Making the OS image (zstd {level})");
            self.progress
                .within("rootfs", message, || self.sandboxed(StepWork::Rootfs(rootfs), base.epoch, out))
        })
    }

    /// The OS image that was made or used last of those that are compressed at this level by this program.
    fn earlier_image(&self, level: u32) -> Option<PathBuf> {
        let wanted = ImageCompression::at_level(level);
        let made_so = |step: &PathBuf| {
            let hashes = files::read_at_most(&step.join(IMAGE_HASHES_OUTPUT), HASHES_BYTES_MAX).ok()?;
            let hashes: ImageHashes = serde_json::from_slice(&hashes).ok()?;
            let image = step.join(IMAGE_OUTPUT);
            (hashes.compression == wanted && image.is_file()).then_some(image)
        };
        self.inputs.cache.earlier(ROOTFS).iter().find_map(made_so)
    }

    /// `hardware.json`: what the OS image and the initrd can drive. Empty where the kernel has no modules.
    pub(super) fn hardware(&self, initrd: &StepOutputs, rootfs: &StepOutputs) -> Result<StepOutputs> {
        let (_, coverage) = rootfs.file(COVERAGE_OUTPUT)?;
        let inputs = json!({ "coverage": coverage, "initrd": initrd.digest()? });
        self.inputs.cache.step(&StepKey::new("hardware", 1, inputs), |out| {
            self.progress.within("hardware", "Listing what the release can drive", || {
                hardware::complete(&rootfs.path(COVERAGE_OUTPUT)?, &initrd.path("initrd")?, out)
            })
        })
    }

    /// The manifests and charts that the first server applies, laid out as an overlay.
    fn shipped(&self) -> Result<Option<Overlay>> {
        let workloads = &self.inputs.workloads;
        if workloads.is_empty() {
            return Ok(None);
        }
        let key = StepKey::new("workloads", 1, json!({ "files": workloads.digest() }));
        let outputs = self.inputs.cache.step(&key, |out| workloads.lay_out(&out.join("overlay")))?;
        Ok(Some(Overlay::Output(outputs, "overlay")))
    }

    /// The trust store, laid out as an overlay.
    fn trust_store(&self, trust: &TrustStore) -> Result<Overlay> {
        let bytes = trust.to_bytes();
        let key = StepKey::new("trust", 1, json!({ "store": Digest::of(&bytes) }));
        let outputs = self.inputs.cache.step(&key, |out| {
            let file = out.join("overlay").join(TRUST_STORE.trim_start_matches('/'));
            fs::create_dir_all(parent(&file))
                .with_context(|| format!("making {}", parent(&file).display()))?;
            write_atomically(&file, &bytes, 0o644)
        })?;
        Ok(Overlay::Output(outputs, "overlay"))
    }

    fn overlays(&self, paths: &[PathBuf]) -> Result<Vec<Overlay>> {
        let resolve = |path: &PathBuf| {
            let path = self.inputs.loaded.resolve(path);
            let path = path.canonicalize().with_context(|| format!("resolving {}", path.display()))?;
            Ok(Overlay::Directory(path))
        };
        paths.iter().map(resolve).collect()
    }
}
