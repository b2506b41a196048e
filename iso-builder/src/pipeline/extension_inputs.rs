//! The files that extensions name, before a build: what can be known of them without the tree that modules are built in.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Failure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::definition::{Base, Definition, LoadedDefinition};
use crate::extensions::module::{files, is_opaque, judge, plain_bytes, unsigned_text};
use crate::extensions::{ExtensionSpec, ModuleSource, tools};
use crate::lock::Lock;

/// The files by which Kbuild knows a directory, the first before the second (Documentation/kbuild/modules.rst).
const BUILD_FILES: [&str; 2] = ["Kbuild", "Makefile"];

/// Checks the extensions of a definition. Returns the names of modules that are known to have no signature.
///
/// # Errors
/// [`Class::Invalid`] if a build could not follow the definition.
pub(super) fn check(loaded: &LoadedDefinition) -> Result<Vec<String>> {
    let definition = &loaded.definition;
    let extensions = &definition.extensions;
    check_base(definition)?;
    if let Some(certificate) = &definition.kernel.module_certificate {
        certificate_der(&loaded.resolve(certificate))?;
    }
    let kernel = known_kernel(loaded);
    let is_signed = definition.kernel.module_certificate.is_some();
    let mut unsigned = Vec::new();
    for extension in extensions {
        let path = extension.path().map(|path| loaded.resolve(path));
        match (&extension.source, path) {
            (ModuleSource::Directory(_), Some(path)) => check_sources(&path)?,
            (ModuleSource::Ready(_), Some(path)) => {
                for file in files(&path)?.into_iter().filter(|file| !is_opaque(file)) {
                    let header =
                        judge(&file, &plain_bytes(&file)?, kernel.as_deref(), definition.architecture)?;
                    if !header.signed && !is_signed {
                        unsigned.push(formats::kernel_modules::name_of(&file));
                    }
                }
                continue;
            }
            _ => {}
        }
        if !is_signed {
            unsigned.push(format!("the modules of {}", extension.name()));
        }
    }
    Ok(unsigned)
}

/// The warning about what [`check`] found without a signature; none if there is nothing.
#[must_use]
pub(super) fn warning(unsigned: &[String]) -> Option<String> {
    (!unsigned.is_empty()).then(|| unsigned_text(&unsigned.join(", ")))
}

/// Fails if modules are to be built or signed and the packages for that cannot be known.
fn check_base(definition: &Definition) -> Result<()> {
    let Some(list) = definition.module_tools() else { return Ok(()) };
    let what = "the modules of extensions cannot be built";
    let compiled = definition.extensions.iter().filter(|extension| extension.is_compiled());
    let names: Vec<_> = compiled.map(ExtensionSpec::name).collect();
    let subject = if names.is_empty() { "kernel.module_certificate".to_owned() } else { names.join(", ") };
    if !matches!(definition.base, Base::Debian(_)) {
        let why =
            anyhow!("{subject} needs the headers of the kernel, and the base is not made of Debian packages");
        let hint = "Give modules that are built for the kernel of the base, and signed, with `modules`.";
        return Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into());
    }
    if !list.include.iter().any(|package| tools::is_headers(package)) {
        let why = anyhow!(
            "{subject} needs the headers of the kernel, and no package of base.debian.include is named linux-image-…"
        );
        let hint = "Name the kernel in base.debian.include, as linux-image-amd64.";
        return Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into());
    }
    Ok(())
}

fn check_sources(directory: &Path) -> Result<()> {
    if BUILD_FILES.iter().any(|name| directory.join(name).is_file()) {
        return Ok(());
    }
    let what = format!("{} is not the source of a kernel module", directory.display());
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow!("it has neither a Kbuild nor a Makefile"))
        .hint("Name the directory whose Makefile says `obj-m := NAME.o`.")
        .into())
}

