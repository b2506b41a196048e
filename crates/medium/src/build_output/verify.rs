//! Verifies that the outputs of a build are unchanged and of the same build.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::read_at_most;
use base::progress::Progress;
use base::size::ByteSize;
use model::release::{MANIFEST, MediumKind, Release};
use serde::Serialize;

use super::{BUILD_AGAIN, BuildOutput, CHECKSUMS, REPORT, iso_name, netboot_names};
use crate::customization::{self, area};
use crate::iso::{self, CheckScope, IsoMap};
use crate::reader::MediumReader;

/// The size limit of a manifest and a report, in bytes.
const MAX_DOCUMENT: u64 = 32 << 20;

/// The result of comparing the outputs of a build.
#[derive(Debug, Serialize)]
pub struct OutputReport {
    /// The directory, as the user named it.
    pub output: PathBuf,
    /// Short name and version of the product.
    pub release: String,
    /// Of the release manifest.
    pub release_sha256: Digest,
    pub files: usize,
    /// The media among them, by their names.
    pub media: Vec<String>,
    /// Bytes that were compared.
    pub bytes: u64,
    pub findings: Vec<OutputFinding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputFinding {
    pub path: String,
    pub reason: String,
}

impl BuildOutput {
    /// Reads and compares every output: ISOs byte by byte with what the builder writes, everything with its digest, and
    /// all of them with the release manifest. What was customized afterwards is compared as `customize` leaves it.
    ///
    /// # Errors
    /// [`Class::Verification`] for a directory without a readable manifest.
    pub fn verify(&self, progress: &Progress) -> Result<OutputReport> {
        let manifest = self.manifest()?;
        let release = Release::parse(&manifest).class(Class::Verification, || self.reading(MANIFEST))?;
        let mut comparison = Comparison {
            output: self,
            digest: Digest::of(&manifest),
            release: &release,
            progress,
            bytes: 0,
            media: Vec::new(),
            findings: Vec::new(),
        };
        for (name, sum) in self.sums() {
            if let Err(error) = comparison.compare(name, *sum) {
                comparison.find(name, unreadable(&error));
            }
        }
        comparison.compare_report();
        let Comparison { digest: release_sha256, bytes, media, findings, .. } = comparison;
        Ok(OutputReport {
            output: self.path().to_owned(),
            release: format!("{} {}", release.id, release.version),
            release_sha256,
            files: self.sums().len(),
            media,
            bytes,
            findings,
        })
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        let path = self.file(MANIFEST);
        read_at_most(&path, MAX_DOCUMENT).map_err(|error| {
            Failure::new(Class::Verification, self.reading(MANIFEST))
                .because(anyhow!("{}", error.root_cause()))
                .hint(BUILD_AGAIN)
                .into()
        })
    }

    fn reading(&self, name: &str) -> String {
        format!("reading {}", self.file(name).display())
    }
}

struct Comparison<'a> {
    output: &'a BuildOutput,
    digest: Digest,
    release: &'a Release,
    progress: &'a Progress,
    bytes: u64,
    media: Vec<String>,
    findings: Vec<OutputFinding>,
}

