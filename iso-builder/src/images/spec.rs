//! Container images in the image definition: where each comes from and which roles need it.

use std::path::PathBuf;

use document::checked_text;
use document::format::{FormatFault, FormatResult};
use formats::oci::ImageReference;
use model::config::{Distribution, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packages::PackageList;

/// The container images of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Images {
    /// The images that the media carry.
    pub preload: Vec<PreloadEntry>,
    /// Unpack the images while a node is installed, so that a first container starts at once. The install takes longer, and
    /// the images take more than twice their room on the node.
    pub unpack: bool,
    /// Whose containerd runs on the nodes, which decides where the images are put. It follows from `kubernetes`; this key is
    /// for a base that brings its own distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

impl Images {
    pub fn built(&self) -> impl Iterator<Item = &BuiltImage> {
        self.preload.iter().filter_map(|entry| match &entry.source {
            PreloadSource::Built(image) => Some(image),
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
            Distribution::Kubeadm => Self::Containerd,
        }
    }
}

/// Images that are preloaded: exactly one of `name`, `image`, `list`, `layout` and `archive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Keys", into = "Keys")]
#[schemars(with = "Keys")]
pub struct PreloadEntry {
    /// Where they come from.
    pub source: PreloadSource,
    /// The roles whose nodes get them; empty means every role.
    pub roles: Vec<Role>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreloadSource {
    Built(BuiltImage),
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
    /// True if the definition called it a layout, which is a directory.
    pub is_layout: bool,
}

/// A container image that the definition builds from Debian packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltImage {
    /// The full reference that nodes use, with a tag: `localhost/nqrust/tools:1.0`.
    pub name: ImageReference,
    /// The layers, lowest first. Images whose first layers name the same packages share these layers.
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

/// A mistake in an entry of `images.preload`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EntryError {
    /// The key that it is about; none where it is about the entry.
    pub key: Option<&'static str>,
    /// For people.
    pub message: String,
}

/// The keys that say where images come from. An entry has exactly one of them.
const SOURCES: [&str; 5] = ["name", "image", "list", "layout", "archive"];

/// Keys that go with some sources only.
const FURTHER: [(&str, &[&str]); 6] = [
    ("layers", &["name"]),
    ("entrypoint", &["name"]),
    ("cmd", &["name"]),
    ("env", &["name"]),
    ("references", &["layout", "archive"]),
    ("checksums", &["archive"]),
];

/// The mistakes of an entry with the keys for which `has` is true: it has exactly one source, and the keys that belong to it.
pub(crate) fn misfits(has: impl Fn(&str) -> bool) -> Vec<EntryError> {
    let given: Vec<_> = SOURCES.into_iter().filter(|key| has(key)).collect();
    let [source] = given[..] else {
        let found = match given.is_empty() {
            true if has("references") => {
                "none: `references` are names for what `archive` or `layout` holds, and an image of a registry is \
                 `image: NAME`"
                    .to_owned()
            }
            true => "none".to_owned(),
            false => given.join(" and "),
        };
        let message = format!(
            "an entry of images.preload has exactly one of {} and archive; this one has {found}",
            SOURCES[..4].join(", ")
        );
        return vec![EntryError { key: None, message }];
    };
    let stray = FURTHER.into_iter().filter(|(key, with)| has(key) && !with.contains(&source));
    let fault =
        |(key, _)| EntryError { key: Some(key), message: format!("{key} cannot be used with {source}") };
    stray.map(fault).collect()
}

/// An image that is built has something in it.
pub(crate) fn without_layers() -> EntryError {
    EntryError { key: Some("layers"), message: "an image that is built needs at least one layer".into() }
}

impl TryFrom<Keys> for PreloadEntry {
    type Error = EntryError;

    fn try_from(keys: Keys) -> Result<Self, EntryError> {
        let has = |key: &str| match key {
            "name" => keys.name.is_some(),
            "image" => keys.image.is_some(),
            "list" => keys.list.is_some(),
            "layout" => keys.layout.is_some(),
            "archive" => keys.archive.is_some(),
            "layers" => keys.layers.is_some(),
            "entrypoint" => keys.entrypoint.is_some(),
            "cmd" => keys.cmd.is_some(),
            "env" => keys.env.is_some(),
            "references" => keys.references.is_some(),
            "checksums" => keys.checksums.is_some(),
            _ => false,
        };
        if let Some(fault) = misfits(has).into_iter().next() {
            return Err(fault);
        }
        let roles = keys.roles.clone();
        Ok(Self { source: PreloadSource::of(keys)?, roles })
    }
}

impl PreloadSource {
    /// The source of an entry that has exactly one.
    fn of(keys: Keys) -> Result<Self, EntryError> {
        if let Some(name) = keys.name {
            if !is_built_name(&name) {
                let message = format!("{name}: an image that is built has a tag and no digest");
                return Err(EntryError { key: Some("name"), message });
            }
            let layers = keys.layers.unwrap_or_default();
            if layers.is_empty() {
                return Err(without_layers());
            }
            return Ok(Self::Built(BuiltImage {
                name,
                layers,
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

impl From<PreloadEntry> for Keys {
    fn from(entry: PreloadEntry) -> Self {
        let mut keys = Self { roles: entry.roles, ..Self::default() };
        match entry.source {
            PreloadSource::Built(image) => {
                keys.name = Some(image.name);
                keys.layers = Some(image.layers);
                keys.entrypoint = Some(image.entrypoint).filter(|words| !words.is_empty());
                keys.cmd = Some(image.cmd).filter(|words| !words.is_empty());
                keys.env = Some(image.env).filter(|variables| !variables.is_empty());
            }
            PreloadSource::Registry(image) => keys.image = Some(image),
            PreloadSource::List(path) => keys.list = Some(path),
            PreloadSource::Local(local) => {
                *(if local.is_layout { &mut keys.layout } else { &mut keys.archive }) = Some(local.path);
                keys.references = Some(local.references).filter(|references| !references.is_empty());
                keys.checksums = local.checksums;
            }
        }
        keys
    }
}

/// One layer: the files of packages and of what they depend on, without those that lower layers have already.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// Names of Debian packages. Their files are unpacked; no maintainer script runs.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "some_packages")]
    pub packages: Vec<PackageName>,
}

impl LayerSpec {
    /// What the layer asks for.
    pub(crate) fn package_list(&self) -> PackageList {
        let include = self.packages.iter().map(|package| package.as_str().to_owned()).collect();
        PackageList { essential: false, include }
    }
}

fn some_packages<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<PackageName>, D::Error> {
    let packages = Vec::deserialize(deserializer)?;
    if packages.is_empty() {
        return Err(serde::de::Error::custom("a layer needs at least one package"));
    }
    Ok(packages)
}

checked_text! {
    /// The name of a Debian package.
    PackageName, pattern r"^[a-z0-9][a-z0-9+.-]+$", package_name
}

checked_text! {
    /// An environment variable with its value.
    EnvVar, pattern r"^[A-Za-z_][A-Za-z0-9_]*=[^\u0000]*$", variable
}

/// The name of a Debian package, and nothing that apt would take for an option or a path.
pub(crate) fn package_name(name: &str) -> FormatResult {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let right = name.len() >= 2
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || matches!(byte, b'+' | b'-' | b'.'));
    let fault = "is not the name of a Debian package (lower-case letters, digits, '+', '-', '.')";
    if right { Ok(()) } else { Err(FormatFault::new(fault)) }
}

/// An environment variable with its value.
pub(crate) fn variable(text: &str) -> FormatResult {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let right = text.split_once('=').is_some_and(|(name, value)| {
        let named = name.bytes().all(word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        named && !value.contains('\0')
    });
    if right {
        Ok(())
    } else {
        Err(FormatFault::new("is not an environment variable of the form NAME=value"))
    }
}

/// A reference to an image, as registries and nodes use it.
pub(crate) fn reference(text: &str) -> FormatResult {
    match text.parse::<ImageReference>() {
        Ok(_) => Ok(()),
        Err(error) => Err(FormatFault::new(format!("is not a reference to an image: {}", error.why()))),
    }
}

/// The name of an image that is built here.
pub(crate) fn built_name(text: &str) -> FormatResult {
    reference(text)?;
    match text.parse::<ImageReference>() {
        Ok(name) if is_built_name(&name) => Ok(()),
        _ => Err(FormatFault::new("has a digest; an image that is built has a tag and no digest")),
    }
}

fn is_built_name(name: &ImageReference) -> bool {
    name.tag().is_some() && name.digest().is_none()
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

    fn entry(text: &str) -> Result<PreloadEntry, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn an_image_needs_layers_and_a_layer_needs_packages() {
        for (layers, good) in
            [("[]", false), (r#"[{"packages": []}]"#, false), (r#"[{"packages": ["dash"]}]"#, true)]
        {
            let text = format!(r#"{{"name": "localhost/a:1", "layers": {layers}}}"#);
            assert_eq!(entry(&text).is_ok(), good, "{layers}");
        }
    }

    #[test]
    fn an_entry_has_one_source_and_the_keys_that_go_with_it() {
        for (text, told) in [
            (r#"{}"#, "this one has none"),
            (r#"{"roles": ["worker"]}"#, "this one has none"),
            (r#"{"image": "a.b/c:1", "list": "x"}"#, "image and list"),
            (r#"{"image": "a.b/c:1", "layers": []}"#, "layers cannot be used with image"),
            (r#"{"layout": "x", "checksums": "y"}"#, "checksums cannot be used with layout"),
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
