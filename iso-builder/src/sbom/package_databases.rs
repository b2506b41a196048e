//! Databases of package managers, and `os-release`.

use super::package::{PackageManager, SbomPackage};

/// Reads a file in dpkg's format: `var/lib/dpkg/status`, or one of `var/lib/dpkg/status.d`, which has no `Status`
/// field. Packages of which only the configuration is left are not installed.
#[must_use]
pub fn dpkg(text: &str, distribution: &str) -> Vec<SbomPackage> {
    let package = |paragraph: &str| {
        let field = |name: &str| field(paragraph, name);
        let state = field("Status").and_then(|status| status.split_whitespace().nth(2));
        if matches!(state, Some("not-installed" | "config-files")) {
            return None;
        }
        Some(SbomPackage {
            manager: PackageManager::Dpkg,
            distribution: distribution.to_owned(),
            name: field("Package")?.to_owned(),
            version: field("Version")?.to_owned(),
            architecture: field("Architecture").unwrap_or_default().to_owned(),
            source: field("Source").map(str::to_owned),
            licence: None,
        })
    };
    paragraphs(text).filter_map(|paragraph| package(&paragraph)).collect()
}

/// Reads `lib/apk/db/installed`: each line is one letter, a colon, a value.
#[must_use]
pub fn apk(text: &str, distribution: &str) -> Vec<SbomPackage> {
    let package = |paragraph: &str| {
        let field = |name: &str| field(paragraph, name);
        let name = field("P")?.to_owned();
        Some(SbomPackage {
            manager: PackageManager::Apk,
            distribution: distribution.to_owned(),
            version: field("V")?.to_owned(),
            architecture: field("A").unwrap_or_default().to_owned(),
            source: field("o").filter(|origin| *origin != name).map(str::to_owned),
            licence: field("L").map(str::to_owned),
            name,
        })
    };
    paragraphs(text).filter_map(|paragraph| package(&paragraph)).collect()
}

/// The `ID` of an `os-release` file.
#[must_use]
pub fn distribution(os_release: &str) -> Option<String> {
    let id = os_release.lines().find_map(|line| line.trim().strip_prefix("ID="))?;
    let id = id.trim_matches(['"', '\'']);
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    (!id.is_empty() && id.bytes().all(plain)).then(|| id.to_owned())
}

/// The paragraphs of a text, which empty lines separate.
fn paragraphs(text: &str) -> impl Iterator<Item = String> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut lines = lines.by_ref().skip_while(|line| line.trim().is_empty());
        let mut paragraph = lines.next()?.to_owned();
        for line in lines.take_while(|line| !line.trim().is_empty()) {
            paragraph.push('\n');
            paragraph.push_str(line);
        }
        Some(paragraph)
    })
}

/// The first line of a field, if it is not empty.
fn field<'a>(paragraph: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    paragraph.lines().find_map(value).map(str::trim).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u14
Description: GNU C Library
 Package: not a field
 .
 Version: nor this

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: waiting
Status: install ok triggers-pending
Version: 2

Package: broken
Status: install ok installed


";

    #[test]
    fn what_dpkg_has_installed_is_read() {
        let packages = dpkg(STATUS, "debian");
        let found: Vec<_> = packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        assert_eq!(found, [("libc6", "2.36-9+deb12u14"), ("waiting", "2")]);
        assert_eq!(packages[0].source.as_deref(), Some("glibc"));
        let alone = dpkg("Package: tzdata\nVersion: 2024a-0\nArchitecture: all\n", "debian");
        assert_eq!(alone[0].purl(), "pkg:deb/debian/tzdata@2024a-0?arch=all");
    }

    #[test]
    fn the_machines_own_database_gives_what_dpkg_lists() {
        let status = std::fs::read_to_string("/var/lib/dpkg/status").unwrap();
        let format = "${db:Status-Status} ${Package} ${Version} ${Architecture}\n";
        let output = std::process::Command::new("dpkg-query").args(["-W", "-f", format]).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let mut listed: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
        let packages = dpkg(&status, "debian");
        let mut found: Vec<String> =
            packages.iter().map(|p| format!("{} {} {}", p.name, p.version, p.architecture)).collect();
        listed.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, listed);
    }

    #[test]
    fn what_apk_has_installed_is_read() {
        let text = "C:Q1x=\nP:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\no:musl\nF:lib\nR:ld-musl-x86_64.so.1\n\n\
                    P:musl-utils\nV:1.2.5-r0\nA:x86_64\nL:MIT AND BSD-2-Clause\no:musl\n";
        let packages = apk(text, "alpine");
        assert_eq!(packages.len(), 2);
        assert_eq!((packages[0].source.as_deref(), packages[1].source.as_deref()), (None, Some("musl")));
        assert_eq!(packages[1].licence.as_deref(), Some("MIT AND BSD-2-Clause"));
        assert_eq!(packages[0].purl(), "pkg:apk/alpine/musl@1.2.5-r0?arch=x86_64");
    }

    #[test]
    fn a_distribution_names_itself() {
        assert_eq!(distribution("NAME=x\nID=ubuntu\nID_LIKE=debian\n").as_deref(), Some("ubuntu"));
        assert_eq!(distribution("ID=\"wolfi\"\n").as_deref(), Some("wolfi"));
        assert_eq!(distribution("ID=a/b\nVERSION_ID=1\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = (dpkg(&text, "x"), apk(&text, "x"), distribution(&text));
        }
    }
}
