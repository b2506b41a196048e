//! `iso-builder verify`: every payload of a medium is read and hashed again.
//!
//! The manifest itself is checked against the digest in the boot menu, which is what the live system believes.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use installer::cli::{Context, Format, print};
use installer::customization::{FILE, GRUB_FILE};
use installer::digest::Digest;
use installer::failure::{Class, Failure};
use installer::progress::{Progress, Step};
use installer::release::{MANIFEST, MediumKind, Payload, Release};
use installer::size::ByteSize;
use serde::Serialize;

use super::{COPY_AGAIN, Medium, counted, printable};
use crate::customize::{Shown, show};

/// The boot menu of an ISO.
const BOOT_MENU: &str = "boot/grub/grub.cfg";
/// The kernel argument that names the release.
const RELEASE_ARGUMENT: &str = "nqrust.release=";
const MAX_BOOT_MENU: u64 = 1 << 20;
/// Large reads keep a drive streaming.
const BUFFER: usize = 256 * 1024;

/// Check that a medium is undamaged.
#[derive(Debug, Args)]
pub struct Verify {
    /// An ISO, a drive that holds one, or a directory with release.json.
    pub medium: PathBuf,
}

impl Verify {
    /// Prints what was checked. A medium with any fault is [`Class::Verification`].
    pub fn run(self, context: &Context) -> Result<()> {
        let report = verify(&Medium::open(&self.medium)?, &context.progress)?;
        match context.format {
            Format::Text => print(&report.to_string())?,
            Format::Json => print(&serde_json::to_string_pretty(&report)?)?,
        }
        report.into_result()
    }
}

/// What a verification found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where the medium is.
    pub medium: PathBuf,
    /// Short name and version of the product.
    pub release: String,
    /// The kind of medium.
    pub kind: MediumKind,
    /// Digest of the release manifest.
    pub release_sha256: Digest,
    /// How many payloads should be on the medium.
    pub payloads: usize,
    /// Their bytes, by the manifest.
    pub bytes: u64,
    /// How many payloads are left to the network.
    pub remote: usize,
    /// Whether the boot menu was compared with the manifest (on ISOs only).
    pub boot_menu_checked: bool,
    /// What the medium was customised with, in a few words.
    pub customised: String,
    /// What is wrong, in the order of the manifest.
    pub findings: Vec<Finding>,
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file on the medium, or the medium itself.
    pub path: String,
    /// What is wrong with it.
    #[serde(flatten)]
    pub fault: Fault,
}

/// What can be wrong with a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// It is not there.
    Missing,
    /// It ends too early.
    Short {
        /// Bytes there should be.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// It goes on after its end.
    Long {
        /// Bytes there should be.
        expected: u64,
    },
    /// Its bytes are others.
    Damaged {
        /// What the manifest says.
        expected: Digest,
        /// What the bytes give.
        found: Digest,
    },
    /// It cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
    /// What somebody customised the medium with is not as it was written.
    Customisation {
        /// What is wrong.
        reason: String,
    },
    /// The boot menu does not say which release it boots.
    UnnamedRelease,
    /// The boot menu boots another release than the one on the medium.
    OtherRelease {
        /// What the boot menu should say.
        expected: String,
        /// What it says.
        found: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "missing"),
            Self::Short { expected, found } => write!(f, "has {found} of {expected} bytes"),
            Self::Long { expected } => write!(f, "is longer than its {expected} bytes"),
            Self::Damaged { .. } => write!(f, "damaged: its SHA-256 is not that of the manifest"),
            Self::Unreadable { reason } => write!(f, "cannot be read: {}", printable(reason)),
            Self::Customisation { reason } => write!(f, "damaged: {}", printable(reason)),
            Self::UnnamedRelease => write!(f, "does not name the release ({RELEASE_ARGUMENT}sha256:…)"),
            Self::OtherRelease { found, .. } => {
                write!(f, "names the release {}, which is not the digest of {MANIFEST}", printable(found))
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(&self.path), self.fault)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.medium.display(), printable(&self.release))?;
        writeln!(f, "release sha256:{}", self.release_sha256)?;
        for finding in &self.findings {
            writeln!(f, "FAULT {finding}")?;
        }
        if self.remote > 0 {
            writeln!(
                f,
                "{} left to the network, as on every net-install medium",
                counted(self.remote, "image blob")
            )?;
        }
        writeln!(f, "{}", self.customised)?;
        let (count, size) = (self.payloads, ByteSize::bytes(self.bytes));
        match self.findings.len() {
            0 => write!(f, "all {count} payloads ({size}) are as the manifest says"),
            faults => write!(f, "{}; {count} payloads ({size}) looked at", counted(faults, "fault")),
        }
    }
}

impl Report {
    /// The failure that a report with findings is; it names the first.
    pub fn into_result(self) -> Result<()> {
        let Some(first) = self.findings.first() else { return Ok(()) };
        let what = format!("verifying {}", self.medium.display());
        let cause = match self.findings.len() {
            1 => first.to_string(),
            count => format!("{first}, and {}", counted(count - 1, "more fault")),
        };
        Err(Failure::new(Class::Verification, what).because(anyhow::anyhow!(cause)).hint(COPY_AGAIN).into())
    }
}

