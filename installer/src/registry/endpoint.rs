//! Where an image is looked for, as `registries.yaml` of RKE2 and K3s says it: the mirrors of its registry in their order, then
//! the registry itself.

use std::fmt;

use crate::config::registries::{Mirror, Registries};
use crate::oci::Repository;

/// Docker's registry answers under another name than its own.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// Whether it is asked without TLS, which only an endpoint that says `http://` is.
    pub(super) plain: bool,
    /// Its host, with its port if that is named.
    pub(super) host: String,
}

/// A server, and what the repository is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) endpoint: Endpoint,
    pub(super) path: String,
}

impl Endpoint {
    pub(super) fn url(&self) -> String {
        format!("{}://{}", if self.plain { "http" } else { "https" }, self.host)
    }

    /// The name under which credentials and TLS settings are kept.
    pub(super) fn known_as(&self) -> &str {
        if self.host == HUB.1 { HUB.0 } else { &self.host }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

/// The places of a repository in the order in which they are asked.
pub(super) fn places(registries: &Registries, repository: &Repository) -> Vec<Place> {
    let mut places = Vec::new();
    if let Some(mirror) = registries.mirror(repository.registry()) {
        let path = rewritten(mirror, repository.path());
        for endpoint in mirror.endpoints() {
            places.extend(place(endpoint, &path));
        }
    }
    let host = if repository.registry() == HUB.0 { HUB.1 } else { repository.registry() };
    let itself = Place {
        endpoint: Endpoint { plain: false, host: host.to_owned() },
        path: repository.path().to_owned(),
    };
    // A mirror that is the registry itself says how it wants to be asked.
    if !places.iter().any(|place| place.endpoint.host == itself.endpoint.host && place.path == itself.path) {
        places.push(itself);
    }
    places
}

/// The place that an endpoint stands for: a URL, whose path (behind the customary `/v2`) comes before every repository, or a
/// host alone.
fn place(endpoint: &str, path: &str) -> Option<Place> {
    let (plain, rest) = match endpoint.split_once("://") {
        Some(("http", rest)) => (true, rest),
        Some(("https", rest)) => (false, rest),
        Some(_) => return None,
        None => (false, endpoint),
    };
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    let prefix = prefix.strip_prefix("v2").map_or(prefix, |rest| rest.trim_start_matches('/'));
    let path = if prefix.is_empty() { path.to_owned() } else { format!("{prefix}/{path}") };
    let host = if host == HUB.0 { HUB.1 } else { host };
    Some(Place { endpoint: Endpoint { plain, host: host.to_owned() }, path })
}

/// The repository's path on a mirror: by the first expression that fits.
fn rewritten(mirror: &Mirror, path: &str) -> String {
    for (expression, replacement) in mirror.rewrites() {
        // What is no expression was refused when the client was made.
        if let Ok(expression) = regex::Regex::new(expression)
            && expression.is_match(path)
        {
            return expression.replace_all(path, replacement).into_owned();
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::ImageReference;

    fn told(registries: &str, image: &str) -> Vec<String> {
        let registries = Registries::parse(registries).unwrap();
        let image: ImageReference = image.parse().unwrap();
        let places = places(&registries, image.repository());
        places.iter().map(|place| format!("{} {}", place.endpoint, place.path)).collect()
    }

    #[test]
    fn mirrors_come_first_and_the_registry_last() {
        for (registries, image, expected) in [
            ("{}", "nginx", &["https://registry-1.docker.io library/nginx"][..]),
            ("{}", "a.b:5000/c", &["https://a.b:5000 c"]),
            (
                r#"{"mirrors": {"docker.io": {"endpoint": ["https://m.b", "http://n:80/v2/hub/"]}}}"#,
                "nginx",
                &[
                    "https://m.b library/nginx",
                    "http://n:80 hub/library/nginx",
                    "https://registry-1.docker.io library/nginx",
                ],
            ),
            (
                r#"{"mirrors": {"*": {"endpoint": ["https://all.b"]}, "a.b": {"endpoint": ["m.b"]}}}"#,
                "a.b/c",
                &["https://m.b c", "https://a.b c"],
            ),
            (
                r#"{"mirrors": {"*": {"endpoint": ["https://all.b/v2"], "rewrite": {"^(.*)$": "hub/$1"}}}}"#,
                "c.d/e/f",
                &["https://all.b hub/e/f", "https://c.d e/f"],
            ),
            (
                r#"{"mirrors": {"lab:5000": {"endpoint": ["http://lab:5000"]}}}"#,
                "lab:5000/a",
                &["http://lab:5000 a"],
            ),
            (r#"{"mirrors": {"a.b": {"endpoint": ["ftp://x.y"]}}}"#, "a.b/c", &["https://a.b c"]),
        ] {
            assert_eq!(told(registries, image), expected, "{registries} {image}");
        }
    }
}
