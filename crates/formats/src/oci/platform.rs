//! The platform of an image.

use serde::{Deserialize, Serialize};

/// The platform of an image, in Go's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `amd64`, `arm64`, …
    pub architecture: String,
    pub os: String,
    /// The variant of the architecture, such as `v7` of `arm` or `v3` of `amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// True if an index's manifest of this platform is taken on Linux machines of `architecture` (Go's name).
    ///
    /// As containerd compares them (`platforms.Only` with the platform of the host, whose variant it leaves empty on amd64 and
    /// arm64): other spellings of the architecture count, and so does the variant that is the baseline, `v1` of amd64 and `v8`
    /// of arm64. An image for a later variant does not run on every machine and is never taken.
    #[must_use]
    pub fn is_baseline_of(&self, architecture: &str) -> bool {
        self.is_of(architecture) && self.is_baseline()
    }

    /// True if it is Linux on `architecture`, in any variant.
    #[must_use]
    pub fn is_of(&self, architecture: &str) -> bool {
        self.os.eq_ignore_ascii_case("linux") && spelled(&self.architecture) == architecture
    }

    fn is_baseline(&self) -> bool {
        let variant = self.variant.as_deref().unwrap_or_default().to_ascii_lowercase();
        match spelled(&self.architecture) {
            "amd64" => matches!(&*variant, "" | "v1"),
            "arm64" => matches!(&*variant, "" | "8" | "v8"),
            _ => variant.is_empty(),
        }
    }
}

/// Go's name of an architecture that has several.
fn spelled(architecture: &str) -> &str {
    match architecture {
        "x86_64" | "x86-64" | "AMD64" => "amd64",
        "aarch64" | "ARM64" => "arm64",
        other => other,
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}
