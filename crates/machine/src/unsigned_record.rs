//! The note that a node was once installed with, or updated to, a release that not enough trusted keys have signed. It is beside
//! the node document, survives updates and resets, and goes only with a new install: what such a release has left on the node, no
//! later one can tell.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::clock;
use super::paths::{CONFIG, below};
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files;
use model::release_manifest::ReleaseManifest;
use trust::ReleaseTrust;

/// Its name on the configuration partition.
pub const FILE: &str = "unsigned.json";

/// Every user of the node may know.
pub const MODE: u32 = 0o644;

/// The most bytes that are read of it.
const LENGTH_MAX: u64 = 64 << 10;

/// The first release of a node that not enough trusted keys had signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsignedRecord {
    pub version: String,
    /// SHA-256 of its manifest.
    pub release: Digest,
    /// What was known of its signatures, a clause.
    pub trust: String,
    /// When, in RFC 3339. For people: the clock may have been wrong.
    pub at: String,
}

impl UnsignedRecord {
    /// The record of `release`, now; none if trusted keys have signed it.
    #[must_use]
    pub fn of(release: &ReleaseManifest, trust: &ReleaseTrust) -> Option<Self> {
        matches!(trust, ReleaseTrust::Unsigned(_)).then(|| Self {
            version: release.version.clone(),
            release: release.digest(),
            trust: trust.to_string(),
            at: clock::now_text(),
        })
    }

    /// The content of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        base::encode::json_text(self) + "\n"
    }

    /// The record of the node at `root`; none if it has only ever had signed releases.
    ///
    /// # Errors
    /// The file is damaged. It counts as a record then: only that of an unsigned release is ever written.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        let file = below(root, CONFIG).join(FILE);
        let what = || format!("reading {}", file.display());
        let bytes = files::read_if_present(&file, LENGTH_MAX).class(Class::DiskIo, what)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes).class(Class::DiskIo, what)).transpose()
    }

    /// Stores it on the node at `root`, unless there is one: the first counts. After a loss of power it is there or was not begun.
    pub fn keep(&self, root: &Path) -> Result<()> {
        let file = below(root, CONFIG).join(FILE);
        if file.symlink_metadata().is_ok() {
            return Ok(());
        }
        files::write_atomically(&file, self.to_text().as_bytes(), MODE)
            .class(Class::DiskIo, || format!("writing {}", file.display()))
    }
}

impl fmt::Display for UnsignedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = self.at.split('T').next().unwrap_or_default();
        write!(f, "was installed or updated with an unsigned release on {day} ({})", self.version)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trust::{TrustStore, UnsignedReason};

    use super::*;

    fn unsigned(version: &str) -> UnsignedRecord {
        let mut release = testing::release::release();
        release.version = version.into();
        let trust = ReleaseTrust::Unsigned(UnsignedReason::Missing);
        UnsignedRecord::of(&release.into(), &trust).unwrap()
    }

    #[test]
    fn the_first_unsigned_release_is_remembered_and_no_signed_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("oem")).unwrap();
        assert_eq!(UnsignedRecord::read(root.path()).unwrap(), None);
        let signed = ReleaseTrust::Signed(Vec::new());
        assert_eq!(UnsignedRecord::of(&testing::release::release().into(), &signed), None);
        let first = unsigned("1.2.0");
        first.keep(root.path()).unwrap();
        unsigned("1.3.0").keep(root.path()).unwrap();
        let found = UnsignedRecord::read(root.path()).unwrap().unwrap();
        assert_eq!(found, first);
        let told = found.to_string();
        assert!(told.starts_with("was installed or updated with an unsigned release on 2"), "{told}");
        assert!(told.ends_with(" (1.2.0)"), "{told}");
    }

    #[test]
    fn a_damaged_record_is_an_error_and_stays() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("oem")).unwrap();
        let file = root.path().join("oem").join(FILE);
        for bytes in [&b""[..], b"\0", b"{}", &vec![b' '; 65 << 10]] {
            fs::write(&file, bytes).unwrap();
            assert!(UnsignedRecord::read(root.path()).is_err());
            unsigned("1.2.0").keep(root.path()).unwrap();
            assert_eq!(fs::read(&file).unwrap(), bytes);
        }
    }

    #[test]
    fn a_system_without_trusted_keys_remembers_too() {
        let release = ReleaseManifest::from(testing::release::release());
        let trust = trust::judge(&release, release.bytes(), None, &TrustStore::absent()).unwrap();
        assert!(UnsignedRecord::of(&release, &trust).is_some());
    }
}
