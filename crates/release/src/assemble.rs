//! Fills the directory of a release.
//!
//! What was built is copied, never linked: `iso-builder customize` changes an ISO in place, and secrets of a node must not
//! reach a release that way. For the same reason every file is compared with the checksums of its build.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base::digest::{Digest, HashingReader};
use base::files;
use model::release::{MANIFEST, Purpose, Release, SIGNATURES};
use serde::Serialize;

use crate::asset::Asset;
use crate::changelog::Changelog;
use crate::page;

/// The version of the form of [`UPLOAD_MANIFEST`].
const FORMAT: u32 = 1;
const CHECKSUMS: &str = "SHA256SUMS";
const UPLOAD_MANIFEST: &str = "upload.json";
const NOTES: &str = "release-notes.md";
const PAGE: &str = "README.md";

/// The report of a build, which lists the checksums and so is not in them.
const REPORT: &str = "build-report.json";

/// The bill of materials and the provenance of a build.
const SBOM: &str = "sbom.spdx.json";
const PROVENANCE: &str = "provenance.intoto.jsonl";

/// Files that every build names alike: a release has them under the names of their media.
const DOCUMENTS: [&str; 6] = [MANIFEST, SIGNATURES, SBOM, PROVENANCE, "custom.img", REPORT];

#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) version: &'static str,
    /// Output directories of builds.
    pub(crate) media: Vec<PathBuf>,
    pub(crate) packages: PathBuf,
    pub(crate) changelog: Changelog,
}

#[derive(Debug, Serialize)]
struct UploadManifest<'a> {
    format: u32,
    version: &'a str,
    files: &'a [Asset],
}

/// Fills the missing or empty directory `out`; returns its files, but for the upload manifest, sorted by name.
pub(crate) fn assemble(inputs: &Inputs, out: &Path) -> Result<Vec<Asset>> {
    let notes = inputs.changelog.notes(inputs.version)?;
    files::make_directory(out, 0o755)?;
    let used = fs::read_dir(out).with_context(|| format!("listing {}", out.display()))?.next().is_some();
    ensure!(!used, "{} is not empty: name another directory, or remove what is in it", out.display());

    let mut assets = Vec::new();
    for media in &inputs.media {
        let copied = copy_media(media, inputs.version, out);
        assets.extend(copied.with_context(|| format!("taking the media of {}", media.display()))?);
    }
    assets.extend(
        copy_packages(&inputs.packages, out)
            .with_context(|| format!("taking the packages of {}", inputs.packages.display()))?,
    );
    assets.push(write(out, NOTES, &notes)?);
    assets.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some(pair) = assets.windows(2).find(|pair| pair[0].name == pair[1].name) {
        bail!(
            "two files of the release are called {}: give the image definitions different ids",
            pair[0].name
        );
    }
    assets.push(write(out, PAGE, &page::render(inputs.version, &assets)?)?);
    assets.sort_by(|one, other| one.name.cmp(&other.name));
    let lines = assets.iter().map(|asset| format!("{}  {}\n", asset.sha256, asset.name));
    assets.push(write(out, CHECKSUMS, &lines.collect::<String>())?);
    assets.sort_by(|one, other| one.name.cmp(&other.name));
    let manifest = UploadManifest { format: FORMAT, version: inputs.version, files: &assets };
    write(out, UPLOAD_MANIFEST, &format!("{}\n", serde_json::to_string_pretty(&manifest)?))?;
    Ok(assets)
}

/// Copies what a build lists in its checksums, and its report.
fn copy_media(media: &Path, version: &str, out: &Path) -> Result<Vec<Asset>> {
    let release = Release::parse(&fs::read(media.join(MANIFEST)).context("reading the release manifest")?)?;
    ensure!(
        release.version == version,
        "the media have version {}, the programs {version}: correct the image definition, and build again",
        release.version
    );
    let embedded = release.payloads(Purpose::InstallConfig).next().is_some();
    ensure!(!embedded, "the media carry an install configuration: build them without `install_config`");
    let prefix = format!("{}-{}-{}", release.id, release.version, release.architecture);
    let mut expected = checksums(&files::read_text(&media.join(CHECKSUMS))?)?;
    if !expected.contains_key(REPORT) && media.join(REPORT).exists() {
        expected.insert(REPORT.into(), None);
    }
    let mut assets = Vec::new();
    for (name, digest) in expected {
        let to = if DOCUMENTS.contains(&name.as_str()) { format!("{prefix}-{name}") } else { name.clone() };
        let asset = copy(&media.join(&name), out, to)?;
        if digest.is_some_and(|digest| digest != asset.sha256) {
            bail!(
                "{name} differs from {CHECKSUMS} of its build, so it is damaged or customized: build the media again"
            );
        }
        assets.push(asset);
    }
    Ok(assets)
}

fn copy_packages(packages: &Path, out: &Path) -> Result<Vec<Asset>> {
    let mut assets = Vec::new();
    for entry in fs::read_dir(packages)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".deb") || name.ends_with(".tar.gz") {
            assets.push(copy(&entry.path(), out, name)?);
        }
    }
    ensure!(!assets.is_empty(), "no packages found: run `make packages`");
    Ok(assets)
}

/// The names and digests of a list of checksums, none of which leaves its directory.
fn checksums(text: &str) -> Result<BTreeMap<String, Option<Digest>>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let (digest, name) =
            line.split_once("  ").with_context(|| format!("reading the checksum {line:?}"))?;
        ensure!(
            !name.contains('/') && !name.starts_with('.'),
            "{CHECKSUMS} names {name:?}: expected a file name"
        );
        all.insert(
            name.to_owned(),
            Some(digest.parse().with_context(|| format!("reading the digest of {name}"))?),
        );
    }
    Ok(all)
}

