//! The forms of an install configuration beside the canonical one, which keep documents of Harvester, the product that this
//! one succeeds, valid: other spellings and names of keys ([`InstallDialect`]), keys that are [`retired`], networks of an
//! [`older`] scheme, a network [`card`] as one text. [`published`] describes the same forms in the JSON Schema. The reader
//! takes them where it meets them; [`convert`](super::convert) writes such a document anew in canonical form.

pub(crate) mod card;
pub(crate) mod older;
pub(crate) mod published;
pub(crate) mod retired;
#[cfg(test)]
mod tests;

use document::dialect::{Dialect, OlderKeys, RetiredKey, ShortForm};
use document::shape::Shape;
use document::shape_check::ShapeCheck;
use document::tree::{Key, TreeNode};

use super::shape::install_config;
use older::OlderNetworks;

/// Other names of keys, each with the key.
pub(crate) const ALIASES: document::accepted_spellings::Aliases =
    &[("external_storage", "external_storage_config")];

/// Words of other programs, each with the word for it here.
const SYNONYMS: &[(&str, &str)] = &[
    ("master", "management"),
    ("control-plane", "management"),
    ("controlplane", "management"),
    ("controller", "management"),
    ("server", "management"),
    ("agent", "worker"),
    ("compute", "worker"),
    ("arbiter", "witness"),
    ("etcd", "witness"),
    ("new", "create"),
    ("init", "create"),
    ("bootstrap", "create"),
    ("lacp", "802.3ad"),
    ("sata", "ata"),
    ("auto", "dhcp"),
    ("manual", "static"),
    ("kubernetes", "kubeadm"),
    ("k8s", "kubeadm"),
];

/// The reader's rules for an install configuration.
#[derive(Debug)]
pub(crate) struct InstallDialect;

impl Dialect for InstallDialect {
    fn is_lenient(&self) -> bool {
        true
    }

    fn aliases(&self) -> document::accepted_spellings::Aliases {
        ALIASES
    }

    fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
        SYNONYMS
    }

    fn short_form(&self, group: &Shape) -> Option<ShortForm> {
        card::is_card(group).then_some(card::group)
    }

    fn older_keys<'t>(&self, path: &str, entries: &'t [(Key, TreeNode)]) -> Option<OlderKeys<'t>> {
        let older = (path == "install").then(|| OlderNetworks::of(entries)).flatten()?;
        let (message, suggestion) =
            older.described(&|node, shape| ShapeCheck::new(&Self).value(node, shape, ""));
        Some(OlderKeys { keys: older.keys, message, suggestion, successor: "management_interface" })
    }

    fn retired_key(
        &self,
        path: &str,
        name: &str,
        value: &TreeNode,
        entries: &[(Key, TreeNode)],
    ) -> Option<RetiredKey> {
        let retired = retired::find(path, name)?;
        let reason = retired.reason;
        Some(match retired.today(value) {
            Some(_) if retired.is_said(entries) => RetiredKey::NoEffect { reason },
            Some((name, value)) => RetiredKey::Replaced { name, value, reason },
            None if retired.is_harmless(value) => RetiredKey::NoEffect { reason },
            None => RetiredKey::Refused { reason },
        })
    }

    fn correction(&self, path: &str, text: &str) -> Option<String> {
        path.ends_with("subnet_mask").then(|| mask(text)).flatten()
    }

    fn root(&self) -> Option<&'static Shape> {
        Some(install_config())
    }
}

/// The network mask of a prefix length, `24` or `/24`, or of `0xffffff00`.
fn mask(text: &str) -> Option<String> {
    let hexadecimal = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let bits =
        hexadecimal.filter(|bits| bits.leading_ones() + bits.trailing_zeros() == 32).or_else(|| {
            let length: u32 = text.trim_start_matches('/').parse().ok()?;
            (1..=32).contains(&length).then(|| u32::MAX << (32 - length))
        })?;
    Some(std::net::Ipv4Addr::from_bits(bits).to_string())
}
