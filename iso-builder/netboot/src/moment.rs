//! Points in time by the server's clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Seconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(0, |since| since.as_secs()))
    }

    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// RFC 3339.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0).ok();
        match seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
            Some(moment) => write!(f, "{moment}"),
            None => write!(f, "@{}", self.0),
        }
    }
}
