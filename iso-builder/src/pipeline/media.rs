//! The last step: release manifests and the media.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::parallel::{for_each, locked};
use medium::build_output::{CHECKSUMS, PROVENANCE, SBOM, iso_name, netboot_names};
use medium::customization::{self, area};
use medium::iso::recipe::{self, Recipe};
use medium::reader::MediumReader;
use medium::signatures;
use model::architecture::Architecture;
use model::config::Role;
use model::release::{
    Containerd, ExpandedImage, FORMAT, HARDWARE, IsoRecipe, MANIFEST, MediumKind, Payload, Purpose, Release,
    SIGNATURES, metadata_path,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::context::Build;
use super::image_outputs::STORE_OUTPUT;
use super::images::BuiltImages;
use super::output::OutputDirectory;
use super::program::BuildInstaller;
use super::provenance::{MadeOutputs, net_install_manifest};
use super::record::{FinishedRecord, OutputRecord};
use crate::boot::loaders;
use crate::cache::{StepOutputs, StepUse};
use crate::definition::OutputKind;
use crate::files::link_or_copy;
use crate::media::assemble::{assemble, blank_area, checksums, iso_recipe};
use crate::media::customize::customization::is_customized;
use crate::provenance::Subject;
use crate::steps::{IMAGE_HASHES_OUTPUT, IMAGE_OUTPUT, ImageHashes};

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

fn iso_key(manifest: &SignedManifest) -> Value {
    json!({ "recipe": recipe::NUMBER, "release": manifest.digest(), "signatures": manifest.signatures_digest() })
}

fn netboot_key(sha256: Digest) -> Value {
    json!({ "sha256": sha256 })
}

fn area_key() -> Value {
    json!({ "length": area::LENGTH })
}

/// Signs what a build makes: gets the bytes of a release manifest, and gives its signatures; none for an unsigned release.
/// A build calls it for each manifest that it makes. The same signatures for the same manifest leave media as they are.
pub(super) type ManifestSigner<'a> = dyn Fn(&[u8]) -> Result<Option<Vec<u8>>> + 'a;

/// Makes the file that says what the outputs of a build were made from.
pub(super) type ProvenanceWriter<'a> = dyn Fn(&MadeOutputs) -> Result<Vec<u8>> + 'a;

/// The manifest of a medium, with its signatures.
#[derive(Debug)]
pub(super) struct SignedManifest {
    pub(super) release: Release,
    pub(super) bytes: Vec<u8>,
    pub(super) signatures: Option<Vec<u8>>,
}

impl SignedManifest {
    fn new(release: Release, sign: &ManifestSigner<'_>) -> Result<Self> {
        let bytes = release.to_bytes();
        let signatures = sign(&bytes)?.and_then(signatures::text);
        // What no ISO could have is refused before one is written.
        signatures::padded(signatures.as_deref())?;
        Ok(Self { release, bytes, signatures })
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    pub(super) fn signatures_digest(&self) -> Option<Digest> {
        self.signatures.as_deref().map(Digest::of)
    }
}

/// The manifests of the media of a build.
#[derive(Debug)]
pub(super) struct SignedManifests {
    /// Of the full ISO, the netboot set and the disks.
    full: SignedManifest,
    /// None where no ISO for net installs is wanted or there.
    net_install: Option<SignedManifest>,
}

/// The parts of media: payloads with the files that hold them.
#[derive(Debug)]
pub(super) struct MediumParts {
    /// The time of all files, in seconds since 1970.
    epoch: u64,
    kernel: StepOutputs,
    payloads: Vec<(Payload, PathBuf)>,
    /// Where the payload is that says what the release can drive.
    hardware: Option<PathBuf>,
    images: Vec<model::release::Image>,
    release: String,
    expanded: ExpandedImage,
    iso: IsoRecipe,
}

impl MediumParts {
    pub(super) fn collect(
        architecture: Architecture,
        epoch: u64,
        kernel: StepOutputs,
        (initrd, rootfs, hardware): (&StepOutputs, &StepOutputs, &StepOutputs),
        images: Option<&BuiltImages>,
        configuration: Vec<(Payload, PathBuf)>,
    ) -> Result<Self> {
        // All at once, where they come from another host.
        let mut needed = vec![
            (&kernel, vec!["vmlinuz", "loaders", "kernel-release"]),
            (initrd, vec!["initrd"]),
            (rootfs, vec![IMAGE_OUTPUT, IMAGE_HASHES_OUTPUT]),
            (hardware, vec![HARDWARE]),
        ];
        needed.extend(
            images
                .iter()
                .flat_map(|images| [(&images.store, vec![STORE_OUTPUT]), (&images.metadata, vec![""])]),
        );
        for_each(&needed, needed.len(), |(outputs, names)| outputs.fetch(names))?;
        let mut payloads = Vec::new();
        let mut add = |path: String, purpose, outputs: &StepOutputs, name: &str| -> Result<()> {
            let (size, sha256) = outputs.file(name)?;
            payloads.push((Payload { path, purpose, size, sha256 }, outputs.path(name)?));
            Ok(())
        };
        add("boot/vmlinuz".into(), Purpose::Kernel, &kernel, "vmlinuz")?;
        add("boot/initrd".into(), Purpose::Initrd, initrd, "initrd")?;
        for (name, purpose) in loaders::payloads(architecture) {
            add(format!("boot/loaders/{name}"), purpose, &kernel, &format!("loaders/{name}"))?;
        }
        add("rootfs.squashfs".into(), Purpose::Rootfs, rootfs, IMAGE_OUTPUT)?;
        if let Some(images) = images {
            for role in Role::ALL {
                let name = format!("{}.db", role.name());
                add(metadata_path(role.name()), Purpose::ImageMetadata, &images.metadata, &name)?;
            }
            let store = images.store.path(STORE_OUTPUT)?;
            for payload in &images.listing.payloads {
                let inside = payload.path.trim_start_matches("images/");
                payloads.push((payload.clone(), store.join(inside)));
            }
        }
        payloads.extend(configuration);
        let release = files::read_text(&kernel.path("kernel-release")?)?;
        let images = images.map(|images| images.listing.images.clone()).unwrap_or_default();
        let hashes = files::read_text(&rootfs.path(IMAGE_HASHES_OUTPUT)?)?;
        let hashes: ImageHashes =
            serde_json::from_str(&hashes).context("reading the root hashes of the OS image")?;
        let covered = hardware.has(HARDWARE).then(|| -> Result<_> {
            let (size, sha256) = hardware.file(HARDWARE)?;
            let payload = Payload { path: HARDWARE.into(), purpose: Purpose::Hardware, size, sha256 };
            Ok((payload, hardware.path(HARDWARE)?))
        });
        let (covered, hardware) = covered.transpose()?.unzip();
        let iso = iso_recipe(architecture, &kernel.path("loaders")?, hashes.root_hash, covered)?;
        Ok(Self { epoch, kernel, payloads, hardware, images, release, expanded: hashes.expanded, iso })
    }

    pub(super) fn source(&self, payload: &Payload) -> Result<&Path> {
        let found = self.payloads.iter().find(|(known, _)| known.path == payload.path);
        let found = found.map(|(_, source)| source);
        let found = found.or(self.hardware.as_ref().filter(|_| payload.purpose == Purpose::Hardware));
        found.map(PathBuf::as_path).with_context(|| format!("finding {}", payload.path))
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
        (sign, describe): (&ManifestSigner<'_>, &ProvenanceWriter<'_>),
    ) -> Result<MadeMedia> {
        let outputs = OutputRecord::open(&self.inputs.cache, directory)?;
        let manifests = self.manifests(parts, &outputs, targets, sign)?;
        let full = &manifests.full;
        let sums = Mutex::new(BTreeMap::new());
        let (disks, media): (Vec<_>, Vec<_>) = targets.iter().copied().partition(|kind| kind.is_disk());
        let mut work: Vec<_> = media.iter().map(std::slice::from_ref).collect();
        work.extend(Some(&disks[..]).filter(|disks| !disks.is_empty()));
        // They have no file in common, and each waits for the disk for half of its time; a disk in two formats is made once.
        for_each(&work, work.len(), |kinds| {
            let made = match kinds {
                [OutputKind::Full] => vec![self.iso(parts, full, &outputs)?],
                [OutputKind::NetInstall] => manifests
                    .net_install
                    .iter()
                    .map(|manifest| self.iso(parts, manifest, &outputs))
                    .collect::<Result<_>>()?,
                [OutputKind::Netboot] => self.netboot(parts, &full.release, &outputs)?,
                disks => self.disks((parts, full), disks, installer, &outputs)?,
            };
            locked(&sums).extend(made);
            Ok(())
        })?;
        let mut sums = std::mem::take(&mut *locked(&sums));
        let mut stale = self.keep_others(&manifests, &outputs, (targets, installer), &mut sums)?;
        let sbom = fs::read(sbom).context("reading the bill of materials")?;
        let provenance = describe(&self.made_outputs(&manifests, &sums, sbom.clone(), installer)?)?;
        let documents = [(MANIFEST, &full.bytes), (SBOM, &sbom), (PROVENANCE, &provenance)].into_iter();
        for (name, bytes) in documents.chain(full.signatures.iter().map(|text| (SIGNATURES, text))) {
            sums.insert(name.to_owned(), Digest::of(bytes));
            directory.write(name, bytes)?;
        }
        if full.signatures.is_none() && outputs.path(SIGNATURES).exists() {
            self.progress.note("outputs", format!("{SIGNATURES} is of an earlier build and is removed"));
            stale.insert(SIGNATURES.to_owned());
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
        Ok(MadeMedia { files, uses, release: full.digest(), stale, record: outputs.finish() })
    }

    /// What the statement about the outputs that `sums` lists is about.
    fn made_outputs(
        &self,
        manifests: &SignedManifests,
        sums: &BTreeMap<String, Digest>,
        sbom: Vec<u8>,
        installer: &BuildInstaller,
    ) -> Result<MadeOutputs> {
        let full = &manifests.full;
        let mut outputs = BTreeSet::new();
        let mut subjects = vec![Subject::new(MANIFEST, full.digest()), Subject::new(SBOM, Digest::of(&sbom))];
        if sums.contains_key(&iso_name(&full.release, MediumKind::Full)) {
            outputs.insert(OutputKind::Full);
        }
        if let Some(manifest) = &manifests.net_install {
            let iso = iso_name(&manifest.release, MediumKind::NetInstall);
            if sums.contains_key(&iso) {
                outputs.insert(OutputKind::NetInstall);
                subjects.push(Subject::new(net_install_manifest(&iso), manifest.digest()));
            }
        }
        if netboot_names(&full.release).iter().all(|(_, name)| sums.contains_key(name)) {
            outputs.insert(OutputKind::Netboot);
        }
        for kind in [OutputKind::DiskRaw, OutputKind::DiskQcow2] {
            let (name, _) = self.disk_key(full, kind, installer)?;
            if let Some(sha256) = sums.get(&name) {
                outputs.insert(kind);
                subjects.push(Subject::new(name, *sha256));
            }
        }
        Ok(MadeOutputs { outputs, subjects, sbom })
    }

    /// Adds to `sums` the media in the directory that were not asked for and are what this build would make. Those of an
    /// earlier build are returned: they must not stay beside the others.
    fn keep_others(
        &self,
        manifests: &SignedManifests,
        outputs: &OutputRecord<'_>,
        (targets, installer): (&BTreeSet<OutputKind>, &BuildInstaller),
        sums: &mut BTreeMap<String, Digest>,
    ) -> Result<BTreeSet<String>> {
        let mut others: Vec<Vec<(String, Value)>> = Vec::new();
        let full = &manifests.full;
        for (target, manifest) in
            [(OutputKind::Full, Some(full)), (OutputKind::NetInstall, manifests.net_install.as_ref())]
        {
            if let Some(manifest) = manifest.filter(|_| !targets.contains(&target)) {
                others.push(vec![(iso_name(&manifest.release, manifest.release.medium), iso_key(manifest))]);
            }
        }
        for kind in [OutputKind::DiskRaw, OutputKind::DiskQcow2] {
            if !targets.contains(&kind) {
                others.push(vec![self.disk_key(full, kind, installer)?]);
            }
        }
        if !targets.contains(&OutputKind::Netboot) {
            let release = &full.release;
            let payload = |purpose| release.payload(purpose).map(|payload| netboot_key(payload.sha256));
            let mut set: Vec<_> = netboot_names(release)
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

    /// The manifests of the media that are wanted, and of those that are there and may stay.
    fn manifests(
        &self,
        parts: &MediumParts,
        outputs: &OutputRecord<'_>,
        targets: &BTreeSet<OutputKind>,
        sign: &ManifestSigner<'_>,
    ) -> Result<SignedManifests> {
        let full = SignedManifest::new(self.manifest(parts, MediumKind::Full), sign)?;
        let net_install = self.manifest(parts, MediumKind::NetInstall);
        let needed = targets.contains(&OutputKind::NetInstall)
            || outputs.path(&iso_name(&net_install, MediumKind::NetInstall)).exists();
        let net_install = needed.then(|| SignedManifest::new(net_install, sign)).transpose()?;
        Ok(SignedManifests { full, net_install })
    }

    fn manifest(&self, parts: &MediumParts, medium: MediumKind) -> Release {
        let definition = &self.inputs.loaded.definition;
        Release {
            format: FORMAT,
            id: definition.id.clone(),
            name: definition.name.clone(),
            version: definition.version.clone(),
            rollback_index: definition.trust.rollback_index,
            architecture: definition.architecture,
            epoch: parts.epoch,
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
        manifest: &SignedManifest,
        outputs: &OutputRecord<'_>,
    ) -> Result<(String, Digest)> {
        let SignedManifest { release, bytes, signatures } = manifest;
        let step = match release.medium {
            MediumKind::Full => "iso-full",
            MediumKind::NetInstall => "iso-net-install",
        };
        let name = iso_name(release, release.medium);
        let output = outputs.path(&name);
        let digest = outputs.made(&name, step, &iso_key(manifest), self.progress, |file| {
            self.warn_of_customized(&output, step);
            if signatures.is_none() {
                self.warn_of_signed(&output, step);
            }
            let scratch =
                tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
            let recipe = Recipe::new(release, bytes);
            let loaders = parts.kernel.path("loaders")?;
            let source = |payload: &Payload| parts.source(payload).map(Path::to_owned);
            let iso = assemble(&recipe, signatures.as_deref(), &loaders, &source, scratch.path())?;
            iso.write(file, &output, step, self.progress)?;
            Ok(None)
        })?;
        Ok((name, digest))
    }

    /// Kernel, initrd and OS image beside the ISOs, as links to the cache where the disk allows it.
    fn netboot(
        &self,
        parts: &MediumParts,
        release: &Release,
        outputs: &OutputRecord<'_>,
    ) -> Result<Vec<(String, Digest)>> {
        let mut sums = Vec::new();
        for (purpose, name) in netboot_names(release) {
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

    /// Warns that a signed medium is overwritten with an unsigned one.
    fn warn_of_signed(&self, output: &Path, step: &str) {
        let signatures = MediumReader::open(output).and_then(|medium| medium.signatures());
        if matches!(signatures, Ok(Some(_))) {
            let text = format!(
                "warning: {} was signed; this build replaces it with an unsigned one; sign it again",
                output.display()
            );
            self.progress.note(step, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use base::failure::{Class, class_of};

    fn signed(text: Option<&[u8]>) -> Result<SignedManifest> {
        SignedManifest::new(testing::release::release(), &|_| Ok(text.map(Vec::from)))
    }

    #[test]
    fn a_medium_is_made_anew_for_other_signatures_and_only_then() {
        let keys: Vec<_> = [None, Some(&b"one\n"[..]), Some(b"one\n\n"), Some(b"one\ntwo\n")]
            .into_iter()
            .map(|text| iso_key(&signed(text).unwrap()))
            .collect();
        assert_eq!(keys[1], keys[2], "padding is no difference");
        assert!(keys[0] != keys[1] && keys[1] != keys[3]);
        assert_eq!(signed(Some(b"\n")).unwrap().signatures, None);
    }

    #[test]
    fn the_signer_gets_the_manifest_and_what_no_medium_could_have_is_refused() {
        let manifest = testing::release::release().to_bytes();
        let sign = |bytes: &[u8]| Ok(Some(Digest::of(bytes).to_string().into_bytes()));
        let signed_manifest = SignedManifest::new(testing::release::release(), &sign).unwrap();
        let text = format!("{}\n", Digest::of(&manifest)).into_bytes();
        assert_eq!((signed_manifest.signatures, signed_manifest.bytes), (Some(text), manifest));
        for text in [&[b'a'; 8192][..], b"a\0\n", b"a\n\nb\n"] {
            assert_eq!(class_of(&signed(Some(text)).unwrap_err()), Class::Verification);
        }
        SignedManifest::new(testing::release::release(), &|_| Err(anyhow!("no key"))).unwrap_err();
    }
}
