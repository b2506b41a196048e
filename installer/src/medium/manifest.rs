//! The release manifest of a medium, and the digests that the kernel command line demands of what a medium has.

use anyhow::Result;

use super::PayloadSource;
use crate::digest::Digest;
use crate::failure::{Class, Classify, Failure};
use crate::release::Release;

/// The kernel parameter with the digest of the manifest that belongs to the running system.
const MANIFEST: &str = "nqrust.release=";

/// The kernel parameter with the digest of the `custom.img` of a medium on a server.
const CUSTOMIZATION: &str = "nqrust.custom=";

/// The digest that the kernel command line `cmdline` demands of the manifest, if any.
pub fn expected_manifest(cmdline: &str) -> Result<Option<Digest>> {
    expected(cmdline, MANIFEST)
}

/// The digest that the kernel command line `cmdline` demands of what a medium on a server was customised with, if any.
pub fn expected_customization(cmdline: &str) -> Result<Option<Digest>> {
    expected(cmdline, CUSTOMIZATION)
}

fn expected(cmdline: &str, parameter: &str) -> Result<Option<Digest>> {
    let word = cmdline.split_whitespace().rev().find_map(|word| word.strip_prefix(parameter));
    word.map(|digest| digest.parse().class(Class::Invalid, || format!("reading {parameter}{digest}")))
        .transpose()
}

/// Reads the manifest of `source` and checks it against `expected`.
pub fn read_release(source: &dyn PayloadSource, expected: Option<Digest>) -> Result<Release> {
    let bytes = source.manifest()?;
    let found = Digest::of(&bytes);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let what = format!("the release manifest of {} is not the one of this boot", source.describe());
        return Err(Failure::new(Class::Verification, what)
            .because(anyhow::anyhow!("its SHA-256 is {found}, and the kernel command line says {expected}"))
            .hint("Boot from the medium that is to be installed, or write it again.")
            .into());
    }
    Release::parse(&bytes)
        .class(Class::Verification, || format!("reading the release manifest of {}", source.describe()))
}
