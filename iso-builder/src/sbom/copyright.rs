//! The licences of a Debian package, from its copyright file in the machine-readable form
//! (<https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/>).
//!
//! The file is that of the source package. For firmware the paths in it are those below `/lib/firmware`, so that a package of firmware has
//! the licences of its own files; of other packages all licences are named.

use std::collections::BTreeSet;

/// Which licence files have: patterns, and its short name.
type Stanza<'a> = (Vec<&'a str>, &'a str);

/// Keeps of a copyright file what [`licences`] reads: texts of licences are long, and an image has hundreds of such files. Empty for one
/// that is not machine-readable.
#[must_use]
pub fn reduced(text: &str) -> String {
    if !text.trim_start().starts_with("Format:") {
        return String::new();
    }
    let (mut kept, mut in_files) = (String::new(), false);
    for line in text.lines() {
        in_files = line.starts_with("Files:") || in_files && line.starts_with([' ', '\t']);
        if in_files || line.starts_with("License:") || line.trim().is_empty() {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The short names of the licences in a reduced copyright file: those of `firmware`, paths below the directory of firmware, or all if
/// it is empty. None if there are none.
#[must_use]
pub fn licences(reduced: &str, firmware: &[&str]) -> Option<String> {
    let stanzas: Vec<Stanza<'_>> = stanzas(reduced);
    let of_file = |path: &str| {
        let is_meant = |(patterns, _): &&Stanza<'_>| patterns.iter().any(|pattern| matches(pattern, path));
        // The last one that matches counts.
        stanzas.iter().rev().find(is_meant).map(|(_, licence)| *licence)
    };
    let own: BTreeSet<_> = firmware.iter().filter_map(|path| of_file(path)).collect();
    let names = if own.is_empty() { stanzas.iter().map(|(_, licence)| *licence).collect() } else { own };
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

fn stanzas(reduced: &str) -> Vec<Stanza<'_>> {
    let mut stanzas = Vec::new();
    let (mut patterns, mut licence) = (Vec::new(), None);
    for line in reduced.lines().chain([""]) {
        if let Some(name) = line.strip_prefix("License:") {
            licence = Some(name.trim());
        } else if line.trim().is_empty() {
            // A stanza without files has the text of a licence.
            if let Some(licence) = licence.take().filter(|name| !name.is_empty() && !patterns.is_empty()) {
                stanzas.push((std::mem::take(&mut patterns), licence));
            }
            patterns.clear();
        } else {
            let words = line.strip_prefix("Files:").unwrap_or(line).split_whitespace();
            patterns.extend(words.map(|word| word.trim_end_matches(',')));
        }
    }
    stanzas
}

/// True if a path matches a pattern, in which `*` stands for any text, slashes too, and `?` for one character.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.as_bytes(), path.as_bytes());
    let (mut at, mut place) = (0, 0);
    // Where the last `*` was, and where in the path its text may end next.
    let mut star: Option<(usize, usize)> = None;
    while place < path.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == path[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((before, end)) => {
                    star = Some((before, end + 1));
                    at = before + 1;
                    place = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRMWARE: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files-Excluded:
 emi26/*.fw

Files: *
Copyright: many
License: binary-redist-unknown

Files: debian/*
License: GPL-2+

Files: bnx2/* bnx2x/*
Copyright: Broadcom Corporation
License: binary-redist-firmware

Files: intel/ice/ddp/ice-*.pkg
License: binary-redist-Intel

Files: intel/ice/ddp-comms/ice_comms-*.pkg
 ql2?00_fw.bin
Copyright: 2020, Intel Corporation
License: binary-redist-Intel-Ice-enhanced

License: binary-redist-firmware
 This file contains firmware data.
 .
 Files: not a field
";

    #[test]
    fn a_package_of_firmware_has_the_licences_of_its_own_files() {
        let reduced = reduced(FIRMWARE);
        assert!(!reduced.contains("firmware data") && !reduced.contains("Copyright"), "{reduced}");
        let of = |files: &[&str]| licences(&reduced, files).unwrap();
        assert_eq!(of(&["bnx2x/bnx2x-e2-7.13.21.0.fw"]), "binary-redist-firmware");
        let both = ["intel/ice/ddp/ice-1.3.41.0.pkg", "intel/ice/ddp-comms/ice_comms-1.3.55.0.pkg"];
        assert_eq!(of(&both), "binary-redist-Intel, binary-redist-Intel-Ice-enhanced");
        assert_eq!(of(&["ql2400_fw.bin"]), "binary-redist-Intel-Ice-enhanced");
        assert_eq!(of(&["other.bin"]), "binary-redist-unknown");
        assert_eq!(of(&[]).split(", ").count(), 5);
    }

    #[test]
    fn a_copyright_file_in_prose_names_no_licence() {
        let text = "This package was debianized by someone.\n\nLicense: see below\nFiles: all\n";
        assert_eq!(reduced(text), "");
        assert_eq!(licences("", &[]), None);
    }

    #[test]
    fn patterns_are_those_of_the_specification() {
        for (pattern, path, is_meant) in [
            ("*", "a/b", true),
            ("a/*", "a/b/c", true),
            ("a/*.fw", "a/b/c.fw", true),
            ("a/*.fw", "a/c.bin", false),
            ("ql2?00", "ql2400", true),
            ("ql2?00", "ql200", false),
            ("*x*y", "axbxcy", true),
            ("", "", true),
            ("a", "ab", false),
            ("ab*", "a", false),
        ] {
            assert_eq!(matches(pattern, path), is_meant, "{pattern} {path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String, path: String) {
            let _ = (licences(&reduced(&text), &[&path]), licences(&text, &[]), matches(&text, &path));
        }
    }
}
