//! The figures of one build while it runs: the steps that it has asked for, and what has come and gone over networks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::parallel::locked;
use serde::Serialize;

/// The way in which a build obtained the outputs of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepUse {
    pub step: String,
    /// True if the outputs were there already.
    pub cached: bool,
    /// The repository that they come from, if another host made them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The time that it took, including the check of existing outputs.
    pub seconds: f64,
    /// Bytes of the outputs.
    pub size: u64,
}

impl StepUse {
    /// The time that it took, for people, or in place of it where the outputs were.
    #[must_use]
    pub fn time(&self) -> String {
        match (&self.origin, self.cached) {
            (Some(_), _) => "shared".to_owned(),
            (None, true) => "cached".to_owned(),
            (None, false) => format!("{:.1} s", self.seconds),
        }
    }
}

/// What a build fetches over networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedKind {
    /// Packages, and the files of a Kubernetes distribution.
    Downloads,
    /// Container images of registries.
    Images,
    /// Files of steps that another host has made.
    Steps,
}

base::names!(FetchedKind { Downloads = "downloads", Images = "images", Steps = "steps" });

/// The figures of one build so far.
#[derive(Debug, Default)]
pub struct BuildFigures {
    uses: Mutex<Vec<StepUse>>,
    fetched: [AtomicU64; FetchedKind::ALL.len()],
    shared_blobs: AtomicU64,
    shared_bytes: AtomicU64,
}

impl BuildFigures {
    /// The steps that the build has asked for, in the order of their ends.
    #[must_use]
    pub fn uses(&self) -> Vec<StepUse> {
        locked(&self.uses).clone()
    }

    /// Bytes of this kind that came over networks.
    #[must_use]
    pub fn fetched_bytes(&self, kind: FetchedKind) -> u64 {
        self.fetched[kind as usize].load(Ordering::Relaxed)
    }

    /// The blobs, and the bytes of them, that registries got of steps that this host has made.
    #[must_use]
    pub fn shared(&self) -> (u64, u64) {
        (self.shared_blobs.load(Ordering::Relaxed), self.shared_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn fetched(&self, kind: FetchedKind, bytes: u64) {
        self.fetched[kind as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn used(&self, used: StepUse) {
        locked(&self.uses).push(used);
    }

    /// A registry got a blob of so many bytes.
    pub(super) fn sent(&self, bytes: u64) {
        self.shared_blobs.fetch_add(1, Ordering::Relaxed);
        self.shared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
