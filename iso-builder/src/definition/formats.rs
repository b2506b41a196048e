//! The formats of single texts of an image definition, by the path of the key. [`super::shape`] attaches these checks
//! to the shape of the document; the published schema does not name them.

use std::path::{Path, PathBuf};

use document::format::{Format, FormatFault, FormatResult, ensure};
use document::nearest::nearest;
use model::release::is_boot_menu_word;

use super::firmware::NONE;
use super::restriction;
use crate::extensions::spec as extensions;
use crate::firmware::FirmwareSet;
use crate::images::spec as images;
use crate::kubernetes::texts::{self as kubernetes, ArchiveName, Artifacts};
use crate::packages::plain_name;
use crate::signing::spec as signing;
use crate::workloads::spec as workloads;

/// The formats of texts, by the path of their key with `[]` for the elements of a list.
pub(super) static FORMATS: [(&str, Format); 45] = [
    ("id", format("product-id", "invalid-id", id)),
    ("name", format("product-name", "invalid-name", name)),
    ("version", format("product-version", "invalid-version", version)),
    ("packages.mirrors[]", format("mirror", "invalid-mirror", mirror)),
    ("packages.files[]", format("file", "invalid-path", deb)),
    ("base.debian.include[]", format("package", "invalid-package", package)),
    ("base.debian.firmware[]", format("firmware", "invalid-firmware", firmware)),
    ("base.oci.path", EITHER),
    ("base.archive.path", FILE),
    ("base.directory.path", DIRECTORY),
    ("overlays.rootfs[]", DIRECTORY),
    ("overlays.initrd[]", DIRECTORY),
    ("kernel.arguments[]", format("boot-word", "invalid-kernel-argument", boot_word)),
    ("kernel.module_certificate", FILE),
    ("extensions[].dkms", format("dkms-package", "invalid-package", dkms)),
    ("extensions[].source", format("directory", "invalid-path", extensions::path)),
    ("extensions[].modules", format("file-or-directory", "invalid-path", extensions::path)),
    ("extensions[].load[]", format("module", "invalid-module", extensions::module_name)),
    ("registries.configs.*.tls.ca_file", OPTIONAL_FILE),
    ("images.preload[].name", format("built-image", "invalid-image", images::built_name)),
    ("images.preload[].image", IMAGE),
    ("images.preload[].list", FILE),
    ("images.preload[].layout", DIRECTORY),
    ("images.preload[].archive", FILE),
    ("images.preload[].checksums", FILE),
    ("images.preload[].references[]", IMAGE),
    ("images.preload[].layers[].packages[]", format("package", "invalid-package", images::package_name)),
    ("images.preload[].env[]", format("variable", "invalid-variable", images::variable)),
    ("kubernetes.version", format("release", "invalid-release", kubernetes::version)),
    ("kubernetes.artifacts", format("artifacts", "invalid-artifacts", kubernetes::written::<Artifacts>)),
    (
        "kubernetes.images[]",
        format("archive-name", "invalid-archive-name", kubernetes::written::<ArchiveName>),
    ),
    ("manifests[].path", WORKLOAD),
    ("charts[].path", WORKLOAD),
    ("charts[].name", format("helm-release", "invalid-release-name", workloads::release)),
    ("charts[].namespace", format("namespace", "invalid-namespace", workloads::namespace)),
    ("charts[].values", format("file", "invalid-path", workloads::path)),
    ("charts[].kube_version", format("kube-version", "invalid-kube-version", workloads::version)),
    ("charts[].api_versions[]", format("api", "invalid-api", workloads::api)),
    ("trust.revoked.list", FILE),
    ("trust.revoked.keys[]", format("key-id", "invalid-key-id", signing::key_id)),
    ("trust.revoked.releases[]", format("digest", "invalid-digest", signing::release_digest)),
    ("install_config", FILE),
    ("install_defaults", FILE),
    ("disk.size", format("size", "invalid-size", size)),
    ("disk.config", FILE),
];

