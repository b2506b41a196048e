//! `iso-builder verify`: a medium is read whole and compared with what it was when it was built.
//!
//! Of an ISO every byte is compared (`medium::iso`). Of a directory, and of an ISO that another recipe made, the payloads
//! are, by their digests in the manifest, and the manifest of such an ISO by the digest in its boot menu. Bytes behind the
//! end of an ISO, which every stick has, do not belong to it. A tool that moves the backup of the partition table to the
//! end of a stick changes the partition table, which is a fault. Of the directory that a build wrote all outputs are, by
//! `medium::build_output`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::program::Context;
use base::progress::{Progress, Step};
use clap::Args;
use formats::iso9660::address::Source;
use medium::build_output::{BUILD_AGAIN, BuildOutput, CHECKSUMS, OutputReport};
use medium::by_architecture::by_architecture;
use medium::customization::{Content, FILE, GRUB_FILE};
use medium::iso::recipe::BOOT_MENU;
use medium::iso::{self, CheckScope, IsoMap};
use medium::reader::{COPY_AGAIN, MAX_BOOT_MENU, MediumReader, named_release_difference};
use model::release::{MANIFEST, Payload, Release};
use serde::Serialize;
use trust::TrustStore;

pub use super::verify_report::{MediumFault, MediumFinding, VerifyCoverage, VerifyReport};
use crate::media::customize::{Customization, customization};
use crate::provenance::{PROVENANCE, ReleaseProvenance};
use crate::signing::SignatureSummary;
use crate::signing::arguments::KnownKeyArguments;
use crate::wording::printable;

/// Large reads keep a drive streaming.
const BUFFER_BYTES: usize = 256 * 1024;

/// Check that a medium is as it was built, except for its customization.
#[derive(Debug, Args)]
pub struct VerifyCommand {
    /// An ISO, a drive that holds one, the directory that a build wrote, for one architecture or several, one with release.json and all
    /// payloads, or the URL of an ISO or of such a directory.
    pub medium: PathBuf,
    #[command(flatten)]
    pub(crate) known: KnownKeyArguments,
}

impl VerifyCommand {
    /// Prints what was checked. A medium with any fault, or whose release no known key has signed, is [`Class::Verification`].
    pub fn run(self, context: &Context) -> Result<()> {
        let known = self.known.store()?;
        let directories: Vec<_> =
            by_architecture(&self.medium).into_iter().map(|(_, directory)| directory).collect();
        if !directories.is_empty() {
            let outputs = directories.iter().map(|directory| whole_output(directory));
            let outputs = outputs.collect::<Result<Vec<_>>>()?;
            let checked = outputs.iter().map(|output| CheckedOutput::of(output, &known, context));
            let checked = checked.collect::<Result<Vec<_>>>()?;
            let verified: Vec<_> = checked.iter().map(|checked| &checked.verified).collect();
            let texts = || verified.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n");
            context.show(&verified, texts)?;
            return checked.into_iter().try_for_each(|checked| checked.into_result(&known));
        }
        if let Some(output) = BuildOutput::open(&self.medium)? {
            let checked = CheckedOutput::of(&output, &known, context)?;
            context.show(&checked.verified, || checked.verified.to_string())?;
            return checked.into_result(&known);
        }
        let medium = MediumReader::open_for_verification(&self.medium)?;
        let report = verify(&medium, &known, &context.progress)?;
        context.show(&report, || report.to_string())?;
        report.into_result()?;
        medium.judge(&known)?;
        check_provenance(&self.medium, &known)
    }
}

/// Fails if the provenance beside a release is about another one, or must not be used. It may be missing: older builders wrote none.
fn check_provenance(directory: &Path, known: &TrustStore) -> Result<()> {
    ReleaseProvenance::find(directory)?.map_or(Ok(()), |provenance| provenance.check(known))
}

/// Who has signed the provenance in `directory`; none if it is missing, or damaged, which [`check_provenance`] reports.
fn provenance_signatures(directory: &Path, known: &TrustStore) -> Option<SignatureSummary> {
    Some(ReleaseProvenance::find(directory).ok()??.signatures(known))
}

/// The outputs of a build in `directory`, which is one of several.
fn whole_output(directory: &Path) -> Result<BuildOutput> {
    let missing = || {
        let what = format!("{} has no {CHECKSUMS}", directory.display());
        Failure::new(Class::Verification, what).hint(BUILD_AGAIN).into()
    };
    BuildOutput::open(directory)?.ok_or_else(missing)
}

