//! How long the trial of a changed network lasts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How long a trial lasts: 30 seconds to an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSpan(u64);

impl TrialSpan {
    pub const USUAL: Self = Self(120);

    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0
    }
}

impl FromStr for TrialSpan {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text.parse().ok().filter(|seconds| (30..=3600).contains(seconds));
        seconds.map(Self).ok_or("a trial lasts 30 to 3600 seconds")
    }
}

impl fmt::Display for TrialSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
