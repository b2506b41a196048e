//! Extensions in the image definition: where the modules come from, and where they go.

use std::path::PathBuf;

use document::format::{FormatResult, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packages::plain_name;

/// Kernel modules from outside of the base's kernel: exactly one of `dkms`, `source` and `modules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Keys", into = "Keys")]
#[schemars(with = "Keys")]
pub struct ExtensionSpec {
    pub source: ModuleSource,
    /// True if the initrd has the modules too.
    pub initrd: bool,
    /// The modules that are loaded at every start.
    pub load: Vec<String>,
}

/// Where modules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleSource {
    /// A Debian package with sources for DKMS, as apt takes its name.
    Dkms(String),
    /// A directory with sources and a Makefile of Kbuild.
    Directory(PathBuf),
    /// A module, or a directory of modules, built for the kernel of the base.
    Ready(PathBuf),
}

/// An extension as it is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    /// A package of the mirrors with sources for DKMS: `v4l2loopback-dkms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    dkms: Option<String>,
    /// A directory with sources and a `Makefile` or `Kbuild` of the kernel's build system (Documentation/kbuild/modules.rst).
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<PathBuf>,
    /// A module for the kernel of the base (`NAME.ko`, also packed by xz or zstd), or a directory of such files.
    #[serde(skip_serializing_if = "Option::is_none")]
    modules: Option<PathBuf>,
    /// Put the modules into the initrd too: drivers of what a machine starts from.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    initrd: bool,
    /// Modules to load at every start. Drivers of devices need not be named: udev loads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    load: Vec<String>,
}

/// The keys that say where modules come from. An extension has exactly one of them.
const SOURCES: [&str; 3] = ["dkms", "source", "modules"];

/// An extension does not have exactly one source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an extension has exactly one of dkms, source and modules; this one has {0}")]
pub struct SourceError(String);

/// Checks that of the keys for which `has` is true exactly one says where the modules come from.
pub(crate) fn check_sources(has: impl Fn(&str) -> bool) -> Result<(), SourceError> {
    let given: Vec<_> = SOURCES.into_iter().filter(|key| has(key)).collect();
    match given[..] {
        [_] => Ok(()),
        [] => Err(SourceError("none".to_owned())),
        _ => Err(SourceError(given.join(" and "))),
    }
}

impl TryFrom<Keys> for ExtensionSpec {
    type Error = SourceError;

    fn try_from(keys: Keys) -> Result<Self, SourceError> {
        let Keys { dkms, source, modules, initrd, load } = keys;
        check_sources(|key| match key {
            "dkms" => dkms.is_some(),
            "source" => source.is_some(),
            _ => modules.is_some(),
        })?;
        let source = dkms
            .map(ModuleSource::Dkms)
            .or(source.map(ModuleSource::Directory))
            .or(modules.map(ModuleSource::Ready))
            .ok_or_else(|| SourceError("none".to_owned()))?;
        Ok(Self { source, initrd, load })
    }
}

impl From<ExtensionSpec> for Keys {
    fn from(spec: ExtensionSpec) -> Self {
        let ExtensionSpec { source, initrd, load } = spec;
        let mut keys = Self { initrd, load, ..Self::default() };
        match source {
            ModuleSource::Dkms(package) => keys.dkms = Some(package),
            ModuleSource::Directory(path) => keys.source = Some(path),
            ModuleSource::Ready(path) => keys.modules = Some(path),
        }
        keys
    }
}

impl ExtensionSpec {
    /// The name by which messages, reports and files of the image know it: that of the package, or the last one of the path.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.source {
            ModuleSource::Dkms(package) => plain_name(package).to_owned(),
            ModuleSource::Directory(path) | ModuleSource::Ready(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                name.split(".ko").next().unwrap_or_default().to_owned()
            }
        }
    }

    /// The file or directory that it names.
    #[must_use]
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.source {
            ModuleSource::Dkms(_) => None,
            ModuleSource::Directory(path) | ModuleSource::Ready(path) => Some(path),
        }
    }

    /// True if a build compiles the modules.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        !matches!(self.source, ModuleSource::Ready(_))
    }
}

/// A Debian package of sources for DKMS; dh_dkms(1) gives all of them this end.
pub(crate) fn dkms_package(text: &str) -> FormatResult {
    let fault = "is not a package of sources for DKMS, whose name ends with -dkms; other packages go to base.debian.include";
    ensure(plain_name(text).ends_with("-dkms"), fault)
}

/// A path whose last part is a name.
pub(crate) fn path(text: &str) -> FormatResult {
    let name = std::path::Path::new(text).file_name().map(|name| name.to_string_lossy());
    let letter = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    let right = name.is_some_and(|name| !name.starts_with('.') && name.chars().all(letter));
    ensure(right, "does not end with a name of letters, digits and +-._, by which the extension is known")
}

/// The name of a module, as modprobe takes it.
pub(crate) fn module_name(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    ensure(!text.is_empty() && text.chars().all(letter), "is not the name of a module, without path and .ko")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ExtensionSpec, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_extension_has_one_source_and_is_known_by_its_name() {
        for (text, name) in [
            ("{dkms: v4l2loopback-dkms=0.15.0-2}", "v4l2loopback-dkms"),
            ("{source: drivers/acme, initrd: true}", "acme"),
            ("{modules: drivers/acme.ko.xz, load: [acme]}", "acme"),
            ("{modules: drivers}", "drivers"),
        ] {
            let spec = read(text).unwrap();
            assert_eq!(spec.name(), name);
            let again: ExtensionSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
            assert_eq!(again, spec);
        }
        assert!(read("{load: [a]}").unwrap_err().contains("has none"));
        assert!(read("{dkms: a-dkms, modules: b}").unwrap_err().contains("has dkms and modules"));
    }

    #[test]
    fn texts_that_name_no_package_path_or_module_are_refused() {
        assert!(
            dkms_package("v4l2loopback-dkms/trixie").is_ok() && dkms_package("v4l2loopback-utils").is_err()
        );
        assert!(path("../drivers/acme-1.0").is_ok());
        for wrong in ["..", "a/..", "drivers/two words", ".hidden", ""] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
        assert!(module_name("snd-aloop").is_ok());
        for wrong in ["", "a.ko", "a/b", "a b"] {
            assert!(module_name(wrong).is_err(), "{wrong}");
        }
    }
}
