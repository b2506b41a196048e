//! The schemes by which udev names network cards, and what differs between them as far as it is simulated.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The versions of systemd that brought a scheme.
const SCHEMES: [u32; 18] =
    [238, 239, 240, 241, 243, 245, 247, 249, 250, 251, 252, 253, 254, 255, 257, 258, 259, 260];

/// A scheme, by the version of systemd that brought it: `v257`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamingScheme(u32);

impl NamingScheme {
    /// The latest scheme of this version of systemd; none for later versions than this program knows.
    #[must_use]
    pub fn of_systemd(version: u32) -> Option<Self> {
        let newest = SCHEMES.last().copied()?;
        let found = SCHEMES.into_iter().rev().find(|scheme| *scheme <= version)?;
        (version <= newest).then_some(Self(found))
    }

    /// The scheme with this name; none if this program does not know it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let version = name.strip_prefix('v')?.parse().ok()?;
        SCHEMES.contains(&version).then_some(Self(version))
    }

    /// Whether both number slots in the same way.
    pub(super) fn takes_slots_as(self, other: Self) -> bool {
        let ways = |scheme: Self| (scheme.reads_firmware_slot(), scheme.takes_slot_of_bridge());
        ways(self) == ways(other)
    }

    /// Whether the slot's number is taken from the firmware.
    pub(super) fn reads_firmware_slot(self) -> bool {
        self.0 >= 257
    }

    /// Whether a card gets the slot of the bridge above it, if it is one of several functions.
    pub(super) fn takes_slot_of_bridge(self) -> bool {
        // Before v247 a card alone got it too.
        self.0 < 247 || (251..255).contains(&self.0)
    }
}

impl fmt::Display for NamingScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Serialize for NamingScheme {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a scheme; none for one that this program does not know, as that of a later systemd.
pub(super) fn known_scheme<'de, D: Deserializer<'de>>(source: D) -> Result<Option<NamingScheme>, D::Error> {
    Ok(Option::<String>::deserialize(source)?.as_deref().and_then(NamingScheme::parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_systemd_has_the_latest_scheme_before_it() {
        for (version, expected) in [
            (237, None),
            (238, Some("v238")),
            (252, Some("v252")),
            (256, Some("v255")),
            (257, Some("v257")),
            (261, None),
        ] {
            let found = NamingScheme::of_systemd(version).map(|scheme| scheme.to_string());
            assert_eq!(found.as_deref(), expected, "{version}");
        }
        assert_eq!((NamingScheme::parse("v256"), NamingScheme::parse("rhel-9.0")), (None, None));
    }
}
