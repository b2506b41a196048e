//! The disk of an installed node, by the installer that is in the OS image: it plans and writes as in an install.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::files;
use medium::build_output::iso_name;
use model::release::{MANIFEST, MediumKind, SIGNATURES};
use serde_json::{Value, json};

use super::context::Build;
use super::media::{MediumParts, SignedManifest};
use super::program::BuildInstaller;
use super::record::OutputRecord;
use crate::definition::OutputKind;
use crate::emulation;

/// For an image with hundreds of GiB of container images, on a slow disk.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

impl Build<'_> {
    /// The name of the output, and what it is made from.
    pub(super) fn disk_key(
        &self,
        manifest: &SignedManifest,
        kind: OutputKind,
        installer: &BuildInstaller,
    ) -> Result<(String, Value)> {
        let name = iso_name(&manifest.release, MediumKind::Full);
        let suffix = if kind == OutputKind::DiskRaw { "raw" } else { "qcow2" };
        let spec = &self.inputs.loaded.definition.disk;
        let config = spec
            .config
            .as_ref()
            .map(|file| files::read_text(&self.inputs.loaded.resolve(file)))
            .transpose()?;
        let key = json!({
            "release": manifest.digest(),
            "signatures": manifest.signatures_digest(),
            "installer": installer.sha256,
            "size": spec.size,
            "profile": spec.profile,
            "config": config.map(|text| Digest::of(text.as_bytes())),
        });
        Ok((format!("{}.{suffix}", name.trim_end_matches(".iso")), key))
    }

    /// Makes the disks of `kinds` that are not up to date.
    pub(super) fn disks(
        &self,
        medium: (&MediumParts, &SignedManifest),
        kinds: &[OutputKind],
        installer: &BuildInstaller,
        outputs: &OutputRecord<'_>,
    ) -> Result<Vec<(String, Digest)>> {
        let scratch =
            tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
        let apart = scratch.path().join("disk.raw");
        // The raw disk, if this build has made it.
        let mut raw: Option<PathBuf> = None;
        let mut made = Vec::new();
        for kind in kinds {
            let (name, key) = self.disk_key(medium.1, *kind, installer)?;
            let digest = match kind {
                OutputKind::DiskRaw => outputs.made(&name, "disk-raw", &key, self.progress, |file| {
                    self.write_disk(medium, installer, scratch.path(), file)?;
                    raw = Some(file.to_owned());
                    Ok(None)
                }),
                _ => outputs.made(&name, "disk-qcow2", &key, self.progress, |file| {
                    let raw = match &raw {
                        Some(raw) => raw,
                        None => {
                            self.write_disk(medium, installer, scratch.path(), &apart)?;
                            &apart
                        }
                    };
                    self.progress.within("disk-qcow2", format!("Making {name}"), || convert(raw, file))?;
                    Ok(None)
                }),
            };
            made.push((name, digest?));
        }
        Ok(made)
    }

    fn write_disk(
        &self,
        (parts, manifest): (&MediumParts, &SignedManifest),
        installer: &BuildInstaller,
        scratch: &Path,
        file: &Path,
    ) -> Result<()> {
        let medium = scratch.join("medium");
        if !medium.exists() {
            lay_out(parts, manifest, &medium)?;
        }
        let spec = &self.inputs.loaded.definition.disk;
        let run = emulation::invocation(&installer.path, self.inputs.loaded.definition.architecture)?;
        let mut run = run.args(["--progress", "plain", "disk-image"]);
        run = run.arg("--medium").arg(&medium).arg("--output").arg(file);
        if let Some(size) = spec.size {
            run = run.args(["--size", &size.get().to_string()]);
        }
        match &spec.config {
            Some(config) => run = run.arg("--config").arg(self.inputs.loaded.resolve(config)),
            None => {
                let profile = serde_json::to_value(spec.profile)?;
                run = run.args(profile.as_str().map(|profile| ["--profile", profile]).into_iter().flatten());
            }
        }
        let write = || SystemRunner.run(&run.limit(LIMIT)).map(drop).context("writing the disk of a node");
        self.progress.within("disk-raw", "Writing the disk of a node", write)
    }
}

/// The content of the full medium as a directory, of links.
fn lay_out(parts: &MediumParts, manifest: &SignedManifest, medium: &Path) -> Result<()> {
    for payload in manifest.release.all_payloads() {
        let (path, source) = (medium.join(&payload.path), parts.source(payload)?.canonicalize()?);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        symlink(source, &path).with_context(|| format!("making {}", path.display()))?;
    }
    if let Some(text) = &manifest.signatures {
        fs::write(medium.join(SIGNATURES), text).context("writing the signatures of the release")?;
    }
    fs::write(medium.join(MANIFEST), &manifest.bytes).context("writing the release manifest")
}

/// One request after another, so that the same clusters are in the same places.
fn convert(raw: &Path, qcow2: &Path) -> Result<()> {
    let convert = Invocation::new("qemu-img")
        .args(["convert", "-q", "-m", "1", "-f", "raw", "-O", "qcow2"])
        .arg(raw)
        .arg(qcow2)
        .limit(LIMIT);
    SystemRunner.run(&convert).map(drop)?;
    fs::set_permissions(qcow2, fs::metadata(raw)?.permissions()).context("setting the mode of the disk")
}
