//! The spellings of keys and truth values in lenient documents.
//!
//! A key may be in `snake_case`, in `camelCase` with any capitals, in lower case without separators, with hyphens, in the
//! singular for the plural and the other way round. Keys of dictionaries are the user's own and have one spelling. Truth
//! values are those of YAML 1.1, which templates also write in quotes, and 1 and 0.

use crate::shape::{Shape, camel};

/// Other names of keys, each with the key.
pub type Aliases = &'static [(&'static str, &'static str)];

/// Patterns (ECMA-262) of all spellings of `name` and of its `aliases`.
pub fn patterns(name: &str, aliases: Aliases) -> Vec<String> {
    let others = aliases.iter().filter(|(_, key)| *key == name).map(|(other, _)| *other);
    std::iter::once(name).chain(others).map(pattern).collect()
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

/// The key of a group that `text` names, with its shape. An exact spelling wins over all others. Where several keys can be
/// meant, it is the one with the highest `suits`, which says how well a shape suits the value.
pub fn find<'s>(
    keys: &'s [(String, Shape)],
    text: &str,
    aliases: Aliases,
    suits: impl Fn(&Shape) -> u8,
) -> Option<&'s (String, Shape)> {
    let has_capitals = text.bytes().any(|b| b.is_ascii_uppercase());
    let is_alias =
        |text: &str, name: &str| aliases.iter().any(|(other, key)| *key == name && is_same_word(text, other));
    type WordComparison<'a> = &'a dyn Fn(&str, &str) -> bool;
    let kinds: [WordComparison<'_>; 4] = [
        &|text, name| text == name,
        &|text, name| has_capitals && text == camel(name),
        &is_same_word,
        &is_alias,
    ];
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

/// True if `text` is `name` whatever its capitals, separators and number.
pub fn is_same_word(text: &str, name: &str) -> bool {
    let (text, name) = (letters(text), letters(name));
    // Each key of a document is compared with many names, and most differ here.
    if text.clone().next() != name.clone().next() {
        return false;
    }
    text.clone().eq(name.clone()) || singular(text.collect()) == singular(name.collect())
}

/// The truth value that `text` stands for, if any.
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

    #[test]
    fn the_singular_of_a_word_drops_its_ending() {
        assert_eq!(singular("policies".into()), "policy");
        assert_eq!(singular("address".into()), "address");
    }
}
