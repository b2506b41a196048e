//! `iso-builder inspect`: what a medium says about itself. Checks nothing; that is `verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use base::digest::Digest;
use base::program::Context;
use base::size::ByteSize;
use clap::Args;
use jiff::Timestamp;
use medium::reader::MediumReader;
use model::release::{Image, MediumKind, Payload, Purpose, Release};
use serde::Serialize;
use trust::TrustStore;

use crate::media::customize::{ConfigSummary, Customization};
use crate::provenance::ProvenanceDescription;
use crate::signing::SignatureSummary;
use crate::signing::arguments::KnownKeyArguments;
use crate::wording::{counted, printable};

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Show what a medium carries.
#[derive(Debug, Args)]
pub struct InspectCommand {
    /// An ISO, a drive that holds one, a directory with release.json, or the URL of an ISO or of such a directory.
    pub medium: PathBuf,
    #[command(flatten)]
    pub(crate) known: KnownKeyArguments,
}

impl InspectCommand {
    pub fn run(self, context: &Context) -> Result<()> {
        let known = self.known.store()?;
        let mut description = MediumDescription::of(&MediumReader::open(&self.medium)?, &known)?;
        if self.medium.is_dir() {
            description.provenance = Some(ProvenanceDescription::of(&self.medium, &known));
        }
        context.show(&description, || description.to_string())
    }
}

#[derive(Debug, Serialize)]
pub struct MediumDescription {
    /// The path that the user named.
    pub medium: PathBuf,
    /// Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeDescription>,
    /// Of the release manifest.
    pub release_sha256: Digest,
    /// Who has signed it, by the keys that are known here.
    pub signatures: SignatureSummary,
    pub release: Release,
    pub totals: PayloadTotals,
    /// The install configurations that the medium was built with.
    pub install_configs: Vec<EmbeddedConfig>,
    /// Its customization; configurations from there are used instead of those.
    pub customized: Customization,
    /// What it was built from; absent for an ISO, which has it beside itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<ProvenanceDescription>,
}

/// The description of an ISO, from its volume descriptor.
#[derive(Debug, Serialize)]
pub struct VolumeDescription {
    pub id: String,
    /// When it was made, RFC 3339.
    pub created: Option<String>,
    /// In bytes.
    pub size: u64,
}

/// Sums over the payloads, from the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PayloadTotals {
    pub payloads: usize,
    pub bytes: u64,
    /// How many an install downloads.
    pub remote_payloads: usize,
    pub remote_bytes: u64,
}

/// An install configuration on the medium. It has no field that could hold a secret.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct EmbeddedConfig {
    pub path: String,
    /// In bytes, from the manifest.
    pub size: u64,
    pub sha256: Digest,
    /// Absent if it is not readable as an install configuration.
    pub summary: Option<ConfigSummary>,
}

impl MediumDescription {
    /// Reads the manifest, and the embedded configurations that it names.
    pub fn of(medium: &MediumReader, known: &TrustStore) -> Result<Self> {
        let release = medium.release()?;
        let volume = medium.iso().map(|iso| VolumeDescription {
            id: iso.volume().id.clone(),
            created: iso.volume().created.map(|time| time.to_string()),
            size: iso.volume().size,
        });
        Ok(Self {
            medium: medium.path().to_owned(),
            volume,
            release_sha256: medium.release_digest(),
            signatures: SignatureSummary::of(medium, known),
            totals: PayloadTotals::of(&release),
            install_configs: release
                .payloads(Purpose::InstallConfig)
                .map(|payload| EmbeddedConfig::read(medium, payload))
                .collect(),
            customized: Customization::of(medium, known),
            provenance: None,
            release,
        })
    }
}

impl PayloadTotals {
    fn of(release: &Release) -> Self {
        let mut totals = Self { payloads: 0, bytes: 0, remote_payloads: 0, remote_bytes: 0 };
        for payload in release.all_payloads() {
            let (count, bytes) = if payload.is_remote_on(release.medium) {
                (&mut totals.remote_payloads, &mut totals.remote_bytes)
            } else {
                (&mut totals.payloads, &mut totals.bytes)
            };
            *count += 1;
            *bytes = bytes.saturating_add(payload.size);
        }
        totals
    }
}

impl EmbeddedConfig {
    /// The parser's message is left out: it quotes the document, which may have secrets.
    fn read(medium: &MediumReader, payload: &Payload) -> Self {
        let bytes = medium.read_at_most(&payload.path, MAX_CONFIG_BYTES).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let summary = text.as_deref().and_then(ConfigSummary::of);
        Self { path: payload.path.clone(), size: payload.size, sha256: payload.sha256, summary }
    }
}

