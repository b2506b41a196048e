//! The steps that make the modules of extensions: the tree that they are built in, and each extension by itself, so that a changed
//! driver builds only itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files::{parent, write_atomically};
use serde_json::json;

use super::base_system::epoch_in;
use super::context::Build;
use super::extension_inputs;
use super::overlay::Overlay;
use crate::cache::{StepKey, StepOutputs};
use crate::extensions::module::{self, BuiltExtension};
use crate::extensions::{ExtensionSpec, ModuleSource};
use crate::files::digest_of_path;
use crate::packages::plain_name;
use crate::sbom::{PackageManager, SbomPackage};
use crate::steps::{
    EXTENSION_INITRD, EXTENSION_OUTPUT, EXTENSION_ROOTFS, ExtensionSource, ModuleFiles, ModuleSigner,
    StepWork, keep_epoch, only_kernel,
};

/// Where an OS image has the certificate of its modules, as DER, for `mokutil --import`.
const CERTIFICATE: &str = "usr/share/nqrust/modules.der";

/// The extensions of a build, made.
#[derive(Debug, Default)]
pub(super) struct MadeExtensions {
    pub(super) built: Vec<BuiltExtension>,
    /// The directories that are laid over the OS image.
    pub(super) rootfs: Vec<Overlay>,
    /// The directories that are laid over the tree of the initrd.
    pub(super) initrd: Vec<Overlay>,
    /// As the bill of materials has them.
    pub(super) packages: Vec<SbomPackage>,
}

