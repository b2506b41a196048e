//! `installer disk latency`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::app::root_only;
use base::failure::{Class, Failure};
use base::program::Context;
use machine::node_release;
use machine::write_latency::{GOOD, RECORD, WriteLatency};

#[derive(Debug, clap::Args)]
pub(super) struct LatencyArgs {
    /// A directory on the file system to measure; a file of 4.6 MB is written there and removed. By default that of etcd on this
    /// node, and the result is recorded for `installer status`.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// On the partition of the data of Kubernetes, etcd's too.
const OF_NODE: &str = "/var/lib/nqrust";

impl LatencyArgs {
    /// # Errors
    /// `Class::Invalid` for users other than root without a directory, and for what is no directory; `Class::DiskIo` if it cannot be
    /// written.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let latency = match self.directory {
            Some(directory) => measure(&directory)?,
            None => {
                root_only::require("`installer disk latency` of a node", "disk latency")?;
                node_release::read(Path::new("/"))?;
                let latency = measure(Path::new(OF_NODE))?;
                latency.record(Path::new(RECORD))?;
                latency
            }
        };
        context.show(&latency, || text(&latency))
    }
}

fn measure(directory: &Path) -> Result<WriteLatency> {
    if !directory.is_dir() {
        let what = format!("{} is not a directory", directory.display());
        let hint = "Name a directory of a mounted file system; a device is not written.";
        return Err(Failure::new(Class::Invalid, what).hint(hint).into());
    }
    WriteLatency::measure(directory)
}

fn text(latency: &WriteLatency) -> String {
    let good = GOOD.as_millis();
    let judged = if latency.is_good() { "good enough for etcd" } else { "slow for etcd" };
    format!("{latency}\nThis is {judged}, which needs 99 of 100 within {good} ms.\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;

    #[test]
    fn a_device_is_not_written_and_a_slow_disk_is_told() {
        assert_eq!(class_of(&measure(Path::new("/dev/null")).unwrap_err()), Class::Invalid);
        let slow = WriteLatency { writes: 100, median: 2000, p99: 31_000, slowest: 40_000 };
        assert!(text(&slow).ends_with("\nThis is slow for etcd, which needs 99 of 100 within 10 ms.\n"));
        let fast = WriteLatency { p99: 900, ..slow };
        assert!(text(&fast).contains("within 0.9 ms") && text(&fast).contains("good enough for etcd"));
    }
}
