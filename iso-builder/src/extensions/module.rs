//! The modules of an extension: whether they fit the kernel of the base, and what a build says of them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::kernel_modules::{self, ModuleHeader, is_module, name_of};
use model::architecture::Architecture;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::elf;

/// An extension whose modules are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltExtension {
    pub name: String,
    /// The release of the kernel that the modules are for, as `uname -r` prints it.
    pub kernel: String,
    /// Sorted by name.
    pub modules: Vec<BuiltModule>,
    /// True if the initrd has them too.
    pub initrd: bool,
    /// The modules that are loaded at every start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltModule {
    /// The name that the kernel has for it.
    pub name: String,
    /// As the module itself says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Of the file in the OS image.
    pub sha256: Digest,
    pub signed: bool,
}

impl BuiltModule {
    /// The module in a file that is not packed.
    ///
    /// # Errors
    /// Those of [`judge`].
    pub fn read(path: &Path, kernel: &str, architecture: Architecture) -> Result<Self> {
        let bytes = plain_bytes(path)?;
        let ModuleHeader { version, license, signed, .. } = judge(path, &bytes, Some(kernel), architecture)?;
        Ok(Self { name: name_of(path), version, license, sha256: Digest::of(&bytes), signed })
    }
}

/// Checks that the module with these bytes, of the file `path`, is for this processor and for the kernel, where that is known.
///
/// # Errors
/// [`Class::Invalid`] if it is no module, or one for another kernel or processor.
pub fn judge(
    path: &Path,
    bytes: &[u8],
    kernel: Option<&str>,
    architecture: Architecture,
) -> Result<ModuleHeader> {
    let refused = |why: String, hint: &str| {
        let what = format!("{} cannot be loaded by the kernel of the image", path.display());
        Failure::new(Class::Invalid, what).because(anyhow!("{why}")).hint(hint)
    };
    let header = kernel_modules::header(bytes).map_err(|error| {
        refused(
            format!("it is no kernel module: {error}"),
            "Name a module that Kbuild has made, with the end .ko.",
        )
    })?;
    if elf::architecture(header.machine) != Some(architecture) {
        let of =
            elf::architecture(header.machine).map_or("another processor".to_owned(), |own| own.to_string());
        let why = format!("it is for {of}, and the image for {architecture}");
        return Err(refused(why, "Build the module for the architecture of the image.").into());
    }
    match (header.kernel(), kernel) {
        (None, _) => {
            let why = "it does not say for which kernel it was built (vermagic)".to_owned();
            Err(refused(why, "Name a module that Kbuild has made, after modpost.").into())
        }
        (Some(own), Some(kernel)) if own != kernel => {
            let why = format!("it was built for Linux {own}, and the base has Linux {kernel}");
            let hint = "Build it against the headers of that kernel, or give its source instead: the builder compiles it.";
            Err(refused(why, hint).into())
        }
        _ => Ok(header),
    }
}

/// The files of the modules that `path` names: itself, or those of a directory and its directories; sorted.
///
/// # Errors
/// [`Class::Invalid`] if there is none.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in WalkDir::new(path).sort_by_file_name() {
        let entry = entry.with_context(|| format!("looking for modules in {}", path.display()))?;
        if is_module(&entry.file_name().to_string_lossy()) && entry.path().is_file() {
            found.push(entry.into_path());
        }
    }
    if found.is_empty() {
        let what = format!("{} has no kernel module", path.display());
        let why = anyhow!("no file of it ends with .ko, .ko.xz or .ko.zst");
        let hint = "Give the sources with `source`, or build the modules first.";
        return Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into());
    }
    Ok(found)
}

/// The bytes of a module, unpacked if its name says that it is packed with zstd. Those with other ends are returned as they are.
///
/// # Errors
/// Reading fails.
pub fn plain_bytes(path: &Path) -> Result<Vec<u8>> {
    let what = || format!("reading {}", path.display());
    if path.extension().is_none_or(|end| end != "zst") {
        return fs::read(path).with_context(what);
    }
    let mut bytes = Vec::new();
    let mut unpacked = zstd::stream::Decoder::new(File::open(path).with_context(what)?).with_context(what)?;
    unpacked.read_to_end(&mut bytes).with_context(what)?;
    Ok(bytes)
}

/// True for a file whose modules only `xz` or `gzip` unpacks.
#[must_use]
pub fn is_opaque(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "xz" || end == "gz")
}

/// Fails if two extensions have a module of the same name, or one is to be loaded that the extension lacks.
///
/// # Errors
/// [`Class::Invalid`].
pub fn check_names(extensions: &[BuiltExtension]) -> Result<()> {
    let mut owners: Vec<(&str, &str)> = Vec::new();
    for extension in extensions {
        for module in &extension.modules {
            if let Some((_, owner)) = owners.iter().find(|(name, _)| *name == module.name) {
                let what = format!(
                    "the extensions {owner} and {} both have the module {}",
                    extension.name, module.name
                );
                let hint = "Remove one of them from `extensions`.";
                return Err(Failure::new(Class::Invalid, what).hint(hint).into());
            }
            owners.push((&module.name, &extension.name));
        }
    }
    extensions.iter().try_for_each(check_loaded)
}

