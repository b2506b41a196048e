//! URLs without their secrets, for messages, logs, reports and annotations.
//!
//! A URL that may be fetched without a login often carries its permission, in front of the host or in the query
//! (`?X-Amz-Signature=…`). Whoever prints a URL prints what [`shown`] makes of it; types of URLs do so in `Display`.

/// A URL without credentials, query and fragment, and without a slash at its end. Other text comes back as it is.
#[must_use]
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}{}", path.trim_end_matches('/'))
}

/// True if `text` has the form of a scheme (RFC 3986, 3.1).
#[must_use]
pub fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_queries_and_fragments_of_a_url_are_not_shown() {
        for (url, expected) in [
            ("http://user:secret@host/a@b", "http://host/a@b"),
            ("http://host/a@b", "http://host/a@b"),
            ("https://host:8080/x", "https://host:8080/x"),
            ("https://host:8080/x/", "https://host:8080/x"),
            ("https://host/a.iso?X-Amz-Signature=secret", "https://host/a.iso"),
            ("https://host/a/?secret=/b", "https://host/a"),
            ("https://host?secret@x/y", "https://host"),
            ("https://user@host#secret", "https://host"),
            ("https://host/a#secret?x", "https://host/a"),
            ("HTTPS://u:p@[::1]:8443/a?secret", "HTTPS://[::1]:8443/a"),
            ("/media/what? a file", "/media/what? a file"),
            ("oci:/layout:1", "oci:/layout:1"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