const IMAGE: Format = format("image", "invalid-image", images::reference);
/// The file that a path leads to is checked by a rule, because it depends on where the definition is.
const FILE: Format = format("file", "invalid-path", any);
/// Empty text names no file.
const OPTIONAL_FILE: Format = format("optional-file", "invalid-path", any);
const DIRECTORY: Format = format("directory", "invalid-path", any);
const EITHER: Format = format("file-or-directory", "invalid-path", any);
const WORKLOAD: Format = format("file-or-directory", "invalid-path", workloads::path);

/// The kind of file that a path of the definition must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    File,
    Directory,
    Either,
}

impl PathTarget {
    /// The path that a text of this format names, and what it must lead to; none where the text names no local file.
    pub(super) fn of(format: &Format, text: &str) -> Option<(Self, PathBuf)> {
        let target = match format.name {
            "file" => Self::File,
            "optional-file" if text.is_empty() => return None,
            "optional-file" => Self::File,
            "directory" => Self::Directory,
            "file-or-directory" => Self::Either,
            "artifacts" => match text.parse() {
                Ok(Artifacts::Directory(directory)) => return Some((Self::Directory, directory)),
                _ => return None,
            },
            _ => return None,
        };
        Some((target, text.into()))
    }

    pub(super) fn is_at(self, path: &Path) -> bool {
        match self {
            Self::File => path.is_file(),
            Self::Directory => path.is_dir(),
            Self::Either => path.exists(),
        }
    }

    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Either => "file or directory",
        }
    }
}

const fn format(name: &'static str, code: &'static str, check: fn(&str) -> FormatResult) -> Format {
    Format::new(name, code, check)
}

fn any(_: &str) -> FormatResult {
    Ok(())
}

fn size(text: &str) -> FormatResult {
    ensure(text.parse::<base::size::ByteSize>().is_ok(), "is not a size, such as 40Gi")
}

/// The first part of the names of outputs.
fn id(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure(!text.is_empty() && text.chars().all(letter), "may only have a-z, 0-9 and -")
}

fn name(text: &str) -> FormatResult {
    ensure(!text.contains(char::is_control), "may not have control characters")
}

/// A part of the names of outputs.
fn version(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
    ensure(!text.is_empty() && text.chars().all(letter), "may only have letters, digits and .-+~")
}

/// A line of sources.list(5), or the URL of a mirror alone as `mmdebstrap` takes it. Packages are downloaded by the builder, which
/// speaks HTTP only.
fn mirror(text: &str) -> FormatResult {
    let text = text.trim();
    let mut rest = match text.split_once(char::is_whitespace) {
        None => return ensure(is_web(text), "is not the http:// or https:// URL of a mirror"),
        Some(("deb", rest)) => rest.trim_start(),
        Some(("deb-src", _)) => {
            return Err(FormatFault::new("has sources only; a mirror of packages begins with deb"));
        }
        Some(_) => return Err(FormatFault::new("is not a line of sources.list: deb URL SUITE COMPONENT")),
    };
    if let Some(options) = rest.strip_prefix('[') {
        let Some((options, after)) = options.split_once(']') else {
            return Err(FormatFault::new("has options without the ] that ends them"));
        };
        let keys = options.split_whitespace().filter_map(|option| option.strip_prefix("signed-by="));
        for key in keys.flat_map(|keys| keys.split(',')) {
            let is_fingerprint =
                key.len() >= 40 && key.trim_end_matches('!').chars().all(|c| c.is_ascii_hexdigit());
            let fault = "names a key in signed-by that is neither an absolute path nor a fingerprint";
            ensure(key.starts_with('/') || is_fingerprint, fault)?;
        }
        rest = after.trim_start();
    }
    let mut words = rest.split_whitespace();
    let (url, suite, component) = (words.next().unwrap_or_default(), words.next(), words.next());
    ensure(is_web(url), "has another URL than http:// or https://; serve a local repository over http")?;
    let is_flat = suite.is_some_and(|suite| suite.ends_with('/'));
    ensure(
        suite.is_some() && (is_flat || component.is_some()),
        "lacks the suite or the component after the URL",
    )
}

