//! What requests cost their clients: times, bytes and errors of each kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// The script of every machine.
    StartScript,
    /// The script of one machine.
    BootScript,
    Kernel,
    Initrd,
    OsImage,
    ReleaseManifest,
    Signatures,
    Configuration,
    /// A second request for a configuration that was given; the server has to refuse it.
    UsedToken,
    Blob,
    /// A report of an install.
    Report,
    /// A report of an installed node.
    NodeReport,
    /// The list of all machines.
    Fleet,
}

base::names!(RequestKind {
    StartScript = "start-script",
    BootScript = "boot-script",
    Kernel = "kernel",
    Initrd = "initrd",
    OsImage = "os-image",
    ReleaseManifest = "release-manifest",
    Signatures = "signatures",
    Configuration = "configuration",
    UsedToken = "used-token",
    Blob = "blob",
    Report = "report",
    NodeReport = "node-report",
    Fleet = "fleet",
});

#[derive(Debug, Default)]
struct KindSamples {
    microseconds: Vec<u32>,
    bytes: u64,
}

/// Collects what all machines measure.
#[derive(Debug, Default)]
pub struct Measurements {
    samples: Mutex<BTreeMap<RequestKind, KindSamples>>,
    /// How often a request of a kind failed in a way; it was sent again.
    errors: Mutex<BTreeMap<(RequestKind, String), u64>>,
}

/// The requests of one kind that were answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindSummary {
    pub kind: RequestKind,
    pub count: u64,
    /// Requests that failed and were sent again.
    pub errors: u64,
    /// Of the bodies of the answers.
    pub bytes: u64,
    /// From the connection, if one had to be opened, to the last byte.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Errors of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub kind: RequestKind,
    pub error: String,
    pub count: u64,
}

impl Measurements {
    pub(crate) fn answered(&self, kind: RequestKind, time: Duration, bytes: u64) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = samples.entry(kind).or_default();
        samples.microseconds.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        samples.bytes += bytes;
    }

    pub(crate) fn failed(&self, kind: RequestKind, error: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry((kind, error.to_owned())).or_default() += 1;
    }

    #[must_use]
    pub fn summaries(&self) -> Vec<KindSummary> {
        let errors = self.errors();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let summary = |(kind, samples): (&RequestKind, &mut KindSamples)| {
            samples.microseconds.sort_unstable();
            let of_kind = errors.iter().filter(|error| error.kind == *kind);
            KindSummary {
                kind: *kind,
                count: samples.microseconds.len() as u64,
                errors: of_kind.map(|error| error.count).sum(),
                bytes: samples.bytes,
                p50_ms: percentile(&samples.microseconds, 50),
                p99_ms: percentile(&samples.microseconds, 99),
                max_ms: percentile(&samples.microseconds, 100),
            }
        };
        samples.iter_mut().map(summary).collect()
    }

    #[must_use]
    pub fn errors(&self) -> Vec<ErrorCount> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |((kind, error), count): (&(RequestKind, String), &u64)| ErrorCount {
            kind: *kind,
            error: error.clone(),
            count: *count,
        };
        errors.iter().map(count).collect()
    }
}

/// The smallest value that `percent` of 100 sorted values, in microseconds, do not exceed; in milliseconds.
fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |time| f64::from(*time) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_of_its_rank() {
        let times: Vec<u32> = (1..=200).map(|time| time * 1000).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&times, percent)), [100.0, 198.0, 200.0]);
        assert_eq!([50, 99].map(|percent| percentile(&[7000], percent)), [7.0, 7.0]);
        assert_eq!(percentile(&[], 99).to_string(), "0");
    }

    #[test]
    fn errors_are_counted_beside_the_answers_of_their_kind() {
        let measured = Measurements::default();
        for time in [3, 1, 2] {
            measured.answered(RequestKind::Report, Duration::from_millis(time), 10);
        }
        measured.failed(RequestKind::Report, "503");
        measured.failed(RequestKind::Report, "503");
        measured.failed(RequestKind::Report, "the connection was refused");
        let [summary] = measured.summaries()[..] else { panic!("one kind") };
        assert_eq!((summary.count, summary.errors, summary.bytes), (3, 3, 30));
        assert_eq!((summary.p50_ms, summary.max_ms), (2.0, 3.0));
        assert_eq!(measured.errors().len(), 2);
    }
}
