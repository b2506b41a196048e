//! Versions of the distributions: the cluster's, and the one that this system holds.

use std::time::Duration;

use base::command::{Invocation, Runner};
use model::config::Distribution;

/// A version, such as `v1.33.1+rke2r1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The numbers of the Kubernetes version, and the release of the distribution.
    numbers: [u32; 4],
    text: String,
}

impl Version {
    /// None where the text has no three numbers.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (kubernetes, build) = rest.split_once('+').unwrap_or((rest, ""));
        let mut parts = kubernetes.split('-').next()?.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        let (major, minor, patch) = (next()?, next()?, next()?);
        let digits = build.rfind(|c: char| !c.is_ascii_digit()).map_or(build, |at| &build[at + 1..]);
        let release = digits.parse().unwrap_or(0);
        Some(Self { numbers: [major, minor, patch, release], text: text.to_owned() })
    }

    /// Whether this is older by more than a patch.
    #[must_use]
    pub fn is_of_older_series(&self, other: &Self) -> bool {
        self.numbers[..2] < other.numbers[..2]
    }

    /// Whether this differs by no more than a patch.
    #[must_use]
    pub fn is_of_same_series(&self, other: &Self) -> bool {
        self.numbers[..2] == other.numbers[..2]
    }

    /// Whether this is of that distribution; other builds do not say what they are of.
    #[must_use]
    pub fn is_of(&self, distribution: &str) -> bool {
        self.text.split_once('+').is_some_and(|(_, build)| build.starts_with(distribution))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The version in what the API says at `/version`.
pub(super) fn of_api(json: &[u8]) -> Option<Version> {
    let value: serde_json::Value = serde_json::from_slice(json).ok()?;
    Version::read(value["gitVersion"].as_str()?)
}

/// The version of the distribution that this system holds, if it holds it: the installing system is the system that is
/// installed.
#[must_use]
pub fn of_program(runner: &dyn Runner, distribution: Distribution) -> Option<Version> {
    let program = Invocation::new(distribution.name());
    let program = match distribution {
        Distribution::Rke2 | Distribution::K3s => program.arg("--version"),
        Distribution::Kubeadm => program.args(["version", "--output", "short"]),
    };
    let output = runner.run(&program.limit(Duration::from_secs(10))).ok()?;
    // `rke2 version v1.33.1+rke2r1 (0123abcd)`, and a line about Go; `v1.37.2`.
    String::from_utf8_lossy(&output).split_whitespace().find_map(Version::read)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testing::runner::ScriptedRunner;

    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let read = |text| Version::read(text).unwrap();
        assert!(read("v1.33.10+rke2r1") > read("v1.33.9+rke2r1"));
        assert!(read("v1.33.1+rke2r2") > read("v1.33.1+rke2r1"));
        assert!(read("v1.32.9+k3s1").is_of_older_series(&read("v1.33.0+k3s1")));
        assert!(!read("v1.33.0+k3s1").is_of_older_series(&read("v1.33.9+k3s1")));
        assert!(read("v1.37.2").is_of_same_series(&read("v1.37.9")));
        assert!(!read("v1.37.2").is_of_same_series(&read("v1.36.2")));
        assert!(read("v1.33.1+k3s1").is_of("k3s") && !read("v1.33.1+k3s1").is_of("rke2"));
        assert!(!read("v1.33.1").is_of("rke2"));
        assert_eq!(Version::read("v1.33"), None);
        assert_eq!(Version::read("v1.33.1-rc1+rke2r1").unwrap().numbers, [1, 33, 1, 1]);
    }

    #[test]
    fn a_program_tells_its_version_and_one_that_is_not_there_none() {
        let says = |command, output: &str| ScriptedRunner::failing("no such program").answer(command, output);
        let k3s = says("k3s --version", "k3s version v1.33.1+k3s1 (99d91538)\ngo version go1.24.2\n");
        assert_eq!(of_program(&k3s, Distribution::K3s).unwrap().to_string(), "v1.33.1+k3s1");
        assert_eq!(of_program(&k3s, Distribution::Rke2), None);
        assert_eq!(of_program(&says("k3s --version", "what?"), Distribution::K3s), None);
        let kubeadm = says("kubeadm version --output short", "v1.37.2\n");
        assert_eq!(of_program(&kubeadm, Distribution::Kubeadm).unwrap().to_string(), "v1.37.2");
    }

    proptest! {
        #[test]
        fn any_text_is_a_version_or_none(text in ".{0,40}") {
            if let Some(version) = Version::read(&text) {
                prop_assert_eq!(version.to_string(), text);
            }
        }
    }
}
