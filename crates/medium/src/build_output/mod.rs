//! The directory that a build writes: media of one release, its manifest, and [`CHECKSUMS`] with the digest of each of them.
//!
//! A build puts its outputs there together, and [`CHECKSUMS`] last; it takes that away first. So a directory that has it is
//! whole, and one in which a build was cut off in the few moments in between has none.

mod verify;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::read_at_most;
use model::release::{MediumKind, Purpose, Release};

pub use verify::{OutputFinding, OutputReport};

/// The digests of all outputs, as `sha256sum --check` reads them.
pub const CHECKSUMS: &str = "SHA256SUMS";
/// The report of a build with the list of its outputs. It is not in [`CHECKSUMS`], because it has times and differs each time.
pub const REPORT: &str = "build-report.json";
/// The bill of materials of a release: SPDX.
pub const SBOM: &str = "sbom.spdx.json";
/// The provenance of a release: an in-toto statement in a DSSE envelope.
pub const PROVENANCE: &str = "provenance.intoto.jsonl";
/// Where a build keeps its outputs until all of them are finished.
pub const UNFINISHED: &str = ".iso-builder.unfinished";
/// The hint for outputs of different builds.
pub const BUILD_AGAIN: &str = "Build again into this directory, or copy all of its files again.";

const MAX_CHECKSUMS: u64 = 1 << 20;
/// The suffixes of the files of the netboot set.
const NETBOOT: [(Purpose, &str); 3] =
    [(Purpose::Kernel, "vmlinuz"), (Purpose::Initrd, "initrd"), (Purpose::Rootfs, "rootfs.squashfs")];

/// The suffix of the ISO for net installs.
const NET_INSTALL: &str = "-net-install";

/// The common prefix of the outputs of a release.
fn stem(release: &Release) -> String {
    format!("{}-{}-{}", release.id, release.version, release.architecture)
}

#[must_use]
pub fn iso_name(release: &Release, kind: MediumKind) -> String {
    let suffix = match kind {
        MediumKind::Full => "",
        MediumKind::NetInstall => NET_INSTALL,
    };
    format!("{}{suffix}.iso", stem(release))
}

/// The names of a release's files for starting over the network, with what each is for.
#[must_use]
pub fn netboot_names(release: &Release) -> Vec<(Purpose, String)> {
    let stem = stem(release);
    NETBOOT.into_iter().map(|(purpose, suffix)| (purpose, format!("{stem}-{suffix}"))).collect()
}

/// A directory that a build wrote.
#[derive(Clone, Debug)]
pub struct BuildOutput {
    path: PathBuf,
    sums: BTreeMap<String, Digest>,
}

impl BuildOutput {
    /// The build output at `path`; none where that is no directory, or another one.
    ///
    /// # Errors
    /// [`Class::Verification`] if a build was interrupted while it moved its outputs there, or the list of digests is damaged.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        if path.join(UNFINISHED).exists() && !path.join(CHECKSUMS).exists() {
            let what = format!("{} has no complete build", path.display());
            let why = anyhow!("a build is running or was interrupted: {CHECKSUMS} is missing");
            return Err(Failure::new(Class::Verification, what).because(why).hint(BUILD_AGAIN).into());
        }
        let file = path.join(CHECKSUMS);
        if !path.is_dir() || !file.is_file() {
            return Ok(None);
        }
        let bytes = read_at_most(&file, MAX_CHECKSUMS)?;
        let damaged = |why: &str| {
            let what = format!("reading {}", file.display());
            Failure::new(Class::Verification, what).because(anyhow!("{why}")).hint(BUILD_AGAIN)
        };
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is not a text file"))?;
        let sums = text.lines().map(entry).collect::<Option<_>>();
        let sums = sums.ok_or_else(|| damaged("a line is not a SHA-256 and the name of a file"))?;
        Ok(Some(Self { path: path.to_owned(), sums }))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The medium of the build: its full ISO, or that for net installs where it made no other.
    #[must_use]
    pub fn iso(&self) -> Option<PathBuf> {
        let isos = self.sums.keys().filter(|name| name.ends_with(".iso"));
        let iso = isos.min_by_key(|name| name.ends_with(&format!("{NET_INSTALL}.iso")))?;
        Some(self.file(iso))
    }

    #[must_use]
    pub fn sums(&self) -> &BTreeMap<String, Digest> {
        &self.sums
    }
}

/// A line of [`CHECKSUMS`]. A name is that of a file right in the directory.
fn entry(line: &str) -> Option<(String, Digest)> {
    let (digest, name) = line.split_once("  ")?;
    let plain = !name.is_empty() && !name.contains('/') && name != "..";
    Some((name.to_owned(), digest.parse().ok()?)).filter(|_| plain)
}