fn check_loaded(extension: &BuiltExtension) -> Result<()> {
    let names: Vec<_> = extension.modules.iter().map(|module| module.name.as_str()).collect();
    let strange = extension.load.iter().find(|name| !names.contains(&&*kernel_modules::kernel_name(name)));
    let Some(strange) = strange else { return Ok(()) };
    let what = format!("the extension {} has no module {strange}, which it is to load", extension.name);
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow!("its modules are: {}", names.join(", ")))
        .hint("Correct `load`; modules of the kernel itself are loaded by a file in etc/modules-load.d of an overlay.")
        .into())
}

/// The warning about modules without a signature; none if all have one.
#[must_use]
pub fn unsigned_warning(extensions: &[BuiltExtension]) -> Option<String> {
    let unsigned = extensions.iter().flat_map(|extension| &extension.modules).filter(|module| !module.signed);
    let names: Vec<_> = unsigned.map(|module| module.name.as_str()).collect();
    (!names.is_empty()).then(|| unsigned_text(&names.join(", ")))
}

/// The warning that these modules have no signature.
#[must_use]
pub fn unsigned_text(modules: &str) -> String {
    format!(
        "not signed: {modules}. With Secure Boot the kernel refuses such modules; sign them (kernel.module_certificate \
         and --module-key) and enroll the certificate on each machine, or use the image only where Secure Boot is off"
    )
}

/// Writes what a build step made.
pub(crate) fn write(extension: &BuiltExtension, path: &Path) -> io::Result<()> {
    fs::write(path, base::encode::json_line(extension))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::kernel::module;

    const MAGIC: &str = "6.12.1-amd64 SMP preempt mod_unload modversions ";

    fn told(bytes: &[u8], kernel: &str, architecture: Architecture) -> String {
        let judged = judge(Path::new("acme.ko"), bytes, Some(kernel), architecture);
        judged.map_or_else(|error| base::failure::render(&error), |header| header.vermagic)
    }

    #[test]
    fn a_module_of_another_kernel_or_processor_is_refused_before_the_work() {
        let own = module(&[("vermagic", MAGIC)]);
        assert_eq!(told(&own, "6.12.1-amd64", Architecture::Amd64), MAGIC);
        let other = told(&own, "6.12.2-amd64", Architecture::Amd64);
        assert!(
            other.contains("built for Linux 6.12.1-amd64, and the base has Linux 6.12.2-amd64"),
            "{other}"
        );
        let arm = told(&own, "6.12.1-amd64", Architecture::Arm64);
        assert!(arm.contains("it is for amd64, and the image for arm64"), "{arm}");
        assert!(
            told(&module(&[("license", "GPL")]), "6.12.1-amd64", Architecture::Amd64).contains("vermagic")
        );
        assert!(told(b"text", "6.12.1-amd64", Architecture::Amd64).contains("it is no kernel module"));
        let unknown = judge(Path::new("acme.ko"), &own, None, Architecture::Amd64);
        assert!(unknown.is_ok());
    }

    #[test]
    fn the_files_of_a_directory_are_found_and_one_packed_by_zstd_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(files(directory.path()).unwrap_err().to_string().contains("has no kernel module"));
        let own = module(&[("vermagic", MAGIC), ("version", "2")]);
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/a.ko.zst"), zstd::bulk::compress(&own, 1).unwrap()).unwrap();
        fs::write(directory.path().join("b.ko"), &own).unwrap();
        fs::write(directory.path().join("c.c"), "").unwrap();
        let found = files(directory.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(directory.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("b.ko"), Path::new("below/a.ko.zst")]);
        assert_eq!(plain_bytes(&found[1]).unwrap(), own);
        let read = BuiltModule::read(&found[0], "6.12.1-amd64", Architecture::Amd64).unwrap();
        assert_eq!((&*read.name, read.version.as_deref(), read.signed), ("b", Some("2"), false));
        assert_eq!(read.sha256, Digest::of(&own));
    }

    #[test]
    fn a_name_in_two_extensions_and_one_that_none_has_are_refused() {
        let module = |name: &str, signed| BuiltModule {
            name: name.into(),
            version: None,
            license: None,
            sha256: Digest::of(b""),
            signed,
        };
        let extension = |name: &str, modules, load: &[&str]| BuiltExtension {
            name: name.into(),
            kernel: "6.12.1-amd64".into(),
            modules,
            initrd: false,
            load: load.iter().map(|name| (*name).to_owned()).collect(),
        };
        let one = extension("one", vec![module("snd_acme", true)], &["snd-acme"]);
        check_names(std::slice::from_ref(&one)).unwrap();
        assert_eq!(unsigned_warning(std::slice::from_ref(&one)), None);
        let same = check_names(&[one.clone(), extension("two", vec![module("snd_acme", true)], &[])]);
        assert!(same.unwrap_err().to_string().contains("one and two both have the module snd_acme"));
        let absent = check_names(&[one.clone(), extension("two", vec![module("b", false)], &["c"])]);
        assert!(absent.unwrap_err().to_string().contains("two has no module c"));
        let warning = unsigned_warning(&[one, extension("two", vec![module("b", false)], &[])]).unwrap();
        assert!(warning.starts_with("not signed: b. With Secure Boot"), "{warning}");
    }
}
