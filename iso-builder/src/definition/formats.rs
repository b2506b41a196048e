//! What single texts of an image definition must look like, by the path of the key. [`super::shape`] attaches these checks
//! to the shape of the document; the published schema does not name them.

use model::config::formats::{Fault, Format, FormatResult};
use model::release::is_boot_menu_word;

use crate::images::spec as images;
use crate::kubernetes::texts::{self as kubernetes, ArchiveName, Artifacts};
use crate::workloads::spec as workloads;

/// The formats of texts, by the path of their key with `[]` for the elements of a list.
pub(super) static FORMATS: [(&str, Format); 33] = [
    ("id", format("product-id", "invalid-id", id)),
    ("name", format("product-name", "invalid-name", name)),
    ("version", format("product-version", "invalid-version", version)),
    ("base.debian.include[]", format("package", "invalid-package", package)),
    ("base.oci.path", EITHER),
    ("base.archive.path", FILE),
    ("base.directory.path", DIRECTORY),
    ("overlays.rootfs[]", DIRECTORY),
    ("overlays.initrd[]", DIRECTORY),
    ("kernel.arguments[]", format("boot-word", "invalid-kernel-argument", boot_word)),
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
    ("install_config", FILE),
    ("install_defaults", FILE),
    ("disk.size", format("size", "invalid-size", size)),
    ("disk.config", FILE),
];

const IMAGE: Format = format("image", "invalid-image", images::reference);
/// The file that a path leads to is checked by a rule, because it depends on where the definition is.
const FILE: Format = format("file", "invalid-path", any);
const DIRECTORY: Format = format("directory", "invalid-path", any);
const EITHER: Format = format("file-or-directory", "invalid-path", any);
const WORKLOAD: Format = format("file-or-directory", "invalid-path", workloads::path);

const fn format(name: &'static str, code: &'static str, check: fn(&str) -> FormatResult) -> Format {
    Format { name, code, check }
}

fn any(_: &str) -> FormatResult {
    Ok(())
}

fn size(text: &str) -> FormatResult {
    ensure(text.parse::<base::size::ByteSize>().is_ok(), "is not a size, such as 40Gi")
}

fn ensure(right: bool, fault: &'static str) -> FormatResult {
    if right { Ok(()) } else { Err(Fault::new(fault)) }
}

/// The first part of the names of outputs.
fn id(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure(!text.is_empty() && text.chars().all(letter), "may only have a-z, 0-9 and -")
}

/// A name for people.
fn name(text: &str) -> FormatResult {
    ensure(!text.contains(char::is_control), "may not have control characters")
}

/// A part of the names of outputs.
fn version(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
    ensure(!text.is_empty() && text.chars().all(letter), "may only have letters, digits and .-+~")
}

/// Debian policy 5.6.1, with an optional `/release` or `=version` as apt understands them.
fn package(text: &str) -> FormatResult {
    let name = text.split(['=', '/']).next().unwrap_or("");
    let right = name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.=/~:".contains(c));
    ensure(right, "is not the name of a Debian package")
}

/// One argument of the kernel.
fn boot_word(text: &str) -> FormatResult {
    ensure(is_boot_menu_word(text), "cannot stand in a boot menu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_that_apt_would_take_for_options_or_patterns_are_refused() {
        for name in ["-y", "?essential", "a", "UPPER", "two words", "~Uinstalled", "$(reboot)"] {
            assert!(package(name).is_err(), "{name}");
        }
        for name in ["libc6", "g++", "linux-image-amd64", "curl=7.88.1-10", "0ad"] {
            assert!(package(name).is_ok(), "{name}");
        }
    }
}
