//! The result of verifying a medium, for people and programs.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::size::ByteSize;
use formats::iso9660::write::RegionOwner;
use medium::iso::{self, RegionDifference};
use medium::reader::{COPY_AGAIN, MediumReader, NamedReleaseDifference};
use model::boot::parameter;
use model::release::{MANIFEST, MediumKind};
use serde::Serialize;

use crate::signing::SignatureSummary;
use crate::wording::{counted, printable};

/// Why an ISO of another version of the builder cannot be compared as a whole.
const OTHER_RECIPE: &str = "another version of iso-builder made this ISO; boot sectors, directories, boot menu and EFI \
    system partition were not compared. Verify it with the iso-builder of its release.";

#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// The path that the user named.
    pub medium: PathBuf,
    /// Short name and version of the product.
    pub release: String,
    pub kind: MediumKind,
    /// Of the release manifest.
    pub release_sha256: Digest,
    /// Who has signed it, by the keys that are known here.
    pub signatures: SignatureSummary,
    /// Who has signed the provenance in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<SignatureSummary>,
    /// How many payloads should be on the medium.
    pub payloads: usize,
    /// Their bytes, from the manifest.
    pub bytes: u64,
    /// How many payloads an install downloads.
    pub remote: usize,
    /// True if the boot menu was compared with the manifest (on ISOs only).
    pub boot_menu_checked: bool,
    pub coverage: VerifyCoverage,
    /// Its customization in a few words.
    pub customized: String,
    /// In the order of the manifest.
    pub findings: Vec<MediumFinding>,
}

/// How much of a medium was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyCoverage {
    /// Every byte of an ISO.
    Whole,
    /// The payloads of an ISO of another recipe, and the release that its boot menu names.
    PayloadsOnly,
    /// All files of a directory that the manifest names; a directory has nothing else to boot from.
    Files,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MediumFinding {
    /// The file on the medium, another part of it by its name, or the path of the medium itself.
    pub path: String,
    #[serde(flatten)]
    pub fault: MediumFault,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum MediumFault {
    Missing,
    /// The file ends too early.
    Short {
        /// In bytes.
        expected: u64,
        /// In bytes.
        found: u64,
    },
    /// The file is longer than it should be.
    Long {
        /// In bytes.
        expected: u64,
    },
    /// The content has another digest.
    Damaged {
        expected: Digest,
        /// Of the bytes on the medium.
        found: Digest,
    },
    /// It is no payload, and differs from what the builder writes there.
    Changed {
        /// The first byte that differs, counted from the beginning of the medium.
        offset: u64,
    },
    NotCompared {
        /// The damaged file that it depends on.
        because: String,
    },
    /// It is a release manifest whose digest nothing else on the medium names.
    ForeignManifest,
    Unreadable {
        reason: String,
    },
    Customization {
        reason: String,
    },
    /// The boot menu does not name the release that it boots.
    UnnamedRelease,
    /// The boot menu names another release than the one on the medium.
    OtherRelease {
        expected: String,
        found: String,
    },
}

impl From<NamedReleaseDifference> for MediumFault {
    fn from(difference: NamedReleaseDifference) -> Self {
        match difference {
            NamedReleaseDifference::Unnamed => Self::UnnamedRelease,
            NamedReleaseDifference::Other { expected, found } => Self::OtherRelease { expected, found },
        }
    }
}

impl fmt::Display for MediumFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "missing"),
            Self::Short { expected, found } => write!(f, "has {found} of {expected} bytes"),
            Self::Long { expected } => write!(f, "is longer than its {expected} bytes"),
            Self::Damaged { .. } => write!(f, "damaged: its SHA-256 is not that of the manifest"),
            Self::Changed { offset } => {
                write!(f, "changed: not what iso-builder writes, from byte {offset} of the medium on")
            }
            Self::NotCompared { because } => {
                write!(f, "could not be compared, because {} is damaged", printable(because))
            }
            Self::ForeignManifest => {
                write!(
                    f,
                    "damaged: nothing else on the medium names its SHA-256, so nothing was compared with it"
                )
            }
            Self::Unreadable { reason } => write!(f, "cannot be read: {}", printable(reason)),
            Self::Customization { reason } => write!(f, "damaged: {}", printable(reason)),
            Self::UnnamedRelease => write!(f, "does not name the release ({}=sha256:…)", parameter::RELEASE),
            Self::OtherRelease { found, .. } => {
                write!(f, "names the release {}, which is not the digest of {MANIFEST}", printable(found))
            }
        }
    }
}

impl fmt::Display for MediumFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(&self.path), self.fault)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.medium.display(), printable(&self.release))?;
        writeln!(f, "release sha256:{}", self.release_sha256)?;
        for finding in &self.findings {
            writeln!(f, "FAULT {finding}")?;
        }
        if self.remote > 0 {
            writeln!(
                f,
                "{} for an install to download, as with every net-install medium",
                counted(self.remote, "image blob")
            )?;
        }
        writeln!(f, "{}", printable(&self.signatures.text))?;
        if let Some(provenance) = &self.provenance {
            writeln!(f, "provenance: {}", printable(&provenance.text))?;
        }
        writeln!(f, "{}", self.customized)?;
        if self.coverage == VerifyCoverage::PayloadsOnly {
            writeln!(f, "warning: {OTHER_RECIPE}")?;
        }
        let (count, size) = (self.payloads, ByteSize::bytes(self.bytes));
        match self.findings.len() {
            0 if self.coverage == VerifyCoverage::Whole => write!(
                f,
                "all {count} payloads ({size}) are as the manifest says, and every other byte is what iso-builder writes"
            ),
            0 => write!(f, "all {count} payloads ({size}) are as the manifest says"),
            faults => write!(f, "{}; {count} payloads ({size}) checked", counted(faults, "fault")),
        }
    }
}

impl VerifyReport {
    /// The failure of a report with findings; it names the first.
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

impl MediumFinding {
    pub(super) fn of(medium: &MediumReader, RegionDifference { owner, fault }: RegionDifference) -> Self {
        let path = match owner {
            RegionOwner::Image => medium.path().display().to_string(),
            owner => owner.to_string(),
        };
        let fault = match fault {
            iso::RegionFault::Changed { at } => MediumFault::Changed { offset: at.0 },
            iso::RegionFault::Damaged { expected, found } => MediumFault::Damaged { expected, found },
            iso::RegionFault::CutOff { expected, found } => MediumFault::Short { expected, found },
            iso::RegionFault::Unreadable(reason) => MediumFault::Unreadable { reason },
            iso::RegionFault::Customization(reason) => MediumFault::Customization { reason },
            iso::RegionFault::Unknown(because) => MediumFault::NotCompared { because },
            iso::RegionFault::Stranger => MediumFault::ForeignManifest,
        };
        Self { path, fault }
    }
}
