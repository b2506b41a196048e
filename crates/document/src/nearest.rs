//! Guesses the word that was meant where a document has an unknown one.

/// The word that was probably meant: the fewest slips away, and not too many for its length.
pub fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let letters = |text: &str| text.chars().filter(|c| !matches!(c, '_' | '-')).count();
    let bare = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], "");
    let (text, length) = (bare(text), letters(text));
    let mut best: Option<(usize, &str)> = None;
    for word in words {
        // Two words differ by at least as many slips as one has more letters.
        let least = length.abs_diff(letters(word));
        if best.is_some_and(|(slips, _)| least >= slips) {
            continue;
        }
        let slips = strsim::damerau_levenshtein(&text, &bare(word));
        if best.is_none_or(|(fewest, _)| slips < fewest) {
            best = Some((slips, word));
        }
    }
    best.filter(|(slips, word)| *slips <= (word.len() / 3).max(1)).map(|(_, word)| word)
}

/// The word that was probably meant: the one that other programs call `text`, by `synonyms`, or the nearest one.
pub fn meant<'w>(
    text: &str,
    words: impl Iterator<Item = &'w str> + Clone,
    synonyms: &[(&str, &str)],
) -> Option<&'w str> {
    let lower = text.to_ascii_lowercase();
    let named = synonyms.iter().filter(|(other, _)| *other == lower).map(|(_, word)| *word);
    let synonym = named.into_iter().find_map(|meant| words.clone().find(|word| *word == meant));
    synonym.or_else(|| nearest(text, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_program_is_answered_with_ours() {
        const SYNONYMS: [(&str, &str); 3] =
            [("master", "management"), ("agent", "worker"), ("lacp", "802.3ad")];
        let roles = ["default", "management", "worker", "witness"];
        let word = |text| meant(text, roles.into_iter(), &SYNONYMS);
        assert_eq!(word("master"), Some("management"));
        assert_eq!(word("Agent"), Some("worker"));
        assert_eq!(word("workr"), Some("worker"));
        assert_eq!(word("lacp"), None, "no such role");
    }

    #[test]
    fn the_nearest_word_is_near() {
        let words = ["hostname", "ssh_authorized_keys", "password"];
        let near = |text| nearest(text, words.iter().copied());
        assert_eq!(near("hostnam"), Some("hostname"));
        assert_eq!(near("ssh-authorized-keys"), Some("ssh_authorized_keys"));
        assert_eq!(near("pasword"), Some("password"));
        assert_eq!(near("labels"), None);
    }
}
