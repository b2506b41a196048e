//! A package of an operating system, and its package URL.

use base::percent;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SbomPackage {
    pub manager: PackageManager,
    /// The distribution as `ID` in `os-release` has it: `debian`, `alpine`, …
    pub distribution: String,
    pub name: String,
    /// With epoch and revision.
    pub version: String,
    /// The architecture in the distribution's words.
    pub architecture: String,
    /// The source package, if it is known and has another name.
    pub source: Option<String>,
    /// The licence as the package states it.
    pub licence: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackageManager {
    /// Of Debian and Ubuntu.
    Dpkg,
    /// Of Alpine.
    Apk,
    /// None: a release of a project on GitHub, whose owner is the distribution.
    Github,
    /// None, and nobody publishes it: files of the one who builds. It has no distribution.
    None,
}

impl PackageManager {
    fn purl_type(self) -> &'static str {
        match self {
            Self::Dpkg => "deb",
            Self::Apk => "apk",
            Self::Github => "github",
            Self::None => "generic",
        }
    }
}

impl SbomPackage {
    /// The package URL: `pkg:deb/debian/libc6@2.36-9?arch=amd64`.
    #[must_use]
    pub fn purl(&self) -> String {
        let Self { distribution, name, version, architecture, .. } = self;
        let purl_type = self.manager.purl_type();
        let [distribution, name, version] = [distribution, name, version].map(|text| encode(text));
        let arch =
            if architecture.is_empty() { String::new() } else { format!("?arch={}", encode(architecture)) };
        let namespace = if distribution.is_empty() { distribution } else { format!("{distribution}/") };
        format!("pkg:{purl_type}/{namespace}{name}@{version}{arch}")
    }
}

/// Percent-encodes a part of a package URL, in which colons stay as they are.
pub(super) fn encode(text: &str) -> String {
    percent::encode_but(text, b"-._~:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_url_has_type_distribution_name_version_and_architecture() {
        let mut package = SbomPackage {
            manager: PackageManager::Dpkg,
            distribution: "debian".into(),
            name: "libstdc++6".into(),
            version: "1:12.2.0-14+deb12u1~x".into(),
            architecture: "amd64".into(),
            source: None,
            licence: None,
        };
        assert_eq!(package.purl(), "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1~x?arch=amd64");
        (package.manager, package.distribution, package.architecture) =
            (PackageManager::Apk, "wolfi".into(), String::new());
        assert!(package.purl().starts_with("pkg:apk/wolfi/") && package.purl().ends_with("~x"));
        (package.manager, package.distribution) = (PackageManager::None, String::new());
        assert!(package.purl().starts_with("pkg:generic/libstdc%2B%2B6@1:12"), "{}", package.purl());
    }
}