fn is_web(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

/// Debian policy 5.6.1, with an optional `/release` or `=version` as apt understands them, and the architectures that it is for.
fn package(text: &str) -> FormatResult {
    restriction::check(text)?;
    let text = restriction::name(text);
    let name = plain_name(text);
    let right = name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.=/~:".contains(c));
    ensure(right, "is not the name of a Debian package")
}

/// The file of a Debian package.
fn deb(text: &str) -> FormatResult {
    ensure(text.ends_with(".deb"), "is not the file of a Debian package, whose name ends with .deb")
}

/// A package of sources for DKMS, for every architecture.
fn dkms(text: &str) -> FormatResult {
    package(text)?;
    ensure(
        restriction::name(text) == text,
        "is for one architecture only, and extensions are for all of them",
    )?;
    extensions::dkms_package(text)
}

/// A set of packages of firmware, or one of them.
fn firmware(text: &str) -> FormatResult {
    ensure(text != NONE, "stands alone: `firmware: none`")?;
    if FirmwareSet::EVERY.iter().any(|set| set.word() == text) {
        return Ok(());
    }
    package(text)?;
    if ["firmware", "microcode"].iter().any(|part| restriction::name(text).contains(part)) {
        return Ok(());
    }
    let fault = FormatFault::new(
        "is neither servers, all nor none, nor a package of firmware or microcode; other packages go to \
         base.debian.include",
    );
    let words = FirmwareSet::EVERY.map(FirmwareSet::word).into_iter().chain([NONE]);
    Err(FormatFault { suggestion: nearest(text, words).map(str::to_owned), ..fault })
}

/// One argument of the kernel.
fn boot_word(text: &str) -> FormatResult {
    ensure(is_boot_menu_word(text), "cannot stand in a boot menu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_that_a_build_cannot_use_are_refused_and_usual_lines_of_apt_are_not() {
        for line in [
            "deb http://deb.debian.org/debian trixie main",
            "deb [signed-by=/usr/share/keyrings/a.gpg arch=amd64] https://a.example.org/debian trixie main contrib",
            "deb [ signed-by=0123456789012345678901234567890123456789 ] http://a trixie main",
            "deb [trusted=yes] http://127.0.0.1:8080 ./",
            "http://deb.debian.org/debian",
        ] {
            assert!(mirror(line).is_ok(), "{line}");
        }
        for line in [
            "deb [trusted=yes] file:/srv/mirror trixie main",
            "deb copy:/srv/mirror ./",
            "deb-src http://deb.debian.org/debian trixie main",
            "deb [signed-by=keys/a.gpg] http://a.example.org/debian trixie main",
            "deb [signed-by=/a.gpg http://a.example.org/debian trixie main",
            "deb http://deb.debian.org/debian trixie",
            "deb http://deb.debian.org/debian",
            "rpm http://a.example.org x y",
            "ftp://a.example.org/debian",
            "/srv/mirror",
            "deb",
            "",
        ] {
            assert!(mirror(line).is_err(), "{line}");
        }
    }

    #[test]
    fn package_names_that_apt_would_take_for_options_or_patterns_are_refused() {
        for name in ["-y", "?essential", "a", "UPPER", "two words", "~Uinstalled", "$(reboot)"] {
            assert!(package(name).is_err(), "{name}");
        }
        for name in ["libc6", "grub-pc-bin [amd64]", "g++", "linux-image-amd64", "curl=7.88.1-10", "0ad"] {
            assert!(package(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_no_firmware_is_refused_with_what_can_stand_there() {
        for (word, told) in [
            ("server", Some("neither servers, all nor none")),
            ("curl", Some("base.debian.include")),
            ("none", Some("stands alone")),
            ("Firmware-x", Some("not the name of a Debian package")),
            ("firmware-iwlwifi", None),
            ("intel-microcode [amd64]", None),
            ("servers", None),
        ] {
            match (firmware(word), told) {
                (Ok(()), None) => {}
                (Err(fault), Some(told)) => assert!(format!("{fault:?}").contains(told), "{fault:?}"),
                (found, _) => panic!("{word}: {found:?}"),
            }
        }
    }
}
