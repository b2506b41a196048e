//! References to container images.
//!
//! The grammar is that of the distribution project (`reference.go`), with the short forms that Docker made usual:
//! `nginx` is `docker.io/library/nginx:latest`.

use std::fmt;
use std::str::FromStr;

use base::digest::Digest;

/// Docker's registry, the default of short names.
const HUB: &str = "docker.io";
/// The namespace in that registry of images with a name of one word.
const OFFICIAL: &str = "library/";
const MAX_NAME: usize = 255;

/// A repository: the host of a registry and a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository {
    registry: String,
    path: String,
}

/// An image in full: repository, and tag or digest or both. Displayed as containerd names images, with the
/// registry's host and without the tag where there is a digest as well (nodes look for such images by digest).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageReference {
    repository: Repository,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Text that is not a reference to an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a reference to an image: {why}")]
pub struct ParseReferenceError {
    text: String,
    why: &'static str,
}

impl ParseReferenceError {
    /// The rule of the grammar that it breaks.
    #[must_use]
    pub fn why(&self) -> &'static str {
        self.why
    }
}

impl Repository {
    /// The registry's host, with its port if that is named: `docker.io`, `registry.example.org:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path on the registry: `library/nginx`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> ImageReference {
        ImageReference { repository: self.clone(), tag: None, digest: Some(digest) }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

impl ImageReference {
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The tag, if one is named. There is one where there is no digest.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the image's manifest or index, if it is named.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Every name under which a node looks for this image, whose manifest or index has `digest`: the reference, and its
    /// repository with the digest, which is what pods use that pin an image.
    #[must_use]
    pub fn names_on_nodes(&self, digest: Digest) -> Vec<Self> {
        let by_digest = self.repository.with_digest(digest);
        let same = self.to_string() == by_digest.to_string();
        [self.clone()].into_iter().chain(Some(by_digest).filter(|_| !same)).collect()
    }

    /// The digest, or else the tag: a registry is asked for it.
    #[must_use]
    pub fn version(&self) -> String {
        self.digest.map_or_else(|| self.tag.clone().unwrap_or_default(), |digest| digest.oci())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.digest.is_some() { '@' } else { ':' };
        write!(f, "{}{mark}{}", self.repository, self.version())
    }
}

impl FromStr for ImageReference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why| ParseReferenceError { text: text.to_owned(), why };
        if let Some(why) = surplus(text) {
            return Err(wrong(why));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = digest.strip_prefix("sha256:").and_then(|digits| digits.parse().ok());
                (name, Some(digest.ok_or_else(|| wrong("the digest must be sha256: and 64 digits"))?))
            }
            None => (text, None),
        };
        // A colon before the last slash belongs to the registry's port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("the tag has at most 128 letters, digits, '_', '.' and '-'"));
        }
        let repository = repository(name).map_err(wrong)?;
        let tag = match (tag, digest) {
            (None, None) => Some("latest"),
            (tag, _) => tag,
        };
        Ok(Self { repository, tag: tag.map(str::to_owned), digest })
    }
}

impl FromStr for Repository {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let image: ImageReference = text.parse()?;
        let last = text.rsplit('/').next().unwrap_or_default();
        match last.contains([':', '@']) {
            false => Ok(image.repository),
            true => {
                let why = "the name of a repository has no tag and no digest";
                Err(ParseReferenceError { text: text.to_owned(), why })
            }
        }
    }
}

/// Mistakes by which a reference carries text that surrounded it in another document.
fn surplus(text: &str) -> Option<&'static str> {
    if text.contains("://") {
        return Some("it begins with a scheme; leave that out, up to and with ://");
    }
    if text.contains(['"', '\'']) {
        return Some("it has quotes; leave them out");
    }
    if text.contains(['{', '$', '<']) {
        return Some("it has a placeholder that was not filled in");
    }
    if text.contains(|c: char| c.is_whitespace() || ",;".contains(c)) {
        return Some("it has a blank, a comma or a semicolon; one reference is one word");
    }
    None
}

fn repository(name: &str) -> Result<Repository, &'static str> {
    let (registry, path) = match name.split_once('/') {
        Some((host, path)) if is_registry(host) => (host, path.to_owned()),
        // The old name of Docker's registry.
        _ if !name.contains('/') => (HUB, format!("{OFFICIAL}{name}")),
        _ => (HUB, name.to_owned()),
    };
    let registry = if registry == "index.docker.io" { HUB } else { registry };
    let path = match path.contains('/') {
        false if registry == HUB => format!("{OFFICIAL}{path}"),
        _ => path,
    };
    // Docker would take it for the host of a registry in a network without domains.
    if !registry.contains(['.', ':']) && registry.contains(|c: char| c.is_ascii_uppercase()) {
        return Err(
            "the first part has capital letters; a name has none, and a registry has a dot or a port",
        );
    }
    if !is_host(registry) {
        return Err("the registry is not a host name");
    }
    if registry.len() + 1 + path.len() > MAX_NAME {
        return Err("the name is longer than 255 characters");
    }
    if !path.split('/').all(is_component) {
        return Err("the name has lower-case letters and digits, joined by '.', '_', '__' or '-'");
    }
    Ok(Repository { registry: registry.to_owned(), path })
}

