//! The identifiers by which machines are found: identities that machines send and selectors name, normalized to keys of an
//! index.

use std::collections::BTreeSet;
use std::fmt;

use model::machine::{Identity, Selector};

/// An identifier in the form `kind:value`, in lower case: `mac:52:54:00:12:34:56`, `serial:cz1234`, `uuid:…`, `asset-tag:rack
/// 7`. Keys are equal exactly where a [`Selector`], which ignores case, takes the identifiers for the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityKey(String);

impl IdentityKey {
    #[must_use]
    pub fn of(selector: &Selector) -> Self {
        Self(selector.to_string().to_ascii_lowercase())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[must_use]
pub fn of(identity: &Identity) -> BTreeSet<IdentityKey> {
    let text = |kind: &str, value: &str| IdentityKey(format!("{kind}:{value}").to_ascii_lowercase());
    let Identity { macs, serial, uuid, asset_tag } = identity;
    let macs = macs.iter().map(|mac| text("mac", &mac.to_string()));
    let others = [
        serial.as_deref().map(|serial| text("serial", serial)),
        uuid.map(|uuid| text("uuid", &uuid.hyphenated().to_string())),
        asset_tag.as_deref().map(|tag| text("asset-tag", tag)),
    ];
    macs.chain(others.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_and_the_machine_that_it_fits_have_a_mark_in_common() {
        let identity = Identity {
            macs: vec!["52:54:00:AB:00:01".parse().unwrap()],
            serial: Some("CZ12 é".into()),
            uuid: Some("4C4C4544-0042-3510-8052-B4C04F4A5A32".parse().unwrap()),
            asset_tag: Some("Rack:7".into()),
        };
        let marks = of(&identity);
        assert_eq!(marks.len(), 4);
        for (text, fits) in [
            ("mac:52-54-00-ab-00-01", true),
            ("mac:52-54-00-ab-00-02", false),
            ("serial:cz12 é", true),
            ("serial:CZ12 É", false),
            ("uuid:4c4c4544004235108052b4c04f4a5a32", true),
            ("asset-tag:rack:7", true),
            ("asset-tag:CZ12", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.fits(&identity), fits, "{text}");
            assert_eq!(marks.contains(&IdentityKey::of(&selector)), fits, "{text}");
        }
    }
}
