//! The last step: release manifests and the media.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::parallel::{for_each, locked};
use medium::customization::{self, area};
use medium::iso::recipe::{self, Recipe};
use model::config::Role;
use model::release::{
    Containerd, FORMAT, IsoRecipe, MANIFEST, MediumKind, Payload, Purpose, Release, metadata_path,
};
use serde::Serialize;
use serde_json::json;

use super::context::Build;
use super::images::BuiltImages;
use super::options::MediumTarget;
use super::record;
use super::sbom::SBOM_FILE;
use crate::assemble::{assemble, blank_area, boot_code, checksums};
use crate::boot::loaders;
use crate::cache::StepOutputs;
use crate::customize::customisation::is_customised;
use crate::files::link_or_copy;

/// A file that a build has made or found up to date.
#[derive(Clone, Debug, Serialize)]
pub struct BuiltFile {
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

/// What media are assembled from: payloads with the files that hold them.
#[derive(Debug)]
pub(super) struct MediumParts {
    kernel: StepOutputs,
    payloads: Vec<(Payload, PathBuf)>,
    images: Vec<model::release::Image>,
    release: String,
    iso: IsoRecipe,
}

impl MediumParts {
    pub(super) fn collect(
        kernel: StepOutputs,
        rootfs: &StepOutputs,
        images: Option<&BuiltImages>,
        configuration: Vec<(Payload, PathBuf)>,
    ) -> Result<Self> {
        let mut payloads = Vec::new();
        let mut add = |path: String, purpose, outputs: &StepOutputs, name: &str| -> Result<()> {
            let (size, sha256) = outputs.file(name)?;
            payloads.push((Payload { path, purpose, size, sha256 }, outputs.path(name)));
            Ok(())
        };
        add("boot/vmlinuz".into(), Purpose::Kernel, &kernel, "vmlinuz")?;
        add("boot/initrd".into(), Purpose::Initrd, &kernel, "initrd")?;
        for (name, purpose) in [
            (loaders::SHIM, Purpose::Shim),
            (loaders::MOK_MANAGER, Purpose::MokManager),
            (loaders::GRUB_EFI, Purpose::GrubEfi),
            (loaders::GRUB_BOOT, Purpose::GrubBoot),
            (loaders::GRUB_CORE, Purpose::GrubCore),
        ] {
            add(format!("boot/loaders/{name}"), purpose, &kernel, &format!("loaders/{name}"))?;
        }
        add("rootfs.squashfs".into(), Purpose::Rootfs, rootfs, "rootfs.squashfs")?;
        if let Some(images) = images {
            for role in Role::ALL {
                let name = format!("{}.db", role.name());
                add(metadata_path(role.name()), Purpose::ImageMetadata, &images.metadata, &name)?;
            }
            for payload in &images.listing.payloads {
                let inside = payload.path.trim_start_matches("images/");
                let source = images.store.path("store").join(inside);
                payloads.push((payload.clone(), source));
            }
        }
        payloads.extend(configuration);
        let release = files::read_text(&kernel.path("kernel-release"))?;
        let images = images.map(|images| images.listing.images.clone()).unwrap_or_default();
        let iso = boot_code(&kernel.path("loaders"))?;
        Ok(Self { kernel, payloads, images, release, iso })
    }

    fn source(&self, payload: &Payload) -> Result<&Path> {
        let found = self.payloads.iter().find(|(known, _)| known.path == payload.path);
        found.map(|(_, source)| source.as_path()).with_context(|| format!("finding {}", payload.path))
    }
}

impl Build<'_> {
    /// Makes the media that were requested and are not up to date.
    pub(super) fn media(
        &self,
        parts: &MediumParts,
        sbom: &Path,
        directory: &Path,
        targets: &[MediumTarget],
    ) -> Result<Vec<BuiltFile>> {
        let outputs = record::OutputRecord::open(&self.inputs.cache, directory)?;
        let sums = Mutex::new(BTreeMap::new());
        // Each once. They have no file in common, and each waits for the disk for half of its time.
        let targets: Vec<_> = BTreeSet::from_iter(targets).into_iter().collect();
        for_each(&targets, targets.len(), |target| {
            let made = match target {
                MediumTarget::Full => vec![self.iso(parts, MediumKind::Full, &outputs)?],
                MediumTarget::NetInstall => vec![self.iso(parts, MediumKind::NetInstall, &outputs)?],
                MediumTarget::Netboot => self.netboot(parts, &outputs)?,
            };
            locked(&sums).extend(made);
            Ok(())
        })?;
        let mut sums = std::mem::take(&mut *locked(&sums));
        let manifest = self.manifest(parts, MediumKind::Full).to_bytes();
        sums.insert(MANIFEST.to_owned(), Digest::of(&manifest));
        files::write_atomically(&directory.join(MANIFEST), &manifest, 0o644)?;
        let sbom = fs::read(sbom).context("reading the bill of materials")?;
        sums.insert(SBOM_FILE.to_owned(), Digest::of(&sbom));
        files::write_atomically(&directory.join(SBOM_FILE), &sbom, 0o644)?;
        let text = checksums::render(&sums);
        files::write_atomically(&directory.join("SHA256SUMS"), text.as_bytes(), 0o644)?;
        outputs.write()?;
        let medium = |(name, sha256): (String, Digest)| {
            let path = directory.join(name);
            let size = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.len();
            Ok(BuiltFile { path, size, sha256 })
        };
        sums.into_iter().map(medium).collect()
    }

