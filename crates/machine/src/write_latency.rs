//! How long flushed writes take on a disk, as etcd makes them: each record is written to the end of a file and flushed before the next.
//!
//! The size of a record is the one that etcd's documentation measures with
//! (<https://etcd.io/docs/v3.5/op-guide/hardware/#disks>: `fio --bs=2300 --fdatasync=1`), and so is what a good disk does: 99 of 100
//! writes within 10 ms. The file is removed afterwards; nothing else of the file system is changed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::paths::below;
use base::failure::{Class, Classify};
use base::files::{read_text_if_present, write_atomically};

/// Bytes of each write.
const RECORD_BYTES: usize = 2300;
/// Of so many writes the twentieth slowest is the 99th percentile.
const WRITES: usize = 2000;
/// A slow disk is known after this.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The 99th percentile of a disk that is good enough for etcd.
pub const GOOD: Duration = Duration::from_millis(10);

/// The name of the file that is written, in the directory that is measured.
const FILE: &str = ".nqrust-write-latency";
/// The record of the last measurement on an installed node.
pub const RECORD: &str = "/var/lib/nqrust/write-latency.json";
/// The same from the root of the persistent partition, which is mounted at `/var`.
pub const RECORD_ON_PARTITION: &str = "lib/nqrust/write-latency.json";

/// What was measured. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteLatency {
    /// The number of writes.
    pub writes: usize,
    /// Half of the writes were no slower.
    pub median: u64,
    /// 99 of 100 writes were no slower.
    pub p99: u64,
    /// The slowest write.
    pub slowest: u64,
}

impl WriteLatency {
    /// Measures the file system at `directory`, for [`TIME_LIMIT`] at most.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if it cannot be written.
    pub fn measure(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let measured = times(&path);
        let removed = fs::remove_file(&path);
        let times =
            measured.class(Class::DiskIo, || format!("measuring writes to {}", directory.display()))?;
        removed.class(Class::DiskIo, || format!("removing {}", path.display()))?;
        ensure!(!times.is_empty(), "no write to {} was measured", directory.display());
        Ok(Self::of(times))
    }

    /// The figures of these times, of which there is one at least.
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let micros = |time: Option<&Duration>| {
            u64::try_from(time.copied().unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
        };
        // The nearest rank: the smallest time that so many of 100 do not exceed.
        let rank = |of_100: usize| micros(times.get((times.len() * of_100).div_ceil(100).saturating_sub(1)));
        Self { writes: times.len(), median: rank(50), p99: rank(99), slowest: micros(times.last()) }
    }

    /// Whether the disk is good enough for etcd.
    #[must_use]
    pub fn is_good(&self) -> bool {
        Duration::from_micros(self.p99) <= GOOD
    }

    /// Whether more than this many milliseconds are taken.
    #[must_use]
    pub fn exceeds(&self, milliseconds: u32) -> bool {
        self.p99 > u64::from(milliseconds) * 1000
    }

    /// The record of the node at `root`; `None` if nothing was measured, or it cannot be read.
    #[must_use]
    pub fn recorded(root: &Path) -> Option<Self> {
        let text = read_text_if_present(&below(root, RECORD)).ok()??;
        serde_json::from_str(&text).ok()
    }

    /// Writes the record to `path`.
    pub fn record(&self, path: &Path) -> Result<()> {
        write_atomically(path, serde_json::to_string(self)?.as_bytes(), 0o644)
            .class(Class::DiskIo, || format!("storing {}", path.display()))
    }
}

fn times(path: &Path) -> std::io::Result<Vec<Duration>> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let record = [0x5a; RECORD_BYTES];
    let begun = Instant::now();
    let mut times = Vec::with_capacity(WRITES);
    while times.len() < WRITES && begun.elapsed() < TIME_LIMIT {
        let start = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

impl fmt::Display for WriteLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |micros: u64| format!("{}.{} ms", micros / 1000, micros % 1000 / 100);
        let Self { writes, median, p99, slowest } = *self;
        write!(
            f,
            "99 of 100 flushed writes within {} (half within {}, the slowest {}, of {writes})",
            ms(p99),
            ms(median),
            ms(slowest)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;

    #[test]
    fn the_figures_are_those_of_the_nearest_rank() {
        let times = (1..=1000).rev().map(Duration::from_micros).collect();
        let of = WriteLatency::of(times);
        assert_eq!(of, WriteLatency { writes: 1000, median: 500, p99: 990, slowest: 1000 });
        let one = WriteLatency::of(vec![Duration::from_millis(12)]);
        assert_eq!((one.median, one.p99, one.slowest), (12_000, 12_000, 12_000));
        assert!(of.is_good() && !one.is_good());
        assert!(one.exceeds(11) && !one.exceeds(12));
        assert_eq!(
            one.to_string(),
            "99 of 100 flushed writes within 12.0 ms (half within 12.0 ms, the slowest 12.0 ms, of 1)"
        );
    }

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kept"), "x").unwrap();
        let measured = WriteLatency::measure(directory.path()).unwrap();
        assert!((1..=WRITES).contains(&measured.writes), "{measured:?}");
        assert!(measured.median <= measured.p99 && measured.p99 <= measured.slowest, "{measured:?}");
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["kept"]);
        let error = WriteLatency::measure(&directory.path().join("missing")).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
    }

    #[test]
    fn the_last_measurement_is_recorded() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(WriteLatency::recorded(root.path()), None);
        let path = below(root.path(), RECORD);
        assert_eq!(path, root.path().join("var").join(RECORD_ON_PARTITION));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let measured = WriteLatency { writes: 9, median: 1, p99: 2, slowest: 3 };
        measured.record(&path).unwrap();
        assert_eq!(WriteLatency::recorded(root.path()), Some(measured));
        fs::write(&path, "{").unwrap();
        assert_eq!(WriteLatency::recorded(root.path()), None);
    }

    proptest::proptest! {
        #[test]
        fn no_more_than_one_of_a_hundred_is_slower(times in proptest::collection::vec(0u64..1_000_000, 1..500)) {
            let of = WriteLatency::of(times.iter().copied().map(Duration::from_micros).collect());
            let slower = times.iter().filter(|time| **time > of.p99).count();
            proptest::prop_assert!(slower * 100 <= times.len());
            proptest::prop_assert!(times.contains(&of.p99) && of.slowest == *times.iter().max().unwrap());
        }
    }
}
