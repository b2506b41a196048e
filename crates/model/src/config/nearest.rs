//! Guesses the word that was meant where a document has one that nobody knows.

/// The word that somebody probably meant: the fewest slips away, and not too many for its length.
pub fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let bare = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], "");
    let slips = |word: &str| strsim::damerau_levenshtein(&bare(text), &bare(word));
    let best = words.min_by_key(|word| slips(word))?;
    (slips(best) <= (best.len() / 3).max(1)).then_some(best)
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
