//! The profile of a build: how hard it compresses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How hard to compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Quick to build: zstd level 3.
    #[default]
    Development,
    /// Small: zstd level 15.
    Release,
}

impl Profile {
    /// The zstd level of the OS image.
    #[must_use]
    pub fn zstd_level(self) -> u32 {
        match self {
            Self::Development => 3,
            Self::Release => 15,
        }
    }
}
