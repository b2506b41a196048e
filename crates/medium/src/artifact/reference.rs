//! References to releases in a registry or an OCI layout.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::oci::ImageReference;

/// The prefix of a layout's directory, as in skopeo and oras.
pub const LAYOUT: &str = "oci:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactReference {
    /// `registry/name:tag`, `registry/name@sha256:…`.
    Registry(ImageReference),
    /// `oci:DIRECTORY`, `oci:DIRECTORY:tag`, `oci:DIRECTORY@sha256:…`.
    Layout(LayoutReference),
}

/// A manifest in an OCI layout. The only one there needs no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutReference {
    pub directory: PathBuf,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

impl LayoutReference {
    /// True if tags in layouts may have this character.
    #[must_use]
    pub fn can_be_in_tag(c: char) -> bool {
        c.is_ascii_alphanumeric() || "_.-".contains(c)
    }
}

impl ArtifactReference {
    /// The digest of the artifact's manifest, where it is named.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Registry(image) => image.digest(),
            Self::Layout(layout) => layout.digest,
        }
    }

    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match self {
            Self::Registry(image) => image.tag(),
            Self::Layout(layout) => layout.tag.as_deref(),
        }
    }
}

impl FromStr for ArtifactReference {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::new(Class::Invalid, format!("{text:?} is not a reference to a release"))
                .because(anyhow::anyhow!(why))
                .hint("Write registry/name:tag, registry/name@sha256:…, or oci:DIRECTORY:tag.")
        };
        let Some(layout) = text.strip_prefix(LAYOUT) else {
            return match text.parse() {
                Ok(image) => Ok(Self::Registry(image)),
                Err(error) => Err(wrong(error.to_string())),
            };
        };
        let (rest, digest) = match layout.rsplit_once("@sha256:") {
            Some((rest, digits)) => {
                let digest =
                    digits.parse().map_err(|_| wrong("the digest must have 64 hexadecimal digits".into()))?;
                (rest, Some(digest))
            }
            None => (layout, None),
        };
        let (directory, tag) = match rest.rsplit_once(':') {
            Some((directory, tag)) if !tag.contains('/') => (directory, Some(tag)),
            _ => (rest, None),
        };
        if let Some(tag) =
            tag.filter(|tag| tag.is_empty() || !tag.chars().all(LayoutReference::can_be_in_tag))
        {
            return Err(wrong(format!("{tag:?} is not a tag")));
        }
        if directory.is_empty() {
            return Err(wrong("the directory is missing".into()));
        }
        let (directory, tag) = (Path::new(directory).to_owned(), tag.map(str::to_owned));
        Ok(Self::Layout(LayoutReference { directory, tag, digest }))
    }
}

impl fmt::Display for ArtifactReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(image) => image.fmt(f),
            Self::Layout(LayoutReference { directory, tag, digest }) => {
                write!(f, "{LAYOUT}{}", directory.display())?;
                tag.iter().filter(|_| digest.is_none()).try_for_each(|tag| write!(f, ":{tag}"))?;
                digest.iter().try_for_each(|digest| write!(f, "@{}", digest.oci()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_and_layouts_are_told_apart_and_shown_as_they_are_written() {
        let digest = Digest::of(b"x").oci();
        for text in [
            "registry.example.org/os/release:1.0",
            &format!("registry.example.org/os/release@{digest}"),
            "oci:/media/stick",
            "oci:out/layout:1.0",
            &format!("oci:out/layout@{digest}"),
            "oci:a:b/c",
        ] {
            assert_eq!(text.parse::<ArtifactReference>().unwrap().to_string(), text);
        }
        let pinned: ArtifactReference = format!("oci:out:1.0@{digest}").parse().unwrap();
        assert_eq!((pinned.tag(), pinned.digest()), (Some("1.0"), Some(Digest::of(b"x"))));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in [
            "",
            "oci:",
            "oci::1",
            "oci:a:",
            "oci:a:b c",
            "oci:a@sha256:12",
            "Registry/Name Tag",
            "http://a/b",
        ] {
            assert_eq!(text.parse::<ArtifactReference>().unwrap_err().class(), Class::Invalid, "{text}");
        }
    }
}
