//! The identity of a machine: the addresses of its cards, and the vendor's entries in the firmware.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Mac;

/// Placeholders in fields of the firmware that the maker has not filled in.
const JUNK: [&str; 20] = [
    "0",
    "asset tag",
    "asset-1234567890",
    "base board asset tag",
    "chassis asset tag",
    "chassis serial number",
    "default string",
    "empty",
    "n/a",
    "na",
    "no asset information",
    "no asset tag",
    "none",
    "not applicable",
    "not available",
    "not specified",
    "null",
    "serial number",
    "system serial number",
    "unknown",
];

/// UUIDs that makers of boards leave in all of them, in one of their two byte orders. The one list of them: selectors,
/// the network server and the checks before an install ask [`is_shared`].
const SHARED_UUIDS: [Uuid; 3] = [
    // The placeholder of AMI's firmware, the bytes 00 02 00 03 00 04 ... 00 09, that makers of boards are to replace with
    // AMI's DMI editor and often do not. The same value is in the lists of other tools that name machines by their UUID.
    uuid::uuid!("03000200-0400-0500-0006-000700080009"),
    // Firmware that just counts: the bytes 00 01 02 ... 0f.
    uuid::uuid!("03020100-0504-0706-0809-0a0b0c0d0e0f"),
    // A pattern that was typed in: 12 34 56 78 ... aa bb cc.
    uuid::uuid!("12345678-1234-5678-90ab-cddeefaabbcc"),
];

/// The identifiers of one machine. What is not known, or is the same on many machines, is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    /// The hardware addresses of its cards, sorted.
    #[schemars(with = "Vec<String>")]
    pub macs: Vec<Mac>,
    /// The serial number of the system (SMBIOS 3.7, section 7.2).
    pub serial: Option<String>,
    /// The UUID of the system (the same section), as the kernel writes it.
    #[schemars(with = "Option<String>")]
    pub uuid: Option<Uuid>,
    /// The tag that the owner gave the chassis (section 7.4).
    pub asset_tag: Option<String>,
}

impl Identity {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = |name: &str, value: Option<String>| value.map(|value| format!("{name}:{value}"));
        let macs = self.macs.iter().filter_map(|mac| marks("mac", Some(mac.to_string())));
        let others = [
            marks("serial", self.serial.clone()),
            marks("uuid", self.uuid.map(|uuid| uuid.to_string())),
            marks("asset-tag", self.asset_tag.clone()),
        ];
        let all: Vec<_> = macs.chain(others.into_iter().flatten()).collect();
        f.write_str(if all.is_empty() { "nothing that identifies it" } else { "" })?;
        // Texts of the firmware are shown on consoles.
        f.write_str(&all.join(", ").replace(char::is_control, " "))
    }
}

/// A serial number or a tag; none where it is a maker's way to say that there is none.
#[must_use]
pub fn real_text(text: &str) -> Option<String> {
    let text = text.trim();
    let folded = text.trim_end_matches('.').to_ascii_lowercase();
    // Also "To be filled by O.E.M." in its many spellings, and "xxxxxxxx", "........", "00000000".
    let filler = folded.starts_with("to be filled");
    let alike = |mut chars: std::str::Chars<'_>| {
        let first = chars.next();
        first.is_none_or(|first| !first.is_ascii_alphanumeric() || "0x".contains(first))
            && chars.all(|next| Some(next) == first)
    };
    let counting =
        matches!(folded.as_str(), "123456789" | "0123456789" | "1234567890" | "01234567890123456789");
    let junk = filler || counting || alike(folded.chars()) || JUNK.contains(&folded.as_str());
    (!junk).then(|| text.to_owned())
}

/// A UUID; none where many boards share it.
#[must_use]
pub fn real_uuid(text: &str) -> Option<Uuid> {
    let uuid: Uuid = text.trim().parse().ok()?;
    (!is_shared(uuid)).then_some(uuid)
}

/// True if many machines have this product UUID, so that it tells none from another: a maker's placeholder, or one byte
/// sixteen times. SMBIOS 3.7 (section 7.2.1) has the first three fields in little-endian order; firmware older than
/// SMBIOS 2.6, and kernels that take it for such, have them the other way round.
#[must_use]
pub fn is_shared(uuid: Uuid) -> bool {
    let bytes = uuid.as_bytes();
    let swapped = Uuid::from_bytes_le(*bytes);
    bytes.iter().all(|byte| *byte == bytes[0])
        || SHARED_UUIDS.iter().any(|shared| [uuid, swapped].contains(shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Selector;

    #[test]
    fn what_many_machines_say_is_nothing() {
        for junk in [
            "",
            " ",
            "0",
            "00000000",
            "xxxx",
            "XXXX",
            "........",
            "-",
            "None",
            "N/A",
            "Default string",
            "To be filled by O.E.M.",
            "To Be Filled By O.E.M",
            "Not Specified",
            "System Serial Number",
            "123456789",
            "0123456789",
            "No Asset Tag",
        ] {
            assert_eq!(real_text(junk), None, "{junk:?}");
        }
        for real in ["CZ1234", "7", "x1", "VMware-56 4d 71 2a", "none-7"] {
            assert_eq!(real_text(real).as_deref(), Some(real));
        }
        for junk in ["", "x", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"]
        {
            assert_eq!(real_uuid(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn a_uuid_that_many_boards_share_names_no_machine() {
        for shared in [
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
            "03020100-0504-0706-0809-0A0B0C0D0E0F",
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
            "12345678-1234-5678-90ab-cddeefaabbcc",
            "78563412-3412-7856-90ab-cddeefaabbcc",
            "11111111-1111-1111-1111-111111111111",
        ] {
            assert_eq!(real_uuid(shared), None, "{shared}");
            for refused in [
                format!("uuid:{shared}").parse::<Selector>().unwrap_err(),
                Selector::from_stem(&format!("uuid-{shared}")).unwrap_err(),
            ] {
                assert!(refused.to_string().contains("many machines have; name it by"), "{refused}");
            }
        }
        assert!(real_uuid("4c4c4544-0042-3510-8052-b4c04f4a5a32").is_some());
    }

    #[test]
    fn an_identity_is_the_same_after_json() {
        let known = Identity {
            macs: vec!["52:54:00:00:00:02".parse().unwrap()],
            serial: Some("CZ1234".into()),
            ..Identity::default()
        };
        let json = serde_json::to_string(&known).unwrap();
        assert_eq!(json, r#"{"macs":["52:54:00:00:00:02"],"serial":"CZ1234","uuid":null,"asset_tag":null}"#);
        assert_eq!(serde_json::from_str::<Identity>(&json).unwrap(), known);
    }
}