impl Comparison<'_> {
    fn find(&mut self, name: &str, reason: impl Into<String>) {
        self.findings.push(OutputFinding { path: name.to_owned(), reason: reason.into() });
    }

    fn compare(&mut self, name: &str, sum: Digest) -> Result<()> {
        let kinds = [MediumKind::Full, MediumKind::NetInstall];
        if let Some(kind) = kinds.into_iter().find(|kind| iso_name(self.release, *kind) == name) {
            return self.compare_iso(name, kind, sum);
        }
        let found = self.hash(name)?;
        if name == customization::FILE && found != sum {
            // The area of a netboot set, which has a digest of its own.
            match area::read(File::open(self.output.file(name))?) {
                Ok(Some(_)) => {}
                Ok(None) => self.find(name, differs()),
                Err(damage) => self.find(name, format!("is damaged: {damage}")),
            }
            return Ok(());
        }
        if found != sum {
            self.find(name, differs());
        }
        let booted = netboot_names(self.release).into_iter().find(|(_, known)| known == name);
        if let Some((purpose, _)) = booted {
            self.media.push(name.to_owned());
            if self.release.payload(purpose).is_none_or(|payload| payload.sha256 != sum) {
                self.find(name, format!("is of another build than {MANIFEST}"));
            }
        }
        if name == MANIFEST && found != self.digest {
            self.find(name, "was changed while it was read");
        }
        Ok(())
    }

    fn compare_iso(&mut self, name: &str, kind: MediumKind, sum: Digest) -> Result<()> {
        self.media.push(name.to_owned());
        let path = self.output.file(name);
        let found = self.hash(name)?;
        let medium = match MediumReader::open_for_verification(&path) {
            Ok(medium) => medium,
            Err(error) => {
                self.find(name, format!("is damaged: {}", base::failure::causes(&error).join(": ")));
                return Ok(());
            }
        };
        let release = medium.release()?;
        let wanted = Release { medium: kind, ..self.release.clone() };
        if release != wanted {
            self.find(name, format!("is of another build than {MANIFEST}"));
            return Ok(());
        }
        let Some((image, map)) = medium.image().zip(IsoMap::of(&release, medium.manifest())?) else {
            if found != sum {
                self.find(name, differs());
            }
            return Ok(());
        };
        let mut step =
            self.progress.step(&format!("verify-{name}"), format!("Comparing {name}"), Some(map.size));
        let differences = iso::check(image, &map, CheckScope::Whole, &mut |bytes| {
            step.advance(bytes);
            Ok(())
        })?;
        let customized = || customized(&medium);
        if differences.is_empty() && (found == sum || customized()) {
            step.done();
            return Ok(());
        }
        for difference in &differences {
            self.find(name, difference.to_string());
        }
        if differences.is_empty() {
            self.find(name, differs());
        }
        Ok(())
    }

    /// The report of the build is in no list of digests, as it differs each time; what it says of the outputs does not.
    fn compare_report(&mut self) {
        #[derive(serde::Deserialize)]
        struct BuildReport {
            outputs: Vec<ReportedOutput>,
        }
        #[derive(serde::Deserialize)]
        struct ReportedOutput {
            name: String,
            sha256: Digest,
        }
        let path = self.output.file(REPORT);
        if !path.exists() {
            return;
        }
        let told = read_at_most(&path, MAX_DOCUMENT).ok();
        let Some(told) = told.and_then(|bytes| serde_json::from_slice::<BuildReport>(&bytes).ok()) else {
            return self.find(REPORT, "is not the report of a build");
        };
        let told: BTreeMap<_, _> =
            told.outputs.into_iter().map(|output| (output.name, output.sha256)).collect();
        if told != *self.output.sums() {
            self.find(REPORT, format!("is of another build than {CHECKSUMS}"));
        }
    }

    fn hash(&mut self, name: &str) -> Result<Digest> {
        let file = open(&self.output.file(name))?;
        let length = file.metadata()?.len();
        let mut step =
            self.progress.step(&format!("checksum-{name}"), format!("Hashing {name}"), Some(length));
        let (digest, read) = Digest::of_reader(step.reader(&file))?;
        self.bytes += read;
        step.done();
        Ok(digest)
    }
}

/// Fails for anything but a regular file: opening a FIFO would block.
fn open(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    File::open(path)
}

fn customized(medium: &MediumReader) -> bool {
    let area = medium.open_file(customization::FILE).ok();
    area.is_some_and(|area| matches!(area::read(area), Ok(Some(_))))
}

fn differs() -> String {
    format!("differs from its SHA-256 in {CHECKSUMS}")
}

fn unreadable(error: &anyhow::Error) -> String {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => "is missing".to_owned(),
        _ => format!("cannot be read: {}", base::failure::causes(error).join(": ")),
    }
}

impl OutputReport {
    /// The failure of a report with findings.
    pub fn into_result(self) -> Result<()> {
        let told: Vec<_> = self.findings.iter().map(ToString::to_string).collect();
        if told.is_empty() {
            return Ok(());
        }
        let what = format!("{} is not as it was built", self.output.display());
        let why = anyhow!("{}", told.join("\n           "));
        Err(Failure::new(Class::Verification, what).because(why).hint(BUILD_AGAIN).into())
    }
}

impl fmt::Display for OutputFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.reason)
    }
}

impl fmt::Display for OutputReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.output.display(), self.release)?;
        writeln!(f, "release sha256:{}", self.release_sha256)?;
        for finding in &self.findings {
            writeln!(f, "FAULT {finding}")?;
        }
        let size = ByteSize::bytes(self.bytes);
        match self.findings.len() {
            0 => write!(f, "all {} outputs ({size}) are as they were built, and of one build", self.files),
            1 => write!(f, "1 fault; {} outputs ({size}) checked", self.files),
            faults => write!(f, "{faults} faults; {} outputs ({size}) checked", self.files),
        }
    }
}
