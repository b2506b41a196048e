//! In which spellings a document may have the name of a key, or a truth value.
//!
//! A key may be in `snake_case`, in `camelCase` with any capitals, in lower case without separators as the reference
//! product stores its own document, with hyphens, in the singular for the plural and the other way round. Keys of
//! dictionaries are the user's own and have one spelling. Truth values are those of YAML 1.1, which templates write in
//! quotes too, and 1 and 0.

use super::shape::{Shape, camel};

/// Patterns (ECMA-262) that every text matches which [`is_same_word`] as `name`, or which the reference product stores it as.
pub(super) fn patterns(name: &str) -> Vec<String> {
    let stored = STORED.iter().filter(|(_, key)| *key == name).map(|(stored, _)| *stored);
    std::iter::once(name).chain(stored).map(pattern).collect()
}

fn pattern(name: &str) -> String {
    let stem = singular(letters(name).collect());
    let either = |c: char| match c.is_ascii_alphabetic() {
        true => format!("[{}{c}]", c.to_ascii_uppercase()),
        false => c.to_string(),
    };
    let joined = |word: &str| word.chars().map(either).collect::<Vec<_>>().join("[-_]*");
    match stem.strip_suffix('y') {
        Some(begin) => format!("^{}[-_]*([Yy][-_]*[Ss]?|[Ii][-_]*[Ee][-_]*[Ss])[-_]*$", joined(begin)),
        None if stem.ends_with('s') => format!("^{}[-_]*$", joined(&stem)),
        None => format!("^{}[-_]*[Ss]?[-_]*$", joined(&stem)),
    }
}

/// What the reference product calls a key in the document that it stores, and the name here.
const STORED: [(&str, &str); 1] = [("external_storage", "external_storage_config")];

/// The key of a group that `text` names, with its shape. An exact spelling wins over all others. Where several keys can be
/// meant, it is the one with the highest `suits`, which says how well a shape suits the value.
pub fn find<'s>(
    keys: &'s [(String, Shape)],
    text: &str,
    suits: impl Fn(&Shape) -> u8,
) -> Option<&'s (String, Shape)> {
    let kinds: [fn(&str, &str) -> bool; 4] =
        [|text, name| text == name, |text, name| text == camel(name), is_same_word, is_stored_as];
    kinds.into_iter().find_map(|is_meant| {
        let mut best: Option<(u8, &'s (String, Shape))> = None;
        for key in keys.iter().filter(|(name, _)| is_meant(text, name)) {
            let suited = suits(&key.1);
            if best.is_none_or(|(most, _)| suited > most) {
                best = Some((suited, key));
            }
        }
        best.map(|(_, key)| key)
    })
}

/// Whether `text` is `name` whatever its capitals, separators and number.
pub fn is_same_word(text: &str, name: &str) -> bool {
    let (text, name) = (letters(text), letters(name));
    text.clone().eq(name.clone()) || singular(text.collect()) == singular(name.collect())
}

fn is_stored_as(text: &str, name: &str) -> bool {
    STORED.iter().any(|(stored, key)| *key == name && is_same_word(text, stored))
}

/// What `text` says of truth, if anything.
pub fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "t" | "1" => Some(true),
        "false" | "no" | "off" | "n" | "f" | "0" => Some(false),
        _ => None,
    }
}

fn letters(text: &str) -> impl Iterator<Item = char> + Clone {
    text.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase())
}

fn singular(mut word: String) -> String {
    if let Some(stem) = word.strip_suffix("ies") {
        return format!("{stem}y");
    }
    if word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shape::install_config;

    #[test]
    fn every_spelling_names_the_key() {
        let install = install_config().at("install").unwrap();
        let Shape::Record(keys, _) = install else { panic!() };
        let named = |text: &str| find(keys, text, |_| 0).map(|(name, _)| name.as_str());
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
        assert_eq!(singular("policies".into()), "policy");
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
}
