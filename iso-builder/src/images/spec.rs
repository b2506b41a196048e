//! Container images in the image definition: where each comes from and which roles need it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use formats::oci::ImageReference;
use garde::Validate;
use model::config::{Distribution, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The container images of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Images {
    /// The images that the media carry.
    pub preload: Vec<Entry>,
    /// Unpack the images while a node is installed, so that a first container starts at once. The install takes longer, and
    /// the images take more than twice their room on the node.
    pub unpack: bool,
    /// Whose containerd runs on the nodes, which decides where the images are put. It follows from `kubernetes`; this key is
    /// for a base that brings its own distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

impl Images {
    /// The images that are built from packages.
    pub fn built(&self) -> impl Iterator<Item = &BuiltImage> {
        self.preload.iter().filter_map(|entry| match &entry.source {
            Source::Built(image) => Some(image),
            _ => None,
        })
    }
}

/// Whose containerd runs on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The OS image's own.
    #[default]
    Containerd,
    /// The one that RKE2 brings.
    Rke2,
    /// The one that K3s brings.
    K3s,
}

impl Runtime {
    /// The directory in which this containerd keeps images and snapshots.
    #[must_use]
    pub fn root(self) -> &'static str {
        match self {
            Self::Containerd => "/var/lib/containerd",
            Self::Rke2 => Distribution::Rke2.containerd_root(),
            Self::K3s => Distribution::K3s.containerd_root(),
        }
    }
}

impl From<Distribution> for Runtime {
    fn from(distribution: Distribution) -> Self {
        match distribution {
            Distribution::Rke2 => Self::Rke2,
            Distribution::K3s => Self::K3s,
        }
    }
}

/// Images that are preloaded: exactly one of `name`, `image`, `list`, `layout` and `archive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Keys", into = "Keys")]
#[schemars(with = "Keys")]
pub struct Entry {
    /// Where they come from.
    pub source: Source,
    /// The roles whose nodes get them; empty means every role.
    pub roles: Vec<Role>,
}

/// Where preloaded images come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built from Debian packages.
    Built(BuiltImage),
    /// A registry.
    Registry(ImageReference),
    /// A registry, for each line of a file.
    List(PathBuf),
    /// A file or directory that holds images.
    Local(LocalImages),
}

/// Images in an OCI layout, or in an archive of one or of Docker's own form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImages {
    /// The directory or file.
    pub path: PathBuf,
    /// Which of the images; empty means all of them.
    pub references: Vec<ImageReference>,
    /// A file with lines `SHA256  NAME`, one of which the archive must match.
    pub checksums: Option<PathBuf>,
    /// Whether the definition called it a layout, which is a directory.
    pub is_layout: bool,
}

/// A container image that the definition builds from Debian packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub struct BuiltImage {
    /// The full reference that nodes use, with a tag: `localhost/nqrust/tools:1.0`.
    pub name: ImageReference,
    /// The layers, lowest first. Images whose first layers name the same packages share these layers.
    #[garde(length(min = 1), dive)]
    pub layers: Vec<LayerSpec>,
    /// The program that a container starts, with its fixed arguments.
    pub entrypoint: Vec<String>,
    /// Arguments that a container may replace, or the program where there is no entry point.
    pub cmd: Vec<String>,
    /// Environment variables, each `NAME=value`.
    pub env: Vec<EnvVar>,
}

