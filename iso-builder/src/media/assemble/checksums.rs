//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::collections::BTreeMap;

use base::digest::Digest;

/// One line for each file, sorted by name.
#[must_use]
pub fn render(files: &BTreeMap<String, Digest>) -> String {
    files.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_digest_two_spaces_and_name() {
        let files = BTreeMap::from([("b".into(), Digest::of(b"")), ("a".into(), Digest::of(b"a"))]);
        let text = render(&files);
        assert!(text.starts_with("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n"));
        assert!(text.ends_with("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"));
    }
}