/// The outputs of a build that were compared, with the media among them that have a release manifest.
struct CheckedOutput<'o> {
    output: &'o BuildOutput,
    verified: VerifiedOutput,
    media: Vec<Result<MediumReader>>,
}

impl<'o> CheckedOutput<'o> {
    fn of(output: &'o BuildOutput, known: &TrustStore, context: &Context) -> Result<Self> {
        let report = output.verify(&context.progress)?;
        let media: Vec<_> = media_of(output).map(|path| MediumReader::open(&path)).collect();
        let mut signatures = summaries(output, media.iter().flatten(), known);
        let provenance = provenance_signatures(output.path(), known);
        signatures.extend(provenance.map(|found| (PROVENANCE.into(), found)));
        Ok(Self { output, verified: VerifiedOutput { report, signatures }, media })
    }

    /// Any fault, or a release that no known key has signed, is [`Class::Verification`].
    fn into_result(self, known: &TrustStore) -> Result<()> {
        self.verified.report.into_result()?;
        self.media.into_iter().try_for_each(|medium| medium?.judge(known).map(drop))?;
        check_provenance(self.output.path(), known)
    }
}

/// The outputs of a build, and who has signed each release manifest among them.
#[derive(Debug, Serialize)]
struct VerifiedOutput {
    #[serde(flatten)]
    report: OutputReport,
    /// By the name of the medium; the directory itself has that of the full medium and of the netboot set.
    signatures: BTreeMap<String, SignatureSummary>,
}

impl fmt::Display for VerifiedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        self.signatures
            .iter()
            .try_for_each(|(name, summary)| write!(f, "\n{name}: {}", printable(&summary.text)))
    }
}

/// Who has signed each of `media`, which are of `output`, by their names.
fn summaries<'a>(
    output: &BuildOutput,
    media: impl Iterator<Item = &'a MediumReader>,
    known: &TrustStore,
) -> BTreeMap<String, SignatureSummary> {
    let name = |path: &Path| {
        let named = path.file_name().filter(|_| path != output.path());
        named.map_or(MANIFEST.into(), OsStr::to_string_lossy).into_owned()
    };
    media.map(|medium| (name(medium.path()), SignatureSummary::of(medium, known))).collect()
}

/// What has a release manifest at `path`: a medium, or all that a build wrote.
pub(crate) fn manifests_of(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(match BuildOutput::open(path)? {
        Some(output) => media_of(&output).collect(),
        None => vec![path.to_owned()],
    })
}

/// What has a release manifest: the directory of a build, and the ISOs in it.
fn media_of(output: &BuildOutput) -> impl Iterator<Item = PathBuf> {
    let isos = output.sums().keys().filter(|name| name.ends_with(".iso")).map(|name| output.file(name));
    [output.path().to_owned()].into_iter().chain(isos)
}

/// Reads and compares everything that should be on `medium`. Faults of the medium go into the report; a medium without
/// a readable manifest is an error.
pub fn verify(medium: &MediumReader, known: &TrustStore, progress: &Progress) -> Result<VerifyReport> {
    let release = medium.release()?;
    let (local, remote) = expected(&release);
    let bytes = local.iter().map(|payload| payload.size).fold(0, u64::saturating_add);
    let files = || compare_files(medium, &local, bytes, progress);
    let (coverage, findings) = match medium.image() {
        None => (VerifyCoverage::Files, files()),
        Some(image) => match map(medium, &release)? {
            None => (VerifyCoverage::PayloadsOnly, files()),
            Some(map) => (VerifyCoverage::Whole, compare_image(medium, image, &map, progress)?),
        },
    };
    Ok(VerifyReport {
        medium: medium.path().to_owned(),
        release: format!("{} {}", release.id, release.version),
        kind: release.medium,
        release_sha256: medium.release_digest(),
        signatures: SignatureSummary::of(medium, known),
        provenance: provenance_signatures(medium.path(), known),
        payloads: local.len(),
        bytes,
        remote,
        boot_menu_checked: coverage != VerifyCoverage::Files,
        coverage,
        customized: Customization::of(medium, known).brief(),
        findings,
    })
}

/// The map of an ISO whose recipe this program knows; a manifest that fits no ISO is [`Class::Verification`].
fn map<'a>(medium: &'a MediumReader, release: &'a Release) -> Result<Option<IsoMap<'a>>> {
    IsoMap::of(release, medium.manifest()).map_err(|error| {
        let what = format!("{MANIFEST} of {} contradicts itself", medium.path().display());
        Failure::new(Class::Verification, what).because(error).hint(COPY_AGAIN).into()
    })
}

