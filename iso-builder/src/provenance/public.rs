//! What a statement may say of paths and URLs: it is published, and a lock file or a command line is not.

use std::path::{Component, Path, PathBuf};

/// `path` relative to the directory `current`, if it is below it; otherwise only its last part. Standard input stays `-`.
#[must_use]
pub fn path(path: &Path, current: &Path) -> String {
    let absolute = plain(&current.join(path));
    let below = absolute.strip_prefix(plain(current)).ok().filter(|rest| !rest.as_os_str().is_empty());
    let last = || absolute.file_name().map(Path::new);
    below.or_else(last).unwrap_or(Path::new("")).display().to_string()
}

/// A path of a definition as it is written there; of an absolute one only the last part, as the others name a machine or a user.
#[must_use]
pub fn written_path(path: &Path) -> String {
    match path.is_absolute() {
        true => path.file_name().map(Path::new).unwrap_or(path).display().to_string(),
        false => path.display().to_string(),
    }
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// A URL of http or https without user, password, query and fragment, each of which may be secret. None of another kind, and none if a
/// password may still be in it, because an `@` is.
#[must_use]
pub fn url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let known = ["http", "https"].into_iter().find(|known| known.eq_ignore_ascii_case(scheme))?;
    let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = after.split(['?', '#']).next().unwrap_or_default();
    let doubtful = host.is_empty() || after.contains('@') || path.contains(char::is_whitespace);
    (!doubtful).then(|| format!("{known}://{host}{path}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_relative_to_the_current_directory_or_only_a_name() {
        for (given, shown) in [
            ("image.yaml", "image.yaml"),
            ("./configs//images/a.yaml", "configs/images/a.yaml"),
            ("configs/../a.yaml", "a.yaml"),
            ("/home/me/work/configs/a.yaml", "configs/a.yaml"),
            ("/home/other/a.yaml", "a.yaml"),
            ("../secret/a.yaml", "a.yaml"),
            ("-", "-"),
        ] {
            assert_eq!(path(Path::new(given), Path::new("/home/me/work")), shown, "{given}");
        }
        assert_eq!(written_path(Path::new("../layouts/a")), "../layouts/a");
        assert_eq!(written_path(Path::new("/home/me/a.tar")), "a.tar");
    }

    #[test]
    fn a_url_loses_what_may_be_secret() {
        for (given, shown) in [
            ("https://deb.example.org/pool/a_1%2b2.deb", Some("https://deb.example.org/pool/a_1%2b2.deb")),
            (
                "HTTPS://me:word@deb.example.org:8443/a.deb?token=x#y",
                Some("https://deb.example.org:8443/a.deb"),
            ),
            ("http://me@[2001:db8::1]/a.deb", Some("http://[2001:db8::1]/a.deb")),
            ("http://me:pa@ss@h/a.deb", Some("http://h/a.deb")),
            ("http://me:pa/ss@h/a.deb", None),
            ("http://me:pa?ss@h/a.deb", None),
            ("http://h?token=x", Some("http://h")),
            ("file:///home/me/a.deb", None),
            ("http://me@/a.deb", None),
            ("a.deb", None),
        ] {
            assert_eq!(url(given).as_deref(), shown, "{given}");
        }
    }

    proptest! {
        #[test]
        fn no_password_and_no_token_is_in_a_shown_url(
            password in "[a-zA-Z0-9:@/%!?#._~-]{0,8}SECRET[a-zA-Z0-9:@/%!?#._~-]{0,8}",
            token in "[a-zA-Z0-9=&@/]{0,8}SECRET",
        ) {
            let shown = url(&format!("https://me:{password}@deb.example.org/pool/a.deb?{token}"));
            prop_assert!(!shown.unwrap_or_default().contains("SECRET"));
        }
    }
}
