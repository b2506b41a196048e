//! Versions of containerd and of its programs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version as `containerd --version` prints it, for instance `1.6.20~ds1` or `v1.7.23-k3s2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerdVersion {
    text: String,
    series: (u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of containerd, such as 1.7.23")]
pub struct ParseVersionError(String);

impl ContainerdVersion {
    /// Major and minor version: patch releases do not change the database schema.
    #[must_use]
    pub fn series(&self) -> (u32, u32) {
        self.series
    }

    /// The version in the output of `containerd --version`: program, Go package, version, revision.
    pub fn from_program(printed: &str) -> Result<Self, ParseVersionError> {
        printed.split_whitespace().nth(2).unwrap_or(printed.trim()).parse()
    }
}

impl FromStr for ContainerdVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: Option<&str>| {
            let part = part?;
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part.get(..digits)?.parse().ok()
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        // A major version has digits only; the minor one may be followed by more.
        let major = parts.next().and_then(|major| major.parse().ok());
        match (major, number(parts.next())) {
            (Some(major), Some(minor)) => Ok(Self { text: text.to_owned(), series: (major, minor) }),
            _ => Err(ParseVersionError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ContainerdVersion {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ContainerdVersion> for String {
    fn from(version: ContainerdVersion) -> Self {
        version.text
    }
}

impl fmt::Display for ContainerdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.strip_prefix('v').unwrap_or(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        for (printed, shown, series) in [
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n",
                "1.6.20~ds1",
                (1, 6),
            ),
            ("containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d4ede3\n", "2.0.5", (2, 0)),
            ("containerd github.com/k3s-io/containerd v1.7.23-k3s2 ", "1.7.23-k3s2", (1, 7)),
            (
                "containerd github.com/containerd/containerd/v2 2.3.0-rc.1+unknown",
                "2.3.0-rc.1+unknown",
                (2, 3),
            ),
            ("1.10", "1.10", (1, 10)),
        ] {
            let version = ContainerdVersion::from_program(printed).unwrap();
            assert_eq!((version.to_string().as_str(), version.series()), (shown, series), "{printed}");
        }
        for text in ["", "containerd", "1", "x.y.z", "1.x", "-1.2", "v.1", "99999999999.1", "1~2.3"] {
            assert!(ContainerdVersion::from_program(text).is_err(), "{text}");
        }
    }
}
