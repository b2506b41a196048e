//! The spellings of the keys of an install configuration.

use document::accepted_spellings::{find, is_same_word};
use document::shape::Shape;

use super::ALIASES;
use crate::config::shape::install_config;

#[test]
fn every_spelling_names_the_key() {
    let install = install_config().at("install").unwrap();
    let Shape::Record(keys, _) = install else { panic!() };
    let named = |text: &str| find(keys, text, ALIASES, |_| 0).map(|(name, _)| name.as_str());
    for (text, name) in [
        ("force_efi", "force_efi"),
        ("forceefi", "force_efi"),
        ("forceEFI", "force_efi"),
        ("ForceEfi", "force_efi"),
        ("force-efi", "force_efi"),
        ("powerOff", "poweroff"),
        ("power_off", "poweroff"),
        ("ISOURL", "iso_url"),
        ("webhook", "webhooks"),
        ("vips", "vip"),
        ("wipedisksList", "wipe_disks_list"),
    ] {
        assert_eq!(named(text), Some(name), "{text}");
    }
    for text in ["wipe_disk_list", "iso", "is_ourl_", "skip", ""] {
        assert!(named(text).is_none_or(|name| text == "is_ourl_" && name == "iso_url"), "{text}");
    }
}

#[test]
fn only_keys_told_apart_by_their_shapes_have_a_spelling_in_common() {
    fn shared(shape: &Shape, path: &str, found: &mut Vec<String>) {
        match shape {
            Shape::Record(keys, _) | Shape::OneOf(keys) => {
                for (index, (name, below)) in keys.iter().enumerate() {
                    let same = keys[index + 1..].iter().filter(|(other, _)| is_same_word(name, other));
                    found.extend(same.map(|(other, _)| format!("{path}{name} {other}")));
                    shared(below, &format!("{path}{name}."), found);
                }
            }
            Shape::List(below) => shared(below, path, found),
            Shape::Dictionary { values, .. } => shared(values, path, found),
            Shape::Either(shapes) => shapes.iter().for_each(|below| shared(below, path, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    shared(install_config(), "", &mut found);
    assert_eq!(found, ["install.skip_checks skipchecks"]);
}
