//! The journal: a small file on the configuration partition of a disk whose install is unfinished.
//!
//! It is written when the OS image is in its slot and the file systems are made, and removed when the node document is written,
//! so that no node has one. It says of which install the disk holds the beginning. That is a hint and never a proof: a run that
//! continues reads everything that is there before relying on it.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::plan::{Partition, Plan, SectorSize, Step};
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::{read_at_most, removed, write_atomically};
use base::size::ByteSize;

/// Its name on the configuration partition.
pub(crate) const JOURNAL: &str = "install-journal.json";

/// The version of the format, and of what an installer leaves on an unfinished disk.
const VERSION: u32 = 2;

/// The largest journal that is read; real ones are much smaller.
const JOURNAL_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    /// Product and version, for people.
    pub(crate) product: String,
    /// Of everything that two runs must have in common for one to continue the other.
    pub(crate) fingerprint: Digest,
}

#[derive(Deserialize)]
struct JournalVersion {
    version: u32,
}

/// What the fingerprint covers. The identities of the partitions follow from that of the table, which a continued install takes
/// over; what is written elsewhere or anew each time, such as the node document, is left out.
#[derive(Serialize)]
struct FingerprintContent<'a> {
    product: &'a str,
    disk: (ByteSize, SectorSize),
    partitions: &'a [Partition],
    /// Where the images are stored.
    store: &'a str,
    /// The OS image, the container images and their metadata.
    payloads: Vec<Digest>,
}

impl Journal {
    /// The journal of an install by `plan`.
    pub(crate) fn of(plan: &Plan) -> Result<Self> {
        let payloads = plan.steps.iter().flat_map(|step| match step {
            Step::Slot { image, .. } => vec![image.sha256],
            Step::Images { blobs, metadata } => {
                blobs.iter().chain(metadata).map(|payload| payload.sha256).collect()
            }
            _ => Vec::new(),
        });
        let content = FingerprintContent {
            product: &plan.product,
            disk: (plan.disk.size, plan.disk.sector),
            partitions: &plan.partitions,
            store: plan.release.containerd.on_partition(),
            payloads: payloads.collect(),
        };
        let fingerprint = Digest::of(&serde_json::to_vec(&content)?);
        Ok(Self { version: VERSION, product: plan.product.clone(), fingerprint })
    }

    /// Writes it to the configuration partition, mounted at `root`.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self)?;
        write_atomically(&root.join(JOURNAL), &bytes, 0o600)
            .class(Class::DiskIo, || "storing the journal".into())
    }

    /// Reads it from the configuration partition, mounted at `root`; `None` if there is none.
    ///
    /// # Errors
    /// The file is no journal of this version.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>> {
        let path = root.join(JOURNAL);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => ensure!(found.context("looking for its journal")?.is_file(), "its journal is no file"),
        }
        let bytes = read_at_most(&path, JOURNAL_BYTES_MAX).context("reading its journal")?;
        let JournalVersion { version } = serde_json::from_slice(&bytes).context("its journal is damaged")?;
        ensure!(
            version == VERSION,
            "its journal has the version {version}, and this installer has {VERSION}"
        );
        serde_json::from_slice(&bytes).context("its journal is damaged").map(Some)
    }

    /// Removes it from the configuration partition, mounted at `root`.
    pub(crate) fn remove(root: &Path) -> Result<()> {
        removed(fs::remove_file(root.join(JOURNAL))).class(Class::DiskIo, || "removing the journal".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{GUID, disk, release, trial};
    use machine::inventory::Inventory;
    use model::release::Release;

    fn plan(size: ByteSize, release: &Release, guid: uuid::Uuid) -> Plan {
        let inventory = Inventory { disks: vec![disk("vda", size)], ..Inventory::default() };
        crate::plan::plan(&trial(), &inventory, &release.clone().into(), guid).unwrap()
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_journal_is_refused_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(JOURNAL);
        assert_eq!(Journal::read(root.path()).unwrap(), None);
        let journal = Journal::of(&plan(ByteSize::gib(16), &release(), GUID)).unwrap();
        journal.write(root.path()).unwrap();
        assert_eq!(Journal::read(root.path()).unwrap(), Some(journal));
        let text = fs::read(&file).unwrap();
        let later = String::from_utf8(text.clone()).unwrap().replace("\"version\":2", "\"version\":3");
        let cases: [(&[u8], &str); 5] = [
            (b"", "its journal is damaged"),
            (b"\0\0\0\0", "its journal is damaged"),
            (&text[..text.len() - 1], "its journal is damaged"),
            (b"{\"version\":2}", "its journal is damaged"),
            (later.as_bytes(), "has the version 3, and this installer has 2"),
        ];
        for (bytes, told) in cases {
            fs::write(&file, bytes).unwrap();
            let error = format!("{:#}", Journal::read(root.path()).unwrap_err());
            assert!(error.contains(told), "{error}");
        }
        fs::write(&file, vec![b' '; 65 << 10]).unwrap();
        assert!(Journal::read(root.path()).is_err());
        Journal::remove(root.path()).unwrap();
        Journal::remove(root.path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(format!("{:#}", Journal::read(root.path()).unwrap_err()).contains("is no file"));
    }

    #[test]
    fn installs_of_other_content_or_to_other_places_have_other_fingerprints() {
        let fingerprint = |plan: Plan| Journal::of(&plan).unwrap().fingerprint;
        let one = fingerprint(plan(ByteSize::gib(16), &release(), GUID));
        assert_eq!(one, fingerprint(plan(ByteSize::gib(16), &release(), GUID)));
        let mut later = release();
        later.version = "9.9.9".into();
        let mut other_image = release();
        let rootfs = model::release::Purpose::Rootfs;
        other_image.payloads.iter_mut().for_each(|payload| {
            if payload.purpose == rootfs {
                payload.sha256 = Digest::of(b"another");
            }
        });
        let mut without_images = trial();
        without_images.install.images = Some(model::config::Images::Defer);
        let inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], ..Inventory::default() };
        for other in [
            plan(ByteSize::gib(17), &release(), GUID),
            plan(ByteSize::gib(16), &later, GUID),
            plan(ByteSize::gib(16), &other_image, GUID),
            plan(ByteSize::gib(16), &release(), uuid::Uuid::nil()),
            crate::plan::plan(&without_images, &inventory, &release().into(), GUID).unwrap(),
        ] {
            assert_ne!(one, fingerprint(other));
        }
    }
}