fn begin(medium: &MediumReader, total: u64, progress: &Progress) -> Step {
    progress.step("verify", format!("verifying {}", medium.path().display()), Some(total))
}

fn compare_image(
    medium: &MediumReader,
    image: &dyn Source,
    map: &IsoMap<'_>,
    progress: &Progress,
) -> Result<Vec<MediumFinding>> {
    let mut step = begin(medium, map.size, progress);
    let differences = iso::check(image, map, CheckScope::Whole, &mut |bytes| {
        step.advance(bytes);
        Ok(())
    })?;
    if differences.is_empty() {
        step.done();
    }
    Ok(differences.into_iter().map(|difference| MediumFinding::of(medium, difference)).collect())
}

/// Compares the files whose digests the manifest has.
fn compare_files(
    medium: &MediumReader,
    local: &[&Payload],
    bytes: u64,
    progress: &Progress,
) -> Vec<MediumFinding> {
    let mut step = begin(medium, bytes, progress);
    let mut findings: Vec<MediumFinding> =
        medium.iso().and_then(|_| check_boot_menu(medium)).into_iter().collect();
    for payload in local {
        findings.extend(check_payload(medium, payload, &mut step));
    }
    findings.extend(check_length(medium));
    findings.extend(check_customization(medium));
    if findings.is_empty() {
        step.done();
    }
    findings
}

/// The payloads that should be on the medium, and how many an install downloads.
fn expected(release: &Release) -> (Vec<&Payload>, usize) {
    let (remote, local): (Vec<_>, Vec<_>) =
        release.all_payloads().partition(|payload| payload.is_remote_on(release.medium));
    (local, remote.len())
}

fn check_payload(medium: &MediumReader, payload: &Payload, step: &mut Step) -> Option<MediumFinding> {
    let fault = match read_payload(medium, payload, step) {
        Ok((_, length)) if length > payload.size => MediumFault::Long { expected: payload.size },
        Ok((_, length)) if length < payload.size => {
            MediumFault::Short { expected: payload.size, found: length }
        }
        Ok((found, _)) if found != payload.sha256 => MediumFault::Damaged { expected: payload.sha256, found },
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => MediumFault::Missing,
        Err(error) => MediumFault::Unreadable { reason: format!("{:#}", anyhow::Error::from(error)) },
    };
    Some(MediumFinding { path: payload.path.clone(), fault })
}

/// Digest and length; a payload that is too long is read to one byte more than its length.
fn read_payload(medium: &MediumReader, payload: &Payload, step: &mut Step) -> io::Result<(Digest, u64)> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, medium.open_file(&payload.path)?);
    Digest::of_reader(step.reader(reader.take(payload.size.saturating_add(1))))
}

/// Compares the release that each boot entry names with the one on the medium.
fn check_boot_menu(medium: &MediumReader) -> Option<MediumFinding> {
    let fault = match medium.read_at_most(BOOT_MENU, MAX_BOOT_MENU) {
        Ok(menu) => {
            let menu = String::from_utf8_lossy(&menu);
            named_release_difference(&menu, medium.release_digest())?.into()
        }
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => MediumFault::Missing,
            _ => MediumFault::Unreadable { reason: format!("{error:#}") },
        },
    };
    Some(MediumFinding { path: BOOT_MENU.to_owned(), fault })
}

/// Finds an image that ends before its volume does, even if no payload is in the missing part.
fn check_length(medium: &MediumReader) -> Option<MediumFinding> {
    let iso = medium.iso().filter(|iso| iso.missing() > 0)?;
    let fault = MediumFault::Short { expected: iso.volume().size, found: iso.length() };
    Some(MediumFinding { path: medium.path().display().to_string(), fault })
}

/// Checks the customization area by its own digest, and that GRUB reads the same arguments.
fn check_customization(medium: &MediumReader) -> Option<MediumFinding> {
    let shown = Customization::of(medium, &TrustStore::absent());
    let content = match customization::read(medium)? {
        Ok(content) => content.unwrap_or_default(),
        Err(_) => Content::default(),
    };
    let (path, reason) = match shown.damage {
        Some(reason) => (FILE, reason),
        None if customization::grub_differs(medium, &content) => {
            (GRUB_FILE, format!("it does not have the kernel arguments and the password that {FILE} has"))
        }
        None => return None,
    };
    Some(MediumFinding { path: path.to_owned(), fault: MediumFault::Customization { reason } })
}
