//! A file of a release.

use anyhow::{Result, bail};
use base::digest::Digest;
use serde::Serialize;

/// A file of a release, as the upload manifest lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Asset {
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) sha256: Digest,
    pub(crate) media_type: &'static str,
}

/// A kind of file, by the end of its name.
#[derive(Debug)]
pub(crate) struct AssetKind {
    end: &'static str,
    media_type: &'static str,
    /// Whom the file is for, as the page says it.
    pub(crate) purpose: &'static str,
}

/// The first whose end fits is the kind of a file.
const KINDS: [AssetKind; 20] = [
    kind(
        "-net-install.iso",
        "application/x-iso9660-image",
        "the installer and the OS; container images come from registries during the install",
    ),
    kind(".iso", "application/x-iso9660-image", "everything on one medium, for a USB stick, a DVD or a BMC"),
    kind("-vmlinuz", "application/octet-stream", "the kernel, to boot from the network"),
    kind("-initrd", "application/octet-stream", "the initrd, to boot from the network"),
    kind("-rootfs.squashfs", "application/octet-stream", "the OS image, to boot from the network"),
    kind("-custom.img", "application/octet-stream", "the empty customization area, to boot from the network"),
    kind(".raw", "application/octet-stream", "the disk of an installed node"),
    kind(".qcow2", "application/octet-stream", "the disk of an installed node, for QEMU"),
    kind("-sbom.spdx.json", "application/spdx+json", "what the OS and every container image are made of"),
    kind(
        "-provenance.intoto.jsonl",
        "application/vnd.in-toto+json",
        "what the release was built from, signed",
    ),
    kind("-build-report.json", "application/json", "what went into the build, and what came out"),
    kind("-release.json", "application/json", "every file of the medium with its SHA-256"),
    kind("-release.json.minisig", "text/plain", "the signatures of release.json, in minisign's format"),
    kind(".deb", "application/vnd.debian.binary-package", "a program for Debian 12 or later"),
    kind(
        ".tar.gz",
        "application/gzip",
        "a program for other distributions, with its man pages and completions",
    ),
    kind("release-notes.md", "text/markdown", "what has changed since the last release"),
    kind("README.md", "text/markdown", "which file to take"),
    kind("SHA256SUMS", "text/plain", "checksums of all files, for `sha256sum --check`"),
    kind("SHA256SUMS.sig", "application/octet-stream", "the signature of the checksums"),
    kind("upload.json", "application/json", "name, size, SHA-256 and media type of every file"),
];

const fn kind(end: &'static str, media_type: &'static str, purpose: &'static str) -> AssetKind {
    AssetKind { end, media_type, purpose }
}

/// Where the page lists the file `name`: media first, and the one that most people take before all others.
pub(crate) fn rank(name: &str) -> usize {
    let net_install = usize::from(name.ends_with(KINDS[0].end));
    match KINDS.iter().position(|kind| name.ends_with(kind.end)) {
        Some(0 | 1) => net_install,
        Some(place) => place,
        None => KINDS.len(),
    }
}

/// The kind of the file `name`. A file of no known kind is not published by accident.
pub(crate) fn kind_of(name: &str) -> Result<&'static AssetKind> {
    match KINDS.iter().find(|kind| name.ends_with(kind.end)) {
        Some(kind) => Ok(kind),
        None => {
            bail!("{name} is not a kind of file that releases have: add it to crates/release/src/asset.rs")
        }
    }
}

impl Asset {
    pub(crate) fn new(name: String, size: u64, sha256: Digest) -> Result<Self> {
        let media_type = kind_of(&name)?.media_type;
        Ok(Self { name, size, sha256, media_type })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_end_of_a_name_is_its_kind() {
        let purpose = |name: &str| kind_of(name).unwrap().purpose;
        assert!(purpose("a-1-amd64-net-install.iso").contains("registries"));
        assert!(purpose("a-1-amd64.iso").contains("everything"));
    }

    #[test]
    fn a_file_of_no_known_kind_is_refused_by_its_name() {
        let error = kind_of("node.yaml").unwrap_err().to_string();
        assert!(error.starts_with("node.yaml is not a kind of file"), "{error}");
    }
}