impl Build<'_> {
    /// Makes the modules of all extensions for the kernel of a base with these paths. Warns where machines with Secure Boot would refuse them.
    pub(super) fn extensions(&self, base_paths: &BTreeSet<PathBuf>) -> Result<MadeExtensions> {
        let definition = &self.inputs.loaded.definition;
        let mut made = MadeExtensions::default();
        made.rootfs.extend(self.module_certificate()?);
        if definition.extensions.is_empty() {
            return Ok(made);
        }
        let kernel = kernel_of(base_paths)?;
        let tools = self.module_tools()?;
        for extension in &definition.extensions {
            let outputs = self.extension(extension, &kernel, tools.as_ref())?;
            let path = outputs.path(EXTENSION_OUTPUT)?;
            let reading = || format!("reading {}", path.display());
            let built: BuiltExtension =
                serde_json::from_slice(&fs::read(&path).with_context(reading)?).with_context(reading)?;
            made.initrd.extend(extension.initrd.then(|| Overlay::Output(outputs.clone(), EXTENSION_INITRD)));
            made.rootfs.push(Overlay::Output(outputs, EXTENSION_ROOTFS));
            made.packages.extend(self.sbom_package(extension, &built));
            made.built.push(built);
        }
        module::check_names(&made.built)?;
        if let Some(warning) = module::unsigned_warning(&made.built) {
            self.progress.warn("extensions", &warning);
        }
        Ok(made)
    }

    /// `tools.tar`: compiler, headers of the kernel, DKMS and its packages. None where nothing is built or signed.
    fn module_tools(&self) -> Result<Option<StepOutputs>> {
        let definition = &self.inputs.loaded.definition;
        let Some(list) = definition.module_tools() else { return Ok(None) };
        let packages = self.lock.packages_for(|wanted| *wanted == list);
        let inputs = json!({
            "epoch": self.given_epoch(),
            "architecture": definition.architecture,
            "suite": definition.packages.suite,
            "include": list.include,
            "packages": packages.iter().map(|package| package.sha256).collect::<Vec<_>>(),
        });
        let outputs = self.inputs.cache.step(&StepKey::new("module-tools", 3, inputs), |out| {
            let repository = self.repository(&packages)?;
            let epoch = self.epoch_of(&repository)?;
            keep_epoch(out, epoch)?;
            let (suite, include) = (definition.packages.suite.clone(), list.include.clone());
            let work = StepWork::ModuleTools { suite, repository, include };
            let message = "Putting compiler and kernel headers together";
            self.progress.within("module-tools", message, || self.sandboxed(work, epoch, out))
        })?;
        Ok(Some(outputs))
    }

    fn extension(
        &self,
        extension: &ExtensionSpec,
        kernel: &str,
        tools: Option<&StepOutputs>,
    ) -> Result<StepOutputs> {
        let loaded = &self.inputs.loaded;
        let absolute = |path: &Path| {
            let path = loaded.resolve(path);
            path.canonicalize().with_context(|| format!("resolving {}", path.display()))
        };
        let files = match &extension.source {
            ModuleSource::Dkms(package) => ModuleFiles::Dkms(plain_name(package).to_owned()),
            ModuleSource::Directory(path) => ModuleFiles::Directory(absolute(path)?),
            ModuleSource::Ready(path) => ModuleFiles::Ready(absolute(path)?),
        };
        let signer = self.module_signer()?;
        let files_digest = extension.path().map(|path| digest_of_path(&loaded.resolve(path))).transpose()?;
        let signed_with =
            signer.as_ref().map(|signer| [&signer.key, &signer.certificate].map(|file| digest_of_path(file)));
        let signed_with: Option<Vec<Digest>> =
            signed_with.map(|digests| digests.into_iter().collect::<Result<_>>()).transpose()?;
        // Ready modules without a signature of ours need no tools, and do not change with them.
        let tools = tools.filter(|_| extension.is_compiled() || signer.is_some());
        let name = extension.name();
        let inputs = json!({
            "epoch": self.given_epoch(),
            "architecture": loaded.definition.architecture,
            "extension": extension,
            "files": files_digest,
            "kernel": kernel,
            "tools": tools.map(StepOutputs::digest).transpose()?,
            "signer": signed_with,
        });
        self.inputs.cache.step(&StepKey::new("extension", 1, inputs), |out| {
            let work = StepWork::Extension(Box::new(ExtensionSource {
                name: name.clone(),
                files,
                kernel: kernel.to_owned(),
                tools: tools.map(|tools| tools.path("tools.tar")).transpose()?,
                initrd: extension.initrd,
                load: extension.load.clone(),
                signer,
                log: self.inputs.cache.logs().join(format!("extension-{name}.log")),
            }));
            // Without tools nothing is made that has a time.
            let epoch = self.given_epoch().map_or_else(|| tools.map_or(Ok(0), epoch_in), Ok)?;
            let doing = if extension.is_compiled() { "Building" } else { "Taking" };
            let message = format!("{doing} the modules of {name} for Linux {kernel}");
            self.progress.within("extension", message, || self.sandboxed(work, epoch, out))
        })
    }

    /// The key of the build and the certificate of the definition.
    fn module_signer(&self) -> Result<Option<ModuleSigner>> {
        let loaded = &self.inputs.loaded;
        let both = self.module_key.as_ref().zip(loaded.definition.kernel.module_certificate.as_ref());
        let absolute =
            |path: &Path| path.canonicalize().with_context(|| format!("resolving {}", path.display()));
        both.map(|(key, certificate)| {
            Ok(ModuleSigner { key: absolute(key)?, certificate: absolute(&loaded.resolve(certificate))? })
        })
        .transpose()
    }

    /// The certificate of the modules, laid out as an overlay.
    fn module_certificate(&self) -> Result<Option<Overlay>> {
        let loaded = &self.inputs.loaded;
        let Some(certificate) = &loaded.definition.kernel.module_certificate else { return Ok(None) };
        let bytes = extension_inputs::certificate_der(&loaded.resolve(certificate))?;
        let key = StepKey::new("module-certificate", 1, json!({ "certificate": Digest::of(&bytes) }));
        let outputs = self.inputs.cache.step(&key, |out| {
            let file = out.join("overlay").join(CERTIFICATE);
            fs::create_dir_all(parent(&file))
                .with_context(|| format!("making {}", parent(&file).display()))?;
            write_atomically(&file, &bytes, 0o644)
        })?;
        Ok(Some(Overlay::Output(outputs, "overlay")))
    }

    /// An extension as a package: that of Debian, or files that no package manager knows.
    fn sbom_package(&self, extension: &ExtensionSpec, built: &BuiltExtension) -> Option<SbomPackage> {
        let licences: Vec<_> = built.modules.iter().filter_map(|module| module.license.as_deref()).collect();
        let licence = licences.first().filter(|first| licences.iter().all(|other| other == *first));
        let licence = licence.map(|licence| (*licence).to_owned());
        if let ModuleSource::Dkms(package) = &extension.source {
            let name = plain_name(package);
            let files = self.lock.packages.iter().filter_map(|package| package.file.strip_suffix(".deb"));
            let mut named =
                files.filter_map(|file| file.strip_prefix(name)?.strip_prefix('_')?.split_once('_'));
            let (version, architecture) = named.next()?;
            return Some(SbomPackage {
                manager: PackageManager::Dpkg,
                distribution: "debian".to_owned(),
                name: name.to_owned(),
                version: base::percent::decode(version)?,
                architecture: architecture.to_owned(),
                source: None,
                licence,
            });
        }
        let version = built.modules.iter().find_map(|module| module.version.clone());
        let digest = built.modules.first().map(|module| module.sha256.to_string()[..16].to_owned());
        Some(SbomPackage {
            manager: PackageManager::None,
            distribution: String::new(),
            name: built.name.clone(),
            version: version.or(digest)?,
            architecture: self.inputs.loaded.definition.architecture.debian().to_owned(),
            source: None,
            licence,
        })
    }
}

/// The release of the kernel in a base with these paths.
fn kernel_of(paths: &BTreeSet<PathBuf>) -> Result<String> {
    let modules = Path::new("usr/lib/modules");
    let release = |path: &PathBuf| {
        let mut parts = path.strip_prefix(modules).ok()?.components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => name.to_str().map(str::to_owned),
            _ => None,
        }
    };
    let has_image =
        |name: &String| paths.contains(&Path::new("boot").join(OsStr::new(&format!("vmlinuz-{name}"))));
    let found: Vec<_> = paths.iter().filter_map(release).filter(has_image).collect();
    only_kernel(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_a_base_is_the_one_that_has_modules_and_an_image() {
        let base = |names: &[&str]| kernel_of(&names.iter().map(PathBuf::from).collect());
        let names = [
            "usr/lib/modules/6.12.1-amd64",
            "usr/lib/modules/6.12.1-amd64/kernel",
            "usr/lib/modules/6.1.0-old",
            "boot/vmlinuz-6.12.1-amd64",
        ];
        assert_eq!(base(&names).unwrap(), "6.12.1-amd64");
        assert!(base(&names[..3]).unwrap_err().to_string().contains("no kernel"));
    }
}
