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

/// Words of other programs for what is meant here by the second of each pair.
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
    ("iso", "full"),
    ("raw", "disk-raw"),
    ("qcow", "disk-qcow2"),
    ("qcow2", "disk-qcow2"),
    ("pxe", "netboot"),
    ("kubernetes", "kubeadm"),
    ("k8s", "kubeadm"),
    ("x86_64", "amd64"),
    ("x86-64", "amd64"),
];

/// The word that was probably meant: the nearest one, or the one that other programs have another word for.
pub fn meant<'w>(text: &str, words: impl Iterator<Item = &'w str> + Clone) -> Option<&'w str> {
    let lower = text.to_ascii_lowercase();
    let named = SYNONYMS.iter().filter(|(other, _)| *other == lower).map(|(_, word)| *word);
    let synonym = named.into_iter().find_map(|meant| words.clone().find(|word| *word == meant));
    synonym.or_else(|| nearest(text, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_program_is_answered_with_ours() {
        let roles = ["default", "management", "worker", "witness"];
        let word = |text| meant(text, roles.into_iter());
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