/// The release of the kernel, if the lock file or a directory tells it.
fn known_kernel(loaded: &LoadedDefinition) -> Option<String> {
    match &loaded.definition.base {
        Base::Debian(_) => {
            let lock = Lock::read(&Lock::path_of(loaded)).ok().flatten()?;
            tools::kernel_release(lock.packages.iter().map(|package| package.file.as_str()))
        }
        Base::Directory(base) => {
            let modules = fs::read_dir(loaded.resolve(&base.path).join("usr/lib/modules")).ok()?;
            let mut names = modules.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.next().filter(|_| names.next().is_none())
        }
        _ => None,
    }
}

/// The certificate in a file, as DER. `mokutil` and firmware take that form alone, and people have it as PEM too.
///
/// # Errors
/// [`Class::Invalid`] if the file has no certificate.
pub(super) fn certificate_der(file: &Path) -> Result<Vec<u8>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let der = match String::from_utf8(bytes) {
        Ok(text) => {
            let encoded = text.split_once(BEGIN).and_then(|(_, rest)| Some(rest.split_once(END)?.0));
            let encoded: String = encoded.unwrap_or_default().split_whitespace().collect();
            BASE64_STANDARD.decode(encoded).unwrap_or_default()
        }
        Err(error) => error.into_bytes(),
    };
    // An X.509 certificate is a sequence with a length of two bytes (ITU-T X.690, 8.1.3).
    if der.starts_with(&[0x30, 0x82]) {
        return Ok(der);
    }
    let what = format!("{} is not a certificate", file.display());
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow!("it is neither an X.509 certificate in PEM nor one in DER"))
        .hint("Make key and certificate with openssl, as docs/how-to/extend.md shows.")
        .into())
}