    /// The first part of every output's file name.
    fn stem(&self) -> String {
        let definition = &self.inputs.loaded.definition;
        format!("{}-{}-{}", definition.id, definition.version, definition.architecture.debian())
    }

    fn manifest(&self, parts: &MediumParts, medium: MediumKind) -> Release {
        let definition = &self.inputs.loaded.definition;
        Release {
            format: FORMAT,
            id: definition.id.clone(),
            name: definition.name.clone(),
            version: definition.version.clone(),
            architecture: definition.architecture.debian().into(),
            epoch: self.lock.epoch,
            medium,
            kernel: parts.release.clone(),
            kernel_arguments: definition.kernel.arguments.clone(),
            payloads: parts.payloads.iter().map(|(payload, _)| payload.clone()).collect(),
            images: parts.images.clone(),
            containerd: Containerd {
                root: definition.runtime().root().into(),
                unpack: definition.images.unpack,
            },
            distribution: definition.kubernetes.as_ref().map(|kubernetes| kubernetes.distribution),
            iso: Some(parts.iso.clone()),
        }
    }

    fn iso(
        &self,
        parts: &MediumParts,
        kind: MediumKind,
        outputs: &record::OutputRecord,
    ) -> Result<(String, Digest)> {
        let (suffix, step) = match kind {
            MediumKind::Full => ("", "iso-full"),
            MediumKind::NetInstall => ("-net-install", "iso-net-install"),
        };
        let name = format!("{}{suffix}.iso", self.stem());
        let release = self.manifest(parts, kind);
        let manifest = release.to_bytes();
        let key = json!({ "recipe": recipe::NUMBER, "release": Digest::of(&manifest) });
        let output = outputs.directory().join(&name);
        let digest = outputs.made(&name, step, &key, self.progress, || {
            self.warn_of_customised(&output, step);
            let scratch =
                tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
            let recipe = Recipe::new(&release, &manifest);
            let loaders = parts.kernel.path("loaders");
            let source = |payload: &Payload| parts.source(payload).map(Path::to_owned);
            assemble(&recipe, &loaders, &source, scratch.path())?.write(&output, step, self.progress)?;
            Ok(None)
        })?;
        Ok((name, digest))
    }

    /// Kernel, initrd and OS image beside the ISOs, as links to the cache where the disk allows it.
    fn netboot(&self, parts: &MediumParts, outputs: &record::OutputRecord) -> Result<Vec<(String, Digest)>> {
        let mut sums = Vec::new();
        for (purpose, suffix) in
            [(Purpose::Kernel, "vmlinuz"), (Purpose::Initrd, "initrd"), (Purpose::Rootfs, "rootfs.squashfs")]
        {
            let found = parts.payloads.iter().find(|(payload, _)| payload.purpose == purpose);
            let (payload, source) = found.with_context(|| format!("finding the {suffix}"))?;
            let name = format!("{}-{suffix}", self.stem());
            let output = outputs.directory().join(&name);
            let key = json!({ "sha256": payload.sha256 });
            let digest = outputs.made(&name, suffix, &key, self.progress, || {
                link_or_copy(source, &output)?;
                Ok(Some(payload.sha256))
            })?;
            sums.push((name, digest));
        }
        let output = outputs.directory().join(customization::FILE);
        let key = json!({ "length": area::LENGTH });
        let made = outputs.made(customization::FILE, "custom", &key, self.progress, || {
            self.warn_of_customised(&output, "custom");
            blank_area(&output)?;
            Ok(None)
        })?;
        sums.push((customization::FILE.to_owned(), made));
        Ok(sums)
    }

    /// Warns that a customised medium is overwritten with one that is as the definition says.
    fn warn_of_customised(&self, output: &Path, step: &str) {
        if is_customised(output) {
            let text = format!(
                "warning: {} was customised; this build replaces it without the customization; run `iso-builder customize` on it again",
                output.display()
            );
            self.progress.note(step, text);
        }
    }
}
