//! The file of a snapshot.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::{parent, read_text_if_present, unusable, write_atomically};
use nix::unistd::{AccessFlags, access};

use crate::{GaugeSnapshot, Series, series_of};

/// World-readable: the collector has a user of its own.
const MODE: u32 = 0o644;

/// A file for the textfile collector of node_exporter, which reads the files of a directory whose names end with `.prom`.
#[derive(Clone, Debug)]
pub struct MetricsFile(PathBuf);

impl MetricsFile {
    /// The file at `path`, which can be written as far as that can be known before it is. Nothing is made.
    ///
    /// # Errors
    /// As [`unusable`] has them.
    pub fn checked(path: &Path) -> Result<Self> {
        let writable = match path.metadata() {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            // A device or a FIFO would be replaced by a file.
            Ok(there) if !there.is_file() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => access(parent(path), AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from),
        };
        writable.map_err(|error| unusable(path, error))?;
        Ok(Self(path.to_owned()))
    }

    /// The series that the gauge `name` has in the file now; none if the file is missing or is not a text.
    #[must_use]
    pub fn series(&self, name: &str) -> Vec<Series> {
        let text = read_text_if_present(&self.0).ok().flatten();
        text.map(|text| series_of(&text, name)).unwrap_or_default()
    }

    /// Replaces the file in one step: a collector reads the one before or this.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if it cannot be written.
    pub fn write(&self, snapshot: &GaugeSnapshot) -> Result<()> {
        let written = write_atomically(&self.0, snapshot.text().as_bytes(), MODE);
        written.class(Class::DiskIo, || format!("writing the metrics {}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use base::failure::class_of;

    use super::*;
    use crate::Gauge;

    const READY: Gauge = Gauge { name: "nqrust_ready", help: "Whether it is ready" };

    #[test]
    fn the_file_is_world_readable_and_has_what_was_written_last() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.prom");
        let file = MetricsFile::checked(&path).unwrap();
        assert!(!path.exists() && file.series(READY.name).is_empty());
        for value in [1.0, 0.0] {
            let mut snapshot = GaugeSnapshot::default();
            snapshot.set(READY, &[("slot", "a")], value);
            file.write(&snapshot).unwrap();
            let series = Series { labels: vec![("slot".to_owned(), "a".to_owned())], value };
            assert_eq!(file.series(READY.name), [series]);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no collector finds a file that is not whole");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink("/dev/null", at("device.prom")).unwrap();
        fs::write(at("file"), "").unwrap();
        for path in [at("absent/a.prom"), directory.path().to_owned(), at("device.prom"), at("file/a.prom")] {
            assert_eq!(
                class_of(&MetricsFile::checked(&path).unwrap_err()),
                Class::Invalid,
                "{}",
                path.display()
            );
        }
        assert!(!at("absent").exists());
        fs::write(at("binary.prom"), [0xff, 0xfe]).unwrap();
        assert!(MetricsFile::checked(&at("binary.prom")).unwrap().series(READY.name).is_empty());
    }
}
