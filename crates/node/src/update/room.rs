//! The room that an update takes on the file systems of this node, judged before anything is fetched or written.
//!
//! A slot is judged by [`SlotDevices::require_room`](super::slots::SlotDevices::require_room). The EFI system partition gets nothing
//! new: an update changes one sector of a file there, in its place.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use base::failure::{Class, Classify, Failure};
use base::files;
use base::size::ByteSize;

/// Something that an update stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// A noun that follows its size, such as `the release, until it is in its slot`.
    pub what: &'static str,
    /// Where it is stored. The directory need not exist.
    pub directory: PathBuf,
    pub size: ByteSize,
    /// What whoever stores it leaves free.
    pub spare: ByteSize,
}

/// A file system on which an update stores something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomPlace {
    /// Where most of it is stored.
    pub directory: PathBuf,
    /// In bytes, with those that stay free.
    pub needed: u64,
    /// In bytes.
    pub free: u64,
    #[serde(skip)]
    parts: Vec<StoredPart>,
}

/// A mounted file system.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// The number of its device.
    pub device: u64,
    /// For users other than root.
    pub free: ByteSize,
}

/// What an update stores, by file systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct UpdateRoom {
    pub places: Vec<RoomPlace>,
}

impl UpdateRoom {
    /// What `parts` need of this system.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if a file system cannot be asked.
    pub fn of(parts: Vec<StoredPart>) -> Result<Self> {
        Self::on(parts, &volume)
    }

    fn on(parts: Vec<StoredPart>, volume: &dyn Fn(&Path) -> Result<Volume>) -> Result<Self> {
        let mut volumes: Vec<(Volume, Vec<StoredPart>)> = Vec::new();
        for part in parts.into_iter().filter(|part| part.size > ByteSize::bytes(0)) {
            let found = volume(&part.directory)?;
            match volumes.iter_mut().find(|(volume, _)| volume.device == found.device) {
                Some((_, parts)) => parts.push(part),
                None => volumes.push((found, vec![part])),
            }
        }
        let places = volumes.into_iter().filter_map(|(volume, parts)| RoomPlace::of(volume, parts));
        Ok(Self { places: places.collect() })
    }

    /// Fails if a file system has too little room.
    ///
    /// # Errors
    /// [`Class::DiskIo`], with what needs how much.
    pub fn require(&self) -> Result<(), Failure> {
        self.places.iter().try_for_each(RoomPlace::require)
    }

    /// What it comes to, in a line; none if nothing is stored.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let places = self.places.iter().map(|RoomPlace { directory, needed, free, .. }| {
            let [needed, free] = [*needed, *free].map(ByteSize::bytes);
            format!("{needed} of {free} that are free in {}", directory.display())
        });
        let places: Vec<_> = places.collect();
        (!places.is_empty()).then(|| places.join(", "))
    }
}

impl RoomPlace {
    /// None without a part.
    fn of(volume: Volume, parts: Vec<StoredPart>) -> Option<Self> {
        let largest = parts.iter().max_by_key(|part| part.size)?.directory.clone();
        let spare = parts.iter().map(|part| part.spare.get()).max().unwrap_or_default();
        let stored = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.size.get()));
        let (needed, free) = (stored.saturating_add(spare), volume.free.get());
        Some(Self { directory: largest, needed, free, parts })
    }

    fn require(&self) -> Result<(), Failure> {
        if self.needed <= self.free {
            return Ok(());
        }
        let [needed, free] = [self.needed, self.free].map(ByteSize::bytes);
        let what = format!("the update needs {needed} in {}, and {free} are free", self.directory.display());
        let parts: Vec<_> =
            self.parts.iter().map(|part| format!("{} for {}", part.size, part.what)).collect();
        Err(Failure::new(Class::DiskIo, what)
            .because(anyhow::anyhow!("{}; the rest stays free", parts.join(", ")))
            .hint("Free space there, for instance with `journalctl --vacuum-size=100M` or `crictl rmi --prune`, or update from an ISO on this machine. Nothing was fetched."))
    }
}

/// The file system of `path`, or of the directory nearest above it that exists.
fn volume(path: &Path) -> Result<Volume> {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let metadata = there.metadata().class(Class::DiskIo, || format!("reading {}", there.display()))?;
    Ok(Volume { device: metadata.dev(), free: files::free_space(there)? })
}

#[cfg(test)]
mod tests {
    use base::failure::render;

    use super::*;

    const FETCHED: &str = "/var/lib/nqrust/update/fetched";
    const CONTAINERD: &str = "/var/lib/containerd";

    fn part(what: &'static str, directory: &str, size: u64, spare: u64) -> StoredPart {
        let [size, spare] = [size, spare].map(ByteSize::mib);
        StoredPart { what, directory: directory.into(), size, spare }
    }

    /// A node with this much room on `/var`, and on the disk of containerd if that has one.
    fn judged(parts: Vec<StoredPart>, var: u64, containerd: Option<u64>) -> UpdateRoom {
        let volume = |path: &Path| {
            let (device, free) = match containerd {
                Some(free) if path.starts_with(CONTAINERD) => (2, free),
                _ => (1, var),
            };
            Ok(Volume { device, free: ByteSize::mib(free) })
        };
        UpdateRoom::on(parts, &volume).unwrap()
    }

    fn both() -> Vec<StoredPart> {
        vec![part("the release", FETCHED, 1000, 256), part("container images", CONTAINERD, 300, 64)]
    }

    #[test]
    fn what_is_stored_on_one_file_system_counts_together() {
        // 1,000 MiB and 300 MiB, and the larger of what both leave free.
        judged(both(), 1556, None).require().unwrap();
        let failure = judged(both(), 1555, None).require().unwrap_err();
        assert_eq!(failure.class(), Class::DiskIo);
        let text = render(&failure.into());
        for part in [
            "the update needs 1.5 GiB in /var/lib/nqrust/update/fetched",
            "1000 MiB for the release, 300 MiB for container images",
            "Nothing was fetched.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn each_file_system_needs_its_own_room() {
        let room = judged(both(), 1256, Some(364));
        room.require().unwrap();
        assert_eq!(room.places.len(), 2);
        for (var, containerd, short) in [(1255, 364, FETCHED), (1256, 363, CONTAINERD)] {
            let failure = judged(both(), var, Some(containerd)).require().unwrap_err();
            assert!(failure.to_string().contains(short), "{failure}");
        }
    }

    #[test]
    fn an_update_that_stores_nothing_needs_no_room() {
        let room = judged(vec![part("the release", FETCHED, 0, 256)], 0, None);
        room.require().unwrap();
        assert_eq!((room.summary(), serde_json::to_string(&room).unwrap()), (None, "[]".into()));
        let room = judged(both(), 2048, None);
        let told = room.summary().unwrap();
        assert_eq!(told, "1.5 GiB of 2 GiB that are free in /var/lib/nqrust/update/fetched");
    }

    #[test]
    fn the_room_for_a_directory_is_that_of_the_one_above_it() {
        let root = tempfile::tempdir().unwrap();
        let [above, below] =
            [root.path().to_owned(), root.path().join("a/b/c")].map(|path| volume(&path).unwrap());
        assert_eq!(above.device, below.device);
    }
}
