//! The release manifest of a medium: the digests that the kernel command line requires, and who has signed it.
//!
//! Bytes become a release that is used in [`read_release`] or [`judge_release`] only.

use anyhow::Result;

use super::payload_source::{PayloadSource, PayloadTransport};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use model::boot::parameter;
use model::release_manifest::ReleaseManifest;
use trust::{ReleaseTrust, TrustStore};

/// The largest release manifest that is read.
pub(super) const MANIFEST_LIMIT: u64 = 16 << 20;

/// How a person says that a release may be used although not enough trusted keys have signed it.
const ALLOW: &str =
    "--allow-unsigned, or os.trust.unsigned: allow in a configuration that does not come with the release";

/// A release whose origin was judged.
#[derive(Clone, Debug)]
pub struct JudgedRelease {
    pub release: ReleaseManifest,
    pub trust: ReleaseTrust,
}

/// The digest of the manifest that the kernel command line `cmdline` requires, if any. Two different ones are refused: one
/// was added to a boot menu that already had one.
pub fn expected_manifest(cmdline: &str) -> Result<Option<Digest>> {
    expected(cmdline, parameter::RELEASE)
}

/// The digest of a served medium's customization that the kernel command line `cmdline` requires, if any. Two different ones
/// are refused.
pub fn expected_customization(cmdline: &str) -> Result<Option<Digest>> {
    expected(cmdline, parameter::CUSTOM)
}

fn expected(cmdline: &str, parameter: &str) -> Result<Option<Digest>> {
    let values =
        cmdline.split_whitespace().filter_map(|word| word.strip_prefix(parameter)?.strip_prefix('='));
    let mut named = values.map(|digest| {
        digest.parse::<Digest>().class(Class::Invalid, || format!("reading {parameter}={digest}"))
    });
    let Some(first) = named.next().transpose()? else { return Ok(None) };
    for other in named {
        let other = other?;
        if other != first {
            let what = format!("the kernel command line has {parameter}= twice");
            let why = anyhow::anyhow!("it names {first} and {other}");
            let hint = "Boot with one of them, or write the medium again.";
            return Err(Failure::new(Class::Verification, what).because(why).hint(hint).into());
        }
    }
    Ok(Some(first))
}

/// Reads the manifest of `source`, checks it against `expected`, and judges by its signatures whether it may be used by a system
/// that trusts the keys of `store`.
///
/// # Errors
/// [`Class::Verification`] if it is not the expected one, is damaged, or is not trusted.
pub fn read_release(
    source: &dyn PayloadSource,
    expected: Option<Digest>,
    store: &TrustStore,
) -> Result<JudgedRelease> {
    let release = read_manifest(source, expected)?;
    let trust = judge_release(&release, &source.describe(), store)?;
    Ok(JudgedRelease { release, trust })
}

/// Judges a release that came from `source`, for a system that trusts the keys of `store`.
///
/// # Errors
/// [`Class::Verification`] if it must not be used.
pub fn judge_release(
    release: &ReleaseManifest,
    source: &str,
    store: &TrustStore,
) -> Result<ReleaseTrust, Failure> {
    trust::judge(release, release.bytes(), release.signatures(), store)
        .map_err(|error| error.failure(source, ALLOW))
}

/// Reads the manifest of `source` and checks it against `expected`. Nothing of it may be used before [`judge_release`], but for the
/// configuration that it brings, which says what is trusted.
///
/// # Errors
/// [`Class::Verification`] if it is not the expected one, or is damaged.
pub fn read_manifest(source: &dyn PayloadSource, expected: Option<Digest>) -> Result<ReleaseManifest> {
    let bytes = source.manifest()?;
    let found = Digest::of(&bytes);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let what = format!("the release manifest of {} is not the one of this boot", source.describe());
        return Err(Failure::new(Class::Verification, what)
            .because(anyhow::anyhow!("its SHA-256 is {found}, and the kernel command line says {expected}"))
            .hint("Boot from the medium that is to be installed, or write it again.")
            .into());
    }
    let signatures = source.signatures()?;
    ReleaseManifest::parse(bytes, signatures)
        .class(Class::Verification, || format!("reading the release manifest of {}", source.describe()))
}

/// For a release without an expected digest: checks that trusted keys have signed it, or that it is from this machine or from a
/// server with a verified certificate. Everything in a release follows from its manifest, so its sender decides what runs as root.
///
/// # Errors
/// [`Class::Invalid`] with `hint`, which says how to give the digest.
pub fn require_origin(source: &dyn PayloadSource, trust: &ReleaseTrust, hint: &str) -> Result<(), Failure> {
    if matches!(trust, ReleaseTrust::Signed(_)) || source.transport() != PayloadTransport::Clear {
        return Ok(());
    }
    let what = format!(
        "the release of {} is refused: it is {trust}, and its digest is not given",
        source.describe()
    );
    let why = "the server is not authenticated, so anyone on the network could send another release";
    Err(Failure::new(Class::Invalid, what).because(anyhow::anyhow!("{why}")).hint(hint.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;

    #[test]
    fn a_command_line_that_names_two_releases_is_refused() {
        let [one, other] = [b"one", b"two"].map(|bytes| Digest::of(bytes.as_slice()));
        let word = |digest: Digest| format!("{}={}", parameter::RELEASE, digest.oci());
        assert_eq!(expected_manifest("quiet").unwrap(), None);
        for line in [word(one), format!("{0} quiet {0}", word(one))] {
            assert_eq!(expected_manifest(&line).unwrap(), Some(one));
        }
        for line in [format!("{} {}", word(one), word(other)), format!("{} quiet {}", word(other), word(one))]
        {
            assert_eq!(class_of(&expected_manifest(&line).unwrap_err()), Class::Verification);
        }
        let garbled = format!("{} {}=nonsense", word(one), parameter::RELEASE);
        assert_eq!(class_of(&expected_manifest(&garbled).unwrap_err()), Class::Invalid);
    }
}