fn copy(from: &Path, out: &Path, name: String) -> Result<Asset> {
    let file = File::open(from).with_context(|| format!("opening {}", from.display()))?;
    let (mut source, mut size) = (HashingReader::new(file), 0);
    files::fill_atomically(&out.join(&name), 0o644, |target| {
        size = std::io::copy(&mut source, target)?;
        Ok(())
    })?;
    Asset::new(name, size, source.digest())
}

fn write(out: &Path, name: &str, text: &str) -> Result<Asset> {
    files::write_atomically(&out.join(name), text.as_bytes(), 0o644)?;
    Asset::new(name.into(), text.len() as u64, Digest::of(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::release::Payload;
    use tempfile::TempDir;

    /// A directory with the media of a build, tiny ones, and with a package.
    fn inputs(version: &'static str, payloads: Vec<Payload>) -> (TempDir, Inputs) {
        let place = tempfile::tempdir().unwrap();
        let (media, packages) = (place.path().join("media"), place.path().join("packages"));
        fs::create_dir_all(&media).unwrap();
        fs::create_dir_all(&packages).unwrap();
        let mut release = testing::release::release();
        (release.id, release.version, release.payloads) = ("a".into(), version.into(), payloads);
        let files = [
            (MANIFEST, release.to_bytes()),
            (SIGNATURES, b"untrusted comment: a\n".to_vec()),
            (SBOM, b"{}".to_vec()),
            (PROVENANCE, b"{}\n".to_vec()),
            ("custom.img", vec![0; 16]),
            ("a-1.0.0-amd64.iso", b"full".to_vec()),
            ("a-1.0.0-amd64-net-install.iso", b"net".to_vec()),
        ];
        let mut sums = String::new();
        for (name, bytes) in &files {
            fs::write(media.join(name), bytes).unwrap();
            sums += &format!("{}  {name}\n", Digest::of(bytes));
        }
        fs::write(media.join(CHECKSUMS), sums).unwrap();
        fs::write(media.join(REPORT), "{}").unwrap();
        fs::write(media.join("left-of-an-earlier-build.iso"), "old").unwrap();
        fs::write(packages.join("nqrust-installer_1.0.0-1_amd64.deb"), "deb").unwrap();
        let changelog = Changelog::parse("\n## [1.0.0] - 2030-01-01\n\n### Added\n\n- all\n").unwrap();
        (place, Inputs { version: "1.0.0", media: vec![media], packages, changelog })
    }

    #[test]
    fn a_release_has_the_files_of_its_builds_and_each_with_its_checksum() {
        let (place, inputs) = inputs("1.0.0", Vec::new());
        let out = place.path().join("out");
        let assets = assemble(&inputs, &out).unwrap();
        let names: Vec<_> = assets.iter().map(|asset| asset.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "README.md",
                "SHA256SUMS",
                "a-1.0.0-amd64-build-report.json",
                "a-1.0.0-amd64-custom.img",
                "a-1.0.0-amd64-net-install.iso",
                "a-1.0.0-amd64-provenance.intoto.jsonl",
                "a-1.0.0-amd64-release.json",
                "a-1.0.0-amd64-release.json.minisig",
                "a-1.0.0-amd64-sbom.spdx.json",
                "a-1.0.0-amd64.iso",
                "nqrust-installer_1.0.0-1_amd64.deb",
                "release-notes.md",
            ]
        );
        let sums = fs::read_to_string(out.join(CHECKSUMS)).unwrap();
        assert_eq!(sums.lines().count(), names.len() - 1);
        for line in sums.lines() {
            let (digest, name) = line.split_once("  ").unwrap();
            assert_eq!(digest, Digest::of(&fs::read(out.join(name)).unwrap()).to_string(), "{name}");
        }
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join(UPLOAD_MANIFEST)).unwrap()).unwrap();
        assert_eq!(manifest["files"].as_array().unwrap().len(), names.len());
        assert_eq!(manifest["files"][9]["media_type"], "application/x-iso9660-image");
        assert_eq!(manifest["files"][9]["size"], 4);
        let page = fs::read_to_string(out.join(PAGE)).unwrap();
        assert!(
            names.iter().filter(|name| **name != PAGE).all(|name| page.contains(&format!("`{name}`"))),
            "{page}"
        );
    }

    #[test]
    fn a_directory_that_is_used_is_left_alone() {
        let (place, inputs) = inputs("1.0.0", Vec::new());
        let error = assemble(&inputs, place.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }

    #[test]
    fn a_customized_iso_is_not_published() {
        let (place, inputs) = inputs("1.0.0", Vec::new());
        fs::write(inputs.media[0].join("a-1.0.0-amd64.iso"), "with the secrets of a node").unwrap();
        let error = format!("{:#}", assemble(&inputs, &place.path().join("out")).unwrap_err());
        assert!(error.contains("a-1.0.0-amd64.iso differs from SHA256SUMS"), "{error}");
    }

    #[test]
    fn media_with_an_install_configuration_or_of_another_version_are_not_published() {
        let config = Payload {
            path: "config/install.yaml".into(),
            purpose: Purpose::InstallConfig,
            size: 1,
            sha256: Digest::of(b""),
        };
        for (version, payloads, wanted) in [
            ("1.0.0", vec![config], "carry an install configuration"),
            ("0.9.0", Vec::new(), "have version 0.9.0"),
        ] {
            let (place, inputs) = inputs(version, payloads);
            let error = format!("{:#}", assemble(&inputs, &place.path().join("out")).unwrap_err());
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_checksum_of_a_file_elsewhere_is_refused() {
        let digest = Digest::of(b"");
        for name in ["../a.iso", "/etc/shadow", ".hidden"] {
            assert!(checksums(&format!("{digest}  {name}\n")).is_err(), "{name}");
        }
    }
}
