//! Guesses the word that was meant where a document has an unknown one.

/// The word that was probably meant: the fewest slips away, and not too many for its length.
pub fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let bare = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], "");
    let text = bare(text);
    let length = text.chars().count();
    let mut best: Option<(usize, &str)> = None;
    for word in words {
        let plain = bare(word);
        // As many letters as one of two words has more, so many slips at least are between them.
        let least = length.abs_diff(plain.chars().count());
        if best.is_some_and(|(slips, _)| least >= slips) {
            continue;
        }
        let slips = strsim::damerau_levenshtein(&text, &plain);
        if best.is_none_or(|(fewest, _)| slips < fewest) {
            best = Some((slips, word));
        }
    }
    best.filter(|(slips, word)| *slips <= (word.len() / 3).max(1)).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

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