/// True if the first part of a name is a host: it has a dot or a port, or is `localhost`, or cannot be a path.
fn is_registry(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':']) || text.contains(|c: char| c.is_ascii_uppercase())
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    let number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    name.split('.').all(label) && port.is_none_or(number)
}

/// Runs of lower-case letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_component(component: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut joins = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    component.bytes().next().is_some_and(alphanumeric)
        && component.bytes().next_back().is_some_and(alphanumeric)
        && joins.all(|join| matches!(join, "" | "." | "_" | "__") || join.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

impl serde::Serialize for ImageReference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (&self.tag, self.digest) {
            (Some(tag), Some(digest)) => {
                serializer.collect_str(&format_args!("{}:{tag}@{}", self.repository, digest.oci()))
            }
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> serde::Deserialize<'de> for ImageReference {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for ImageReference {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ImageReference".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "image-reference" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digits() -> String {
        Digest::of(b"x").to_string()
    }

    #[test]
    fn a_repository_is_named_without_a_tag_and_a_digest() {
        let named = |text: &str| text.parse::<Repository>().map(|repository| repository.to_string());
        assert_eq!(
            named("registry.example.org:5000/builds/steps").unwrap(),
            "registry.example.org:5000/builds/steps"
        );
        assert_eq!(named("steps").unwrap(), "docker.io/library/steps");
        let digest = format!("r.example.org/steps@sha256:{}", "0".repeat(64));
        for text in
            ["r.example.org/steps:1", &digest, "https://r.example.org/steps", "r.example.org/Steps", ""]
        {
            assert!(named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn short_forms_mean_the_registry_of_docker() {
        for (text, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("rancher/rke2-runtime:v1", "docker.io/rancher/rke2-runtime:v1"),
            ("docker.io/nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/a/b:c", "docker.io/a/b:c"),
            ("localhost/tools", "localhost/tools:latest"),
            ("localhost:5000/tools:1", "localhost:5000/tools:1"),
            ("registry.example.org/a/b-c/d__e.f:v1_2.3-x", "registry.example.org/a/b-c/d__e.f:v1_2.3-x"),
        ] {
            assert_eq!(text.parse::<ImageReference>().unwrap().to_string(), full, "{text}");
        }
    }

    #[test]
    fn a_digest_is_stronger_than_a_tag_and_the_tag_is_kept() {
        let text = format!("a.b/c:1@sha256:{}", digits());
        let image: ImageReference = text.parse().unwrap();
        assert_eq!(image.to_string(), format!("a.b/c@sha256:{}", digits()));
        assert_eq!((image.tag(), image.digest()), (Some("1"), Some(Digest::of(b"x"))));
        assert_eq!(serde_json::to_value(&image).unwrap(), text);
        assert_eq!(image.repository().with_digest(Digest::of(b"x")).to_string(), image.to_string());
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let long = format!("localhost/a:{}", "x".repeat(129));
        let deep = format!("localhost/{}", "x".repeat(250));
        let cut = format!("a.b/c@sha256:{}", &digits()[1..]);
        let other = format!("a.b/c@sha512:{}", digits());
        for text in [
            "",
            "Nginx",
            "UPPER/x:1",
            "localhost/Tools:1",
            "localhost/a//b:1",
            "localhost/a..b:1",
            "localhost/a___b:1",
            "localhost/-a:1",
            "localhost/a:",
            "localhost/a:-x",
            "localhost:x/a:1",
            "localhost:99999/a",
            "local host.x/a:1",
            "http://a.b/c",
            "a.b/c@",
            "-a.b/c",
            "a..b/c",
            &long,
            &deep,
            &cut,
            &other,
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_other_documents_have_around_a_reference_is_named() {
        for (text, why) in [
            ("docker://nginx:1", "begins with a scheme"),
            ("https://a.b/c:1", "begins with a scheme"),
            ("\"nginx:1\"", "has quotes"),
            ("a.b/c:${TAG}", "a placeholder"),
            ("a.b/c:{{ .Values.tag }}", "a placeholder"),
            ("nginx:1,redis:7", "one reference is one word"),
            ("nginx:1 => a.b/nginx:1", "one reference is one word"),
        ] {
            let told = text.parse::<ImageReference>().unwrap_err().to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_accepted_again_and_means_the_same(text in "[a-zA-Z0-9./:@_-]{0,40}") {
            if let Ok(image) = text.parse::<ImageReference>() {
                prop_assert_eq!(image.to_string().parse::<ImageReference>().unwrap().to_string(), image.to_string());
            }
        }
    }
}
