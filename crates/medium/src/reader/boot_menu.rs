//! The releases that an ISO's boot menu names.

use base::digest::Digest;
use model::boot::parameter;

/// The size limit of a boot menu, in bytes.
pub const MAX_BOOT_MENU: u64 = 1 << 20;

/// How the release that a boot menu names differs from the one on its medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedReleaseDifference {
    /// It names none.
    Unnamed,
    Other {
        expected: String,
        found: String,
    },
}

/// Compares the releases that `menu` names with the digest of the manifest.
#[must_use]
pub fn named_release_difference(menu: &str, digest: Digest) -> Option<NamedReleaseDifference> {
    let (expected, argument) = (digest.oci(), format!("{}=", parameter::RELEASE));
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';');
    let mut named = menu
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split(argument.as_str()).skip(1))
        .map(|rest| rest.split(ends).next().unwrap_or_default())
        .peekable();
    if named.peek().is_none() {
        return Some(NamedReleaseDifference::Unnamed);
    }
    let found = named.find(|named| *named != expected)?.to_owned();
    Some(NamedReleaseDifference::Other { expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boot_entry_has_to_name_the_release() {
        let digest = Digest::of(b"manifest");
        let good = format!("linux /vmlinuz quiet nqrust.release={}\n", digest.oci());
        assert_eq!(named_release_difference(&good, digest), None);
        assert_eq!(named_release_difference(&format!("{good}set a=\"{}\"", good.trim()), digest), None);
        assert_eq!(named_release_difference("linux /vmlinuz", digest), Some(NamedReleaseDifference::Unnamed));
        let commented = format!("# {good}");
        assert_eq!(named_release_difference(&commented, digest), Some(NamedReleaseDifference::Unnamed));
        for other in ["sha256:00", "", "${release}"] {
            let menu = format!("{good}linux /vmlinuz nqrust.release={other} quiet\n");
            let expected = digest.oci();
            let difference = NamedReleaseDifference::Other { expected, found: other.into() };
            assert_eq!(named_release_difference(&menu, digest), Some(difference));
        }
    }
}