/// Checks that there is a key where the definition has a certificate, and that sign-file can read it.
///
/// # Errors
/// [`Class::Invalid`] if the key is missing, encrypted, or without a certificate.
pub(super) fn check_key(definition: &Definition, key: Option<&PathBuf>) -> Result<()> {
    let refused = |what: String, hint: &str| Err(Failure::new(Class::Invalid, what).hint(hint).into());
    match (&definition.kernel.module_certificate, key) {
        (Some(_), None) if !definition.extensions.is_empty() => refused(
            "the modules of the definition's extensions are to be signed, and no key is named".into(),
            "Name the key of kernel.module_certificate: --module-key FILE.",
        ),
        (None, Some(_)) => refused(
            "--module-key is given, and the definition names no certificate".into(),
            "Name the certificate of the key in the definition: kernel.module_certificate.",
        ),
        (_, Some(key)) => {
            let text = fs::read(key).with_context(|| format!("reading {}", key.display()))?;
            let has = |words: &str| text.windows(words.len()).any(|part| part == words.as_bytes());
            if has("ENCRYPTED") {
                let hint = "Give the key without a passphrase, from a place that ends with the build, such as /dev/shm.";
                return refused(format!("{} is encrypted", key.display()), hint);
            }
            if !has("PRIVATE KEY-----") {
                let hint = "Name the private key of kernel.module_certificate, in PEM.";
                return refused(format!("{} is not a private key in PEM", key.display()), hint);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::kernel::module;

    struct Bench(tempfile::TempDir);

    impl Bench {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        }

        /// What is said of a definition with this base and these keys.
        fn check(&self, base: &str, more: &str) -> Result<Vec<String>, String> {
            let text = format!("{{id: a, name: A, version: '1', base: {base}, {more}}}");
            let file = self.file("image.yaml", text);
            let loaded = LoadedDefinition::read(&file).map_err(|error| base::failure::render(&error))?;
            check(&loaded).map_err(|error| base::failure::render(&error))
        }
    }

    const DEBIAN: &str = "{debian: {include: [linux-image-amd64]}}";

    #[test]
    fn sources_without_a_file_for_kbuild_and_directories_without_modules_are_told() {
        let bench = Bench::new();
        bench.file("acme/acme.c", "");
        let told = bench.check(DEBIAN, "extensions: [{source: acme}]").unwrap_err();
        assert!(told.contains("acme is not the source of a kernel module"), "{told}");
        bench.file("acme/Makefile", "obj-m := acme.o\n");
        assert_eq!(bench.check(DEBIAN, "extensions: [{source: acme}]").unwrap(), ["the modules of acme"]);
        let told = bench.check(DEBIAN, "extensions: [{modules: acme}]").unwrap_err();
        assert!(told.contains("acme has no kernel module"), "{told}");
    }

    #[test]
    fn ready_modules_are_compared_with_the_kernel_of_a_directory_and_say_whether_they_are_signed() {
        let bench = Bench::new();
        bench.file("root/usr/lib/modules/6.12.1-amd64/modules.dep", "");
        let own = module(&[("vermagic", "6.12.1-amd64 SMP ")]);
        bench.file("ready/acme.ko", &own);
        let base = "{directory: {path: root}}";
        assert_eq!(bench.check(base, "extensions: [{modules: ready}]").unwrap(), ["acme"]);
        bench.file("ready/acme.ko", [&own[..], b"~Module signature appended~\n"].concat());
        assert!(bench.check(base, "extensions: [{modules: ready}]").unwrap().is_empty());
        bench.file("ready/acme.ko", module(&[("vermagic", "6.1.0 SMP ")]));
        let told = bench.check(base, "extensions: [{modules: ready}]").unwrap_err();
        assert!(told.contains("the base has Linux 6.12.1-amd64"), "{told}");
        bench.file("acme/Makefile", "");
        let told = bench.check(base, "extensions: [{source: acme}]").unwrap_err();
        assert!(
            told.contains("acme needs the headers of the kernel") && told.contains("`modules`"),
            "{told}"
        );
        let told = bench.check("{debian: {include: [dash]}}", "extensions: [{dkms: a-dkms}]").unwrap_err();
        assert!(told.contains("linux-image-amd64"), "{told}");
    }

    #[test]
    fn a_definition_says_one_source_of_each_extension_and_packages_by_their_names() {
        let bench = Bench::new();
        for (extensions, told) in [
            ("[{dkms: v4l2loopback-utils}]", "is not a package of sources for DKMS"),
            ("[{dkms: a-dkms, source: b}]", "this one has dkms and source"),
            ("[{load: [a]}]", "this one has none"),
            ("[{source: nowhere}]", "there is no directory"),
            ("[{dkms: a-dkms}, {dkms: a-dkms=2}]", "a-dkms is named twice"),
            ("[{dkms: a-dkms, load: [a.ko]}]", "is not the name of a module"),
        ] {
            let text = bench.check(DEBIAN, &format!("extensions: {extensions}")).unwrap_err();
            assert!(text.contains(told), "{extensions}: {text}");
        }
    }

    #[test]
    fn a_certificate_is_read_in_both_forms_and_its_key_must_be_plain() {
        let bench = Bench::new();
        let der = [&[0x30, 0x82, 0x01, 0x0a][..], &[0xff; 20]].concat();
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            BASE64_STANDARD.encode(&der)
        );
        assert_eq!(certificate_der(&bench.file("a.pem", pem)).unwrap(), der);
        assert_eq!(certificate_der(&bench.file("a.der", &der)).unwrap(), der);
        for wrong in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(certificate_der(&bench.file("b", wrong)).is_err(), "{wrong}");
        }
        let signed = bench.check(DEBIAN, "extensions: [{dkms: a-dkms}], kernel: {module_certificate: a.pem}");
        assert!(signed.unwrap().is_empty());
        let loaded = LoadedDefinition::read(&bench.0.path().join("image.yaml")).unwrap();
        let told = |key: Option<&PathBuf>| {
            check_key(&loaded.definition, key).map_err(|error| base::failure::render(&error))
        };
        assert!(told(None).unwrap_err().contains("--module-key FILE"));
        let key = |text: &str| bench.file("key", text);
        told(Some(&key("-----BEGIN PRIVATE KEY-----\n"))).unwrap();
        assert!(
            told(Some(&key("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"))).unwrap_err().contains("is encrypted")
        );
        assert!(
            told(Some(&key("-----BEGIN CERTIFICATE-----\n"))).unwrap_err().contains("is not a private key")
        );
    }
}
