//! Names of packages that count for some architectures only, in the form that Debian's own relations have (Debian policy, 7.1):
//! `NAME [amd64]`, `NAME [amd64 arm64]`, `NAME [!amd64]`.

use document::format::{FormatFault, FormatResult};
use model::architecture::Architecture;

/// The name without its restriction, and what is in the brackets.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('[') {
        Some((name, list)) => (name.trim_end(), Some(list.trim_end())),
        None => (text, None),
    }
}

/// The name of the package alone, with a version or release behind it if it has one.
pub(super) fn name(text: &str) -> &str {
    split(text).0
}

/// True if the package counts for this architecture. `text` has the right form.
pub(super) fn counts_for(text: &str, architecture: Architecture) -> bool {
    let Some(list) = split(text).1 else { return true };
    let mut words = list.trim_end_matches(']').split_whitespace();
    let named = words.any(|word| word.trim_start_matches('!') == architecture.debian());
    named != list.starts_with('!')
}

/// Checks the brackets of a package.
pub(super) fn check(text: &str) -> FormatResult {
    let Some(list) = split(text).1 else { return Ok(()) };
    let known = Architecture::ALL.map(Architecture::debian);
    let wrong = |what: &str| {
        FormatFault::new(format!("has a restriction {what}; it is written as NAME [{}]", known.join(" ")))
    };
    let words = list.strip_suffix(']').ok_or_else(|| wrong("without the ] that ends it"))?;
    let words: Vec<_> = words.split_whitespace().collect();
    if words.is_empty() {
        return Err(wrong("that names no architecture"));
    }
    if let Some(other) = words.iter().find(|word| !known.contains(&word.trim_start_matches('!'))) {
        return Err(wrong(&format!("to {other:?}, which no image is made for")));
    }
    let excluded = words.iter().filter(|word| word.starts_with('!')).count();
    if excluded != 0 && excluded != words.len() {
        return Err(wrong("in which some architectures have a ! and some do not"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_where_its_restriction_says() {
        use Architecture::{Amd64, Arm64};
        for (text, amd64, arm64) in [
            ("dash", true, true),
            ("grub-pc-bin [amd64]", true, false),
            ("linux-image-arm64=6.12 [arm64]", false, true),
            ("a [amd64 arm64]", true, true),
            ("a [!amd64]", false, true),
            ("a[!arm64]", true, false),
            ("a [!amd64 !arm64]", false, false),
        ] {
            check(text).unwrap();
            assert_eq!((counts_for(text, Amd64), counts_for(text, Arm64)), (amd64, arm64), "{text}");
        }
        assert_eq!(name("linux-image-arm64=6.12 [arm64]"), "linux-image-arm64=6.12");
        assert_eq!(name("dash"), "dash");
    }

    #[test]
    fn a_restriction_that_nobody_can_mean_is_refused() {
        for (text, why) in [
            ("a [amd64", "without the ]"),
            ("a []", "names no architecture"),
            ("a [i386]", "\"i386\""),
            ("a [amd64 !arm64]", "some do not"),
            ("a [linux-any]", "\"linux-any\""),
        ] {
            let fault = check(text).unwrap_err();
            assert!(format!("{fault:?}").contains(&why.replace('"', "\\\"")), "{text}: {fault:?}");
        }
    }
}