impl fmt::Display for MediumDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_payloads(f)?;
        write_images(&self.release, f)?;
        for config in &self.install_configs {
            writeln!(f, "\n{config}")?;
        }
        write!(f, "\n{}", self.customized)?;
        self.provenance.iter().try_for_each(|provenance| write!(f, "\n\n{provenance}"))
    }
}

impl MediumDescription {
    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let release = &self.release;
        let kind = match release.medium {
            MediumKind::Full => "full medium",
            MediumKind::NetInstall => "net-install medium",
        };
        let name = printable(&release.name);
        writeln!(f, "{name} {} for {}, {kind}", printable(&release.version), release.architecture)?;
        writeln!(f, "  id        {}", printable(&release.id))?;
        writeln!(f, "  release   sha256:{}", self.release_sha256)?;
        writeln!(f, "  signed    {}", printable(&self.signatures.text))?;
        if !release.rollback_index.is_zero() {
            writeln!(f, "  rollback  index {}", release.rollback_index)?;
        }
        if let Some(time) = i64::try_from(release.epoch).ok().and_then(|s| Timestamp::from_second(s).ok()) {
            writeln!(f, "  dated     {time}")?;
        }
        writeln!(f, "  kernel    {}", printable(&release.kernel))?;
        if !release.kernel_arguments.is_empty() {
            writeln!(f, "  arguments {}", printable(&release.kernel_arguments.join(" ")))?;
        }
        if let Some(volume) = &self.volume {
            let size = ByteSize::bytes(volume.size);
            write!(f, "  volume    {}, {size}", printable(&volume.id))?;
            match &volume.created {
                Some(time) => writeln!(f, ", made {time}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }

    /// Image blobs are many and have no names: only their sum is printed.
    fn write_payloads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nPayloads")?;
        let named = || self.release.all_payloads().filter(|payload| payload.purpose != Purpose::ImageBlob);
        let width = named().map(|payload| printable(&payload.path).chars().count()).max().unwrap_or_default();
        for payload in named() {
            let (path, size) = (printable(&payload.path), ByteSize::bytes(payload.size));
            writeln!(f, "  {path:width$}  {size:>10}  {}", word(payload.purpose))?;
        }
        let blobs = || self.release.payloads(Purpose::ImageBlob);
        if blobs().next().is_some() {
            let size = ByteSize::bytes(blobs().map(|blob| blob.size).fold(0, u64::saturating_add));
            writeln!(f, "  {}, {size}", counted(blobs().count(), "image blob"))?;
        }
        let totals = &self.totals;
        let (count, size) = (counted(totals.payloads, "payload"), ByteSize::bytes(totals.bytes));
        write!(f, "  {count} on the medium, {size}")?;
        if totals.remote_payloads > 0 {
            let size = ByteSize::bytes(totals.remote_bytes);
            write!(f, "; {} for an install to download, {size}", totals.remote_payloads)?;
        }
        writeln!(f)
    }
}

fn write_images(release: &Release, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if release.images.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nImages")?;
    let sizes: BTreeMap<Digest, u64> =
        release.payloads(Purpose::ImageBlob).map(|blob| (blob.sha256, blob.size)).collect();
    for image in &release.images {
        let roles = if image.roles.is_empty() { "every role".into() } else { image.roles.join(", ") };
        let (blobs, size) = (counted(image.blobs.len(), "blob"), image_size(image, &sizes));
        writeln!(f, "  {}  {}, {blobs}, {size}", printable(&image.name), printable(&roles))?;
    }
    let all: BTreeSet<_> = release.images.iter().flat_map(|image| &image.blobs).collect();
    writeln!(f, "  {} of {}", counted(all.len(), "different blob"), counted(release.images.len(), "image"))
}

fn image_size(image: &Image, sizes: &BTreeMap<Digest, u64>) -> ByteSize {
    let sizes = image.blobs.iter().filter_map(|blob| sizes.get(blob));
    ByteSize::bytes(sizes.copied().fold(0, u64::saturating_add))
}

/// The word for a purpose, mode or role in the manifest or the configuration.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

impl fmt::Display for EmbeddedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Embedded install configuration")?;
        writeln!(f, "  path      {}, {} bytes", printable(&self.path), self.size)?;
        writeln!(f, "  sha256    {}", self.sha256)?;
        let Some(summary) = &self.summary else {
            return write!(f, "  not readable as an install configuration");
        };
        let hostname = summary.hostname.as_deref().map_or("not set".into(), printable);
        let device = summary.device.as_ref().map(|device| printable(device));
        writeln!(f, "  hostname  {hostname}")?;
        writeln!(f, "  mode      {}", word(summary.mode))?;
        writeln!(f, "  role      {}", word(summary.role))?;
        writeln!(f, "  device    {}", device.as_deref().unwrap_or("not set"))?;
        write!(f, "  automatic {}", if summary.automatic { "yes" } else { "no" })
    }
}