/// Reads and hashes every payload that should be on `medium`. Faults of the medium go into the report;
/// an error is a medium without a readable manifest.
pub fn verify(medium: &Medium, progress: &Progress) -> Result<Report> {
    let release = medium.release()?;
    let (local, remote) = expected(&release);
    let bytes = local.iter().map(|payload| payload.size).fold(0, u64::saturating_add);
    let mut step = progress.step("verify", format!("verifying {}", medium.path().display()), Some(bytes));
    let mut findings: Vec<Finding> = medium.iso().and_then(|_| check_boot_menu(medium)).into_iter().collect();
    for payload in &local {
        findings.extend(check_payload(medium, payload, &mut step));
    }
    findings.extend(check_length(medium));
    findings.extend(check_customisation(medium));
    if findings.is_empty() {
        step.done();
    }
    Ok(Report {
        medium: medium.path().to_owned(),
        release: format!("{} {}", release.id, release.version),
        kind: release.medium,
        release_sha256: medium.release_digest(),
        payloads: local.len(),
        bytes,
        remote,
        boot_menu_checked: medium.iso().is_some(),
        customised: Shown::of(medium).brief(),
        findings,
    })
}

/// The payloads that should be on the medium, and how many are left to the network.
fn expected(release: &Release) -> (Vec<&Payload>, usize) {
    let (remote, local): (Vec<_>, Vec<_>) =
        release.payloads.iter().partition(|payload| payload.is_remote_on(release.medium));
    (local, remote.len())
}

fn check_payload(medium: &Medium, payload: &Payload, step: &mut Step) -> Option<Finding> {
    let fault = match read_payload(medium, payload, step) {
        Ok((_, length)) if length > payload.size => Fault::Long { expected: payload.size },
        Ok((_, length)) if length < payload.size => Fault::Short { expected: payload.size, found: length },
        Ok((found, _)) if found != payload.sha256 => Fault::Damaged { expected: payload.sha256, found },
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Fault::Missing,
        Err(error) => Fault::Unreadable { reason: format!("{:#}", anyhow::Error::from(error)) },
    };
    Some(Finding { path: payload.path.clone(), fault })
}

/// Digest and length; of a payload that is too long only one byte more than it should have.
fn read_payload(medium: &Medium, payload: &Payload, step: &mut Step) -> io::Result<(Digest, u64)> {
    let reader = BufReader::with_capacity(BUFFER, medium.open_file(&payload.path)?);
    Digest::of_reader(step.reader(reader.take(payload.size.saturating_add(1))))
}

/// Whether every boot entry that names a release names the one on the medium.
fn check_boot_menu(medium: &Medium) -> Option<Finding> {
    let fault = match medium.read_at_most(BOOT_MENU, MAX_BOOT_MENU) {
        Ok(menu) => named_release_fault(&String::from_utf8_lossy(&menu), medium.release_digest())?,
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => Fault::Missing,
            _ => Fault::Unreadable { reason: format!("{error:#}") },
        },
    };
    Some(Finding { path: BOOT_MENU.to_owned(), fault })
}

/// What is wrong with the releases that `menu` names, given the digest of the manifest.
fn named_release_fault(menu: &str, digest: Digest) -> Option<Fault> {
    let expected = digest.oci();
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';');
    let mut named = menu
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split(RELEASE_ARGUMENT).skip(1))
        .map(|rest| rest.split(ends).next().unwrap_or_default())
        .peekable();
    if named.peek().is_none() {
        return Some(Fault::UnnamedRelease);
    }
    let found = named.find(|named| *named != expected)?.to_owned();
    Some(Fault::OtherRelease { expected, found })
}

/// An image that ends before its volume does, even where no payload is in the part that lacks.
fn check_length(medium: &Medium) -> Option<Finding> {
    let iso = medium.iso().filter(|iso| iso.missing() > 0)?;
    let fault = Fault::Short { expected: iso.volume().size, found: iso.length() };
    Some(Finding { path: medium.path().display().to_string(), fault })
}

/// What the medium was customised with has a digest of its own, and GRUB reads the same arguments.
fn check_customisation(medium: &Medium) -> Option<Finding> {
    let shown = Shown::of(medium);
    let arguments = match show::read(medium)? {
        Ok(content) => content.map(|content| content.arguments).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let (path, reason) = match shown.damage {
        Some(reason) => (FILE, reason),
        None if show::grub_differs(medium, &arguments) => {
            (GRUB_FILE, format!("it does not have the kernel arguments that {FILE} has"))
        }
        None => return None,
    };
    Some(Finding { path: path.to_owned(), fault: Fault::Customisation { reason } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boot_entry_has_to_name_the_release() {
        let digest = Digest::of(b"manifest");
        let good = format!("linux /vmlinuz quiet nqrust.release={}\n", digest.oci());
        assert_eq!(named_release_fault(&good, digest), None);
        assert_eq!(named_release_fault(&format!("{good}set a=\"{}\"", good.trim()), digest), None);
        assert_eq!(named_release_fault("linux /vmlinuz", digest), Some(Fault::UnnamedRelease));
        let commented = format!("# {good}");
        assert_eq!(named_release_fault(&commented, digest), Some(Fault::UnnamedRelease));
        for other in ["sha256:00", "", "${release}"] {
            let menu = format!("{good}linux /vmlinuz nqrust.release={other} quiet\n");
            let expected = digest.oci();
            let fault = Fault::OtherRelease { expected, found: other.into() };
            assert_eq!(named_release_fault(&menu, digest), Some(fault));
        }
    }
}
