//! The last step: release manifests and the media.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::parallel::{for_each, locked};
use medium::build_output::{CHECKSUMS, iso_name, netboot_names};
use medium::customization::{self, area};
use medium::iso::recipe::{self, Recipe};
use model::config::Role;
use model::release::{
    Containerd, ExpandedImage, FORMAT, IsoRecipe, MANIFEST, MediumKind, Payload, Purpose, Release,
    metadata_path,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::context::Build;
use super::images::BuiltImages;
use super::output::OutputDirectory;
use super::program::BuildInstaller;
use super::record::{FinishedRecord, OutputRecord};
use super::sbom::SBOM_FILE;
use crate::boot::loaders;
use crate::cache::{StepOutputs, StepUse};
use crate::definition::OutputKind;
use crate::files::link_or_copy;
use crate::media::assemble::{assemble, blank_area, boot_code, checksums};
use crate::media::customize::customization::is_customized;
use crate::steps::EXPANDED_OUTPUT;

/// A file that a build has made or found up to date.
#[derive(Clone, Debug, Serialize)]
pub struct BuiltFile {
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

/// Media that are made and not in their place yet.
#[derive(Debug)]
pub(super) struct MadeMedia {
    /// All outputs that have a digest.
    pub(super) files: Vec<BuiltFile>,
    /// The work that making them took.
    pub(super) uses: Vec<StepUse>,
    /// Of the manifest of the full medium.
    pub(super) release: Digest,
    /// Outputs of an earlier build, to be removed.
    pub(super) stale: BTreeSet<String>,
    pub(super) record: FinishedRecord,
}

fn iso_key(manifest: &[u8]) -> Value {
    json!({ "recipe": recipe::NUMBER, "release": Digest::of(manifest) })
}

fn netboot_key(sha256: Digest) -> Value {
    json!({ "sha256": sha256 })
}

fn area_key() -> Value {
    json!({ "length": area::LENGTH })
}

/// The parts of media: payloads with the files that hold them.
#[derive(Debug)]
pub(super) struct MediumParts {
    kernel: StepOutputs,
    payloads: Vec<(Payload, PathBuf)>,
    images: Vec<model::release::Image>,
    release: String,
    expanded: ExpandedImage,
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
        let expanded = files::read_text(&rootfs.path(EXPANDED_OUTPUT))?;
        let expanded = serde_json::from_str(&expanded).context("reading what the OS image expands to")?;
        Ok(Self { kernel, payloads, images, release, expanded, iso })
    }

    pub(super) fn source(&self, payload: &Payload) -> Result<&Path> {
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
        directory: &OutputDirectory,
        (targets, installer): (&BTreeSet<OutputKind>, &BuildInstaller),
    ) -> Result<MadeMedia> {
        let outputs = OutputRecord::open(&self.inputs.cache, directory)?;
        let sums = Mutex::new(BTreeMap::new());
        let (disks, media): (Vec<_>, Vec<_>) = targets.iter().copied().partition(|kind| kind.is_disk());
        let mut work: Vec<_> = media.iter().map(std::slice::from_ref).collect();
        work.extend(Some(&disks[..]).filter(|disks| !disks.is_empty()));
        // They have no file in common, and each waits for the disk for half of its time; a disk in two formats is made once.
        for_each(&work, work.len(), |kinds| {
            let made = match kinds {
                [OutputKind::Full] => vec![self.iso(parts, MediumKind::Full, &outputs)?],
                [OutputKind::NetInstall] => vec![self.iso(parts, MediumKind::NetInstall, &outputs)?],
                [OutputKind::Netboot] => self.netboot(parts, &outputs)?,
                disks => self.disks(parts, disks, installer, &outputs)?,
            };
            locked(&sums).extend(made);
            Ok(())
        })?;
        let mut sums = std::mem::take(&mut *locked(&sums));
        let stale = self.keep_others(parts, &outputs, (targets, installer), &mut sums)?;
        let manifest = self.manifest(parts, MediumKind::Full).to_bytes();
        let sbom = fs::read(sbom).context("reading the bill of materials")?;
        for (name, bytes) in [(MANIFEST, &manifest), (SBOM_FILE, &sbom)] {
            sums.insert(name.to_owned(), Digest::of(bytes));
            directory.write(name, bytes)?;
        }
        directory.write(CHECKSUMS, checksums::render(&sums).as_bytes())?;
        let medium = |(name, sha256): (String, Digest)| {
            let path = directory.path().join(&name);
            let made = [directory.unfinished(&name), path.clone()]
                .into_iter()
                .find_map(|path| fs::metadata(path).ok());
            let size = made.with_context(|| format!("reading {}", path.display()))?.len();
            Ok(BuiltFile { path, size, sha256 })
        };
        let files = sums.into_iter().map(medium).collect::<Result<_>>()?;
        let uses = outputs.uses();
        Ok(MadeMedia { files, uses, release: Digest::of(&manifest), stale, record: outputs.finish() })
    }

    /// Adds to `sums` the media in the directory that were not asked for and are what this build would make. Those of an
    /// earlier build are returned: they must not stay beside the others.
    fn keep_others(
        &self,
        parts: &MediumParts,
        outputs: &OutputRecord<'_>,
        (targets, installer): (&BTreeSet<OutputKind>, &BuildInstaller),
        sums: &mut BTreeMap<String, Digest>,
    ) -> Result<BTreeSet<String>> {
        let mut others: Vec<Vec<(String, Value)>> = Vec::new();
        for (target, kind) in
            [(OutputKind::Full, MediumKind::Full), (OutputKind::NetInstall, MediumKind::NetInstall)]
        {
            if !targets.contains(&target) {
                let release = self.manifest(parts, kind);
                others.push(vec![(iso_name(&release, kind), iso_key(&release.to_bytes()))]);
            }
        }
        for kind in [OutputKind::DiskRaw, OutputKind::DiskQcow2] {
            if !targets.contains(&kind) {
                others.push(vec![self.disk_key(parts, kind, installer)?]);
            }
        }
        if !targets.contains(&OutputKind::Netboot) {
            let release = self.manifest(parts, MediumKind::Full);
            let payload = |purpose| release.payload(purpose).map(|payload| netboot_key(payload.sha256));
            let mut set: Vec<_> = netboot_names(&release)
                .into_iter()
                .filter_map(|(purpose, name)| Some((name, payload(purpose)?)))
                .collect();
            set.push((customization::FILE.to_owned(), area_key()));
            others.push(set);
        }
        let mut stale = BTreeSet::new();
        for set in others {
            let known: Vec<_> = set.iter().map(|(name, key)| outputs.is_current(name, key)).collect();
            let whole = known.iter().all(Option::is_some);
            for ((name, _), known) in set.into_iter().zip(known) {
                match known.filter(|_| whole) {
                    Some(sha256) => drop(sums.insert(name, sha256)),
                    None if outputs.path(&name).exists() => {
                        let text = format!("{name} is of an earlier build and is removed");
                        self.progress.note("outputs", text);
                        stale.insert(name);
                    }
                    None => {}
                }
            }
        }
        Ok(stale)
    }

    pub(super) fn manifest(&self, parts: &MediumParts, medium: MediumKind) -> Release {
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
            expanded: parts.expanded,
            payloads: parts.payloads.iter().map(|(payload, _)| payload.clone()).collect(),
            images: parts.images.clone(),
            containerd: Containerd {
                root: definition.runtime().root().into(),
                unpack: definition.images.unpack,
            },
            distribution: definition.kubernetes.as_ref().map(|kubernetes| kubernetes.distribution),
            kubernetes: definition.kubernetes.as_ref().map(|kubernetes| kubernetes.version.clone()),
            iso: Some(parts.iso.clone()),
        }
    }

    fn iso(
        &self,
        parts: &MediumParts,
        kind: MediumKind,
        outputs: &OutputRecord<'_>,
    ) -> Result<(String, Digest)> {
        let step = match kind {
            MediumKind::Full => "iso-full",
            MediumKind::NetInstall => "iso-net-install",
        };
        let release = self.manifest(parts, kind);
        let (name, manifest) = (iso_name(&release, kind), release.to_bytes());
        let output = outputs.path(&name);
        let digest = outputs.made(&name, step, &iso_key(&manifest), self.progress, |file| {
            self.warn_of_customized(&output, step);
            let scratch =
                tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
            let recipe = Recipe::new(&release, &manifest);
            let loaders = parts.kernel.path("loaders");
            let source = |payload: &Payload| parts.source(payload).map(Path::to_owned);
            let iso = assemble(&recipe, None, &loaders, &source, scratch.path())?;
            iso.write(file, &output, step, self.progress)?;
            Ok(None)
        })?;
        Ok((name, digest))
    }

    /// Kernel, initrd and OS image beside the ISOs, as links to the cache where the disk allows it.
    fn netboot(&self, parts: &MediumParts, outputs: &OutputRecord<'_>) -> Result<Vec<(String, Digest)>> {
        let mut sums = Vec::new();
        for (purpose, name) in netboot_names(&self.manifest(parts, MediumKind::Full)) {
            let found = parts.payloads.iter().find(|(payload, _)| payload.purpose == purpose);
            let (payload, source) = found.with_context(|| format!("finding {name}"))?;
            let suffix = name.rsplit('-').next().unwrap_or(&name);
            let digest =
                outputs.made(&name, suffix, &netboot_key(payload.sha256), self.progress, |file| {
                    link_or_copy(source, file)?;
                    Ok(Some(payload.sha256))
                })?;
            sums.push((name, digest));
        }
        let output = outputs.path(customization::FILE);
        let made = outputs.made(customization::FILE, "custom", &area_key(), self.progress, |file| {
            self.warn_of_customized(&output, "custom");
            blank_area(file)?;
            Ok(None)
        })?;
        sums.push((customization::FILE.to_owned(), made));
        Ok(sums)
    }

    /// Warns that a customized medium is overwritten with one that is as the definition says.
    fn warn_of_customized(&self, output: &Path, step: &str) {
        if is_customized(output) {
            let text = format!(
                "warning: {} was customized; this build replaces it without the customization; run `iso-builder customize` on it again",
                output.display()
            );
            self.progress.note(step, text);
        }
    }
}