/// An entry as it is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    /// The full reference of an image that is built from Debian packages, with a tag: `localhost/nqrust/tools:1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<ImageReference>,
    /// With `name`: the layers, lowest first. Images whose first layers name the same packages share these layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<LayerSpec>>,
    /// With `name`: the program that a container starts, with its fixed arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    /// With `name`: arguments that a container may replace, or the program where there is no entry point.
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<String>>,
    /// With `name`: environment variables, each `NAME=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<Vec<EnvVar>>,
    /// An image of a registry, with a tag or a digest: `registry.example.org/app/web:1.2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageReference>,
    /// A text file with an image of a registry in each line; `#` begins a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<PathBuf>,
    /// A directory that is an OCI image layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<PathBuf>,
    /// An archive of an OCI image layout, or one that Docker wrote; plain, gzip or zstd.
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<PathBuf>,
    /// With `layout` or `archive`: which of its images; all of them unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    references: Option<Vec<ImageReference>>,
    /// With `archive`: a file with lines `SHA256  NAME`; the archive must be among them, and match.
    #[serde(skip_serializing_if = "Option::is_none")]
    checksums: Option<PathBuf>,
    /// The roles whose nodes get the images; every role unless given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<Role>,
}

/// Why an entry of `images.preload` is none.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// No source, or more than one.
    #[error(
        "an entry of images.preload has exactly one of name, image, list, layout and archive; this one has {0}"
    )]
    Source(String),
    /// A key that belongs to another source.
    #[error("{0} does not go with {1}")]
    Key(&'static str, &'static str),
    /// The name of an image that is built is a name and a tag.
    #[error("{0}: an image that is built has a tag and no digest")]
    Name(ImageReference),
}

impl TryFrom<Keys> for Entry {
    type Error = EntryError;

    fn try_from(keys: Keys) -> Result<Self, EntryError> {
        let sources = [
            ("name", keys.name.is_some()),
            ("image", keys.image.is_some()),
            ("list", keys.list.is_some()),
            ("layout", keys.layout.is_some()),
            ("archive", keys.archive.is_some()),
        ];
        let given: Vec<_> = sources.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
        let [source] = given[..] else {
            let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
            return Err(EntryError::Source(found));
        };
        let others: [(&'static str, bool, &[&str]); 6] = [
            ("layers", keys.layers.is_some(), &["name"]),
            ("entrypoint", keys.entrypoint.is_some(), &["name"]),
            ("cmd", keys.cmd.is_some(), &["name"]),
            ("env", keys.env.is_some(), &["name"]),
            ("references", keys.references.is_some(), &["layout", "archive"]),
            ("checksums", keys.checksums.is_some(), &["archive"]),
        ];
        if let Some((key, ..)) = others.iter().find(|(_, given, with)| *given && !with.contains(&source)) {
            return Err(EntryError::Key(key, source));
        }
        let roles = keys.roles.clone();
        Ok(Self { source: Source::of(keys)?, roles })
    }
}

impl Source {
    /// The source of an entry that has exactly one.
    fn of(keys: Keys) -> Result<Self, EntryError> {
        if let Some(name) = keys.name {
            if name.tag().is_none() || name.digest().is_some() {
                return Err(EntryError::Name(name));
            }
            return Ok(Self::Built(BuiltImage {
                name,
                layers: keys.layers.unwrap_or_default(),
                entrypoint: keys.entrypoint.unwrap_or_default(),
                cmd: keys.cmd.unwrap_or_default(),
                env: keys.env.unwrap_or_default(),
            }));
        }
        if let Some(image) = keys.image {
            return Ok(Self::Registry(image));
        }
        if let Some(list) = keys.list {
            return Ok(Self::List(list));
        }
        let is_layout = keys.layout.is_some();
        Ok(Self::Local(LocalImages {
            path: keys.layout.or(keys.archive).unwrap_or_default(),
            references: keys.references.unwrap_or_default(),
            checksums: keys.checksums,
            is_layout,
        }))
    }
}

impl From<Entry> for Keys {
    fn from(entry: Entry) -> Self {
        let mut keys = Self { roles: entry.roles, ..Self::default() };
        match entry.source {
            Source::Built(image) => {
                keys.name = Some(image.name);
                keys.layers = Some(image.layers);
                keys.entrypoint = Some(image.entrypoint).filter(|words| !words.is_empty());
                keys.cmd = Some(image.cmd).filter(|words| !words.is_empty());
                keys.env = Some(image.env).filter(|variables| !variables.is_empty());
            }
            Source::Registry(image) => keys.image = Some(image),
            Source::List(path) => keys.list = Some(path),
            Source::Local(local) => {
                *(if local.is_layout { &mut keys.layout } else { &mut keys.archive }) = Some(local.path);
                keys.references = Some(local.references).filter(|references| !references.is_empty());
                keys.checksums = local.checksums;
            }
        }
        keys
    }
}

/// One layer: the files of packages and of what they depend on, without those that lower layers have already.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, Validate,
)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct LayerSpec {
    /// Names of Debian packages. Their files are unpacked; no maintainer script runs.
    #[garde(length(min = 1))]
    #[schemars(length(min = 1))]
    pub packages: Vec<PackageName>,
}

/// Text that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseSpecError {
    text: String,
    expected: &'static str,
}

/// A string type whose values match a check; text and schema pattern say what it is.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:path, $expected:literal, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseSpecError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                if $check(&text) { Ok(Self(text)) } else { Err(ParseSpecError { text, expected: $expected }) }
            }
        }

        impl FromStr for $name {
            type Err = ParseSpecError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

checked_text! {
    /// The name of a Debian package.
    PackageName, is_package_name,
    "the name of a Debian package (lower-case letters, digits, '+', '-', '.')",
    r"^[a-z0-9][a-z0-9+.-]+$"
}

checked_text! {
    /// An environment variable with its value.
    EnvVar, is_env_var,
    "an environment variable of the form NAME=value",
    r"^[A-Za-z_][A-Za-z0-9_]*=[^\u0000]*$"
}

fn is_package_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() >= 2
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || matches!(byte, b'+' | b'-' | b'.'))
}

fn is_env_var(text: &str) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let named = name.bytes().all(word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    named && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_cannot_be_options_or_paths() {
        for (name, good) in
            [("libc6", true), ("g++-12", true), ("-o", false), ("./x.deb", false), ("a,b", false)]
        {
            assert_eq!(name.parse::<PackageName>().is_ok(), good, "{name}");
        }
    }

    fn entry(text: &str) -> Result<Entry, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn an_image_needs_layers_and_a_layer_needs_packages() {
        for (layers, good) in
            [("[]", false), (r#"[{"packages": []}]"#, false), (r#"[{"packages": ["dash"]}]"#, true)]
        {
            let text = format!(r#"{{"name": "localhost/a:1", "layers": {layers}}}"#);
            let Source::Built(image) = entry(&text).unwrap().source else { panic!("{text}") };
            assert_eq!(image.validate().is_ok(), good, "{layers}");
        }
    }

    #[test]
    fn an_entry_has_one_source_and_the_keys_that_go_with_it() {
        for (text, told) in [
            (r#"{}"#, "this one has none"),
            (r#"{"roles": ["worker"]}"#, "this one has none"),
            (r#"{"image": "a.b/c:1", "list": "x"}"#, "image and list"),
            (r#"{"image": "a.b/c:1", "layers": []}"#, "layers does not go with image"),
            (r#"{"layout": "x", "checksums": "y"}"#, "checksums does not go with layout"),
            (
                r#"{"name": "a.b/c@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}"#,
                "has a tag",
            ),
            (r#"{"name": "a.b/c:1", "from": "x"}"#, "unknown field `from`"),
            (r#"{"image": "A.b/C"}"#, "not a reference to an image"),
        ] {
            let error = entry(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_was_read() {
        for text in [
            r#"{"name":"localhost/a:1","layers":[{"packages":["dash"]}],"cmd":["sh"],"roles":["worker"]}"#,
            r#"{"image":"a.b/c:1"}"#,
            r#"{"list":"images.txt","roles":["management","witness"]}"#,
            r#"{"layout":"dir","references":["a.b/c:1"]}"#,
            r#"{"archive":"a.tar.zst","checksums":"sums.txt"}"#,
        ] {
            assert_eq!(serde_json::to_string(&entry(text).unwrap()).unwrap(), text);
        }
    }
}
