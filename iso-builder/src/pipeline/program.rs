//! Checks the programs that go into images: the `installer`, and the builder of its own container image. A wrong one would only show on machines, long after their media were
//! made: a dynamic program does not start in a base with other libraries, and one of another version does not
//! understand the medium. So its ELF header and notes are checked before anything is built; it is not run.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use model::architecture::Architecture;

use crate::elf::{self, ElfProgram};
use crate::files::KnownFiles;

/// The version of this builder; what goes into images has to have the same.
const BUILDER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Which installer goes into an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallerChoice {
    /// One for each architecture.
    Named(Vec<PathBuf>),
    /// The one beside this builder that is for the architecture of the image. `make` puts it there.
    BesideBuilder,
}

impl InstallerChoice {
    #[must_use]
    pub fn of(named: Vec<PathBuf>) -> Self {
        if named.is_empty() { Self::BesideBuilder } else { Self::Named(named) }
    }

    /// The installer for images of this architecture. One that is named alone is not looked at: [`check`] says what is wrong with it.
    ///
    /// # Errors
    /// [`Class::Invalid`] if several are named, and not exactly one of them is for this architecture.
    pub(crate) fn path(&self, architecture: Architecture) -> Result<PathBuf> {
        match self {
            Self::Named(paths) => match &paths[..] {
                [only] => Ok(only.clone()),
                several => fitting(several, architecture),
            },
            Self::BesideBuilder => {
                let program = std::env::current_exe().context("finding this program's own place")?;
                Ok(program.with_file_name(name(INSTALLER.name, architecture)))
            }
        }
    }
}

/// The one of several installers that is for `architecture`.
fn fitting(paths: &[PathBuf], architecture: Architecture) -> Result<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if self::architecture(path)? == architecture {
            found.push(path);
        }
    }
    let what = match found[..] {
        [one] => return Ok(one.clone()),
        [] => format!("none of the named installers is for {architecture}"),
        [one, other, ..] => {
            format!(
                "two of the named installers are for {architecture}: {}, {}",
                one.display(),
                other.display()
            )
        }
    };
    let hint = "Give --installer once for each architecture, or leave it out: `make binaries` puts installers beside the builder.";
    Err(Failure::new(Class::Invalid, what).hint(hint).into())
}

/// The name of a program for `architecture` beside a builder.
fn name(program: &str, architecture: Architecture) -> String {
    match architecture == Architecture::of_this_program() {
        true => program.to_owned(),
        false => format!("{program}-{architecture}"),
    }
}

#[derive(Debug)]
pub(super) struct BuildInstaller {
    /// Its full path.
    pub(super) path: PathBuf,
    pub(super) sha256: Digest,
}

impl BuildInstaller {
    /// The installer at `path`, which is checked.
    pub(super) fn of(path: PathBuf, known: &KnownFiles) -> Result<Self> {
        let sha256 = known.digest_of_file(&path)?;
        Ok(Self { path, sha256 })
    }
}

/// A program that goes into images.
#[derive(Clone, Copy, Debug)]
struct ImageProgram {
    /// In its note, and in messages.
    name: &'static str,
    /// True if it has to start in images with any libraries.
    is_static: bool,
    hint: &'static str,
}

const INSTALLER: ImageProgram = ImageProgram {
    name: "installer",
    is_static: true,
    hint: "Build it with `make binaries`, for another architecture with `make binaries ARCHITECTURE=arm64`, and leave out --installer; \
           or name another program with it: --installer FILE, once for each architecture.",
};

const BUILDER: ImageProgram = ImageProgram {
    name: "iso-builder",
    is_static: false,
    hint: "Build it with `make builder-image ARCHITECTURE=arm64`, which makes the image too, or name it: --builder FILE.",
};

/// The builder for a container image of this architecture: `named`, or else this program, or the one for it that lies beside this program.
///
/// # Errors
/// [`Class::Invalid`] if it is not there, or is not a builder for this architecture and of this version.
pub(super) fn builder(named: Option<&Path>, architecture: Architecture) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program's own place")?;
    let path = match named {
        Some(named) => named.to_owned(),
        None if architecture == Architecture::of_this_program() => own,
        None => own.with_file_name(name(BUILDER.name, architecture)),
    };
    checked(&path, architecture, BUILDER)
}

fn refused(path: &Path, program: ImageProgram) -> Failure {
    let what = format!("checking the {} {}", program.name, path.display());
    Failure::new(Class::Invalid, what).hint(program.hint)
}

/// The header of the program at `path`.
///
/// # Errors
/// [`Class::Invalid`] if it is not there, or is no program.
fn header(path: &Path, program: ImageProgram) -> Result<ElfProgram> {
    let file = File::open(path).map_err(|error| refused(path, program).because(error))?;
    let found = elf::read(&file).with_context(|| format!("reading {}", path.display()))?;
    Ok(found.ok_or_else(|| refused(path, program).because(anyhow!("it is not a 64-bit ELF program")))?)
}

/// The architecture of the installer at `path`.
///
/// # Errors
/// [`Class::Invalid`] if it is not there, or no program of an architecture that media are made for.
pub(super) fn architecture(path: &Path) -> Result<Architecture> {
    let why = || anyhow!("it is not a program of an architecture that releases are made for");
    let header = header(path, INSTALLER)?;
    Ok(header.architecture.ok_or_else(|| refused(path, INSTALLER).because(why()))?)
}

/// The full path of the installer at `path`, if it is one for images of this architecture.
///
/// # Errors
/// [`Class::Invalid`] if it is not there, or is not a static program of this architecture and of this builder's version.
pub(super) fn check(path: &Path, architecture: Architecture) -> Result<PathBuf> {
    checked(path, architecture, INSTALLER)
}

fn checked(path: &Path, architecture: Architecture, wanted: ImageProgram) -> Result<PathBuf> {
    let refused = |why: String| refused(path, wanted).because(anyhow!("{why}"));
    let program = header(path, wanted)?;
    if program.architecture != Some(architecture) {
        let found = program.architecture.map_or_else(String::new, |found| format!(", but for {found}"));
        let why = format!("it is not for {architecture}, the architecture of the image{found}");
        return Err(refused(why).into());
    }
    if wanted.is_static && !program.is_static {
        let why = "it is not statically linked, so it would not start in an image with other libraries";
        return Err(refused(why.into()).into());
    }
    let package = program.package.filter(|package| package.name == wanted.name);
    let package = package.ok_or_else(|| refused("it has no note with its name and version".into()))?;
    if package.version != BUILDER_VERSION {
        let version = package.version.replace(|c: char| !c.is_ascii_graphic(), "?");
        return Err(refused(format!(
            "its version is {version}, and that of this builder is {BUILDER_VERSION}"
        ))
        .into());
    }
    path.canonicalize().with_context(|| format!("resolving {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base::failure::class_of;

    use super::*;
    use testing::elf::{INTERPRETED, made};

    #[test]
    fn only_a_static_program_of_this_architecture_and_version_is_taken_as_installer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("installer");
        let check = || check(&path, Architecture::Amd64);
        fs::write(&path, made(62, "installer", BUILDER_VERSION, &[])).unwrap();
        assert_eq!(check().unwrap(), path.canonicalize().unwrap());
        for (bytes, told) in [
            (b"#!/bin/sh\n".to_vec(), "not a 64-bit ELF program"),
            (
                made(183, "installer", BUILDER_VERSION, &[]),
                "not for amd64, the architecture of the image, but for arm64",
            ),
            (made(62, "installer", BUILDER_VERSION, &[INTERPRETED]), "not statically linked"),
            (made(62, "busybox", BUILDER_VERSION, &[]), "has no note with its name"),
            (made(62, "installer", "0.0.9\\u001b[31m", &[]), "its version is 0.0.9?[31m, and that of this"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = check().unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{told}");
            assert!(format!("{error:#}").contains(told), "{told}: {error:#}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(class_of(&check().unwrap_err()), Class::Invalid);
        assert!(super::check(Path::new("/bin/true"), Architecture::Amd64).is_err());
    }

    #[test]
    fn a_builder_of_another_architecture_or_version_does_not_go_into_a_container() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("builder");
        fs::write(&path, made(183, "iso-builder", BUILDER_VERSION, &[INTERPRETED])).unwrap();
        assert_eq!(builder(Some(&path), Architecture::Arm64).unwrap(), path.canonicalize().unwrap());
        let told = |architecture| format!("{:#}", builder(Some(&path), architecture).unwrap_err());
        assert!(told(Architecture::Amd64).contains("but for arm64"), "{}", told(Architecture::Amd64));
        for (name, version, expected) in [
            ("installer", BUILDER_VERSION, "no note with its name"),
            ("iso-builder", "0.0.1", "its version is 0.0.1"),
        ] {
            fs::write(&path, made(183, name, version, &[INTERPRETED])).unwrap();
            assert!(told(Architecture::Arm64).contains(expected), "{}", told(Architecture::Arm64));
        }
        let other =
            Architecture::ALL.into_iter().find(|one| *one != Architecture::of_this_program()).unwrap();
        let absent = format!("{:#}", builder(None, other).unwrap_err());
        assert!(absent.contains(&format!("iso-builder-{other}")), "{absent}");
    }

    #[test]
    fn without_an_installer_named_the_one_beside_the_builder_is_taken_that_is_for_the_image() {
        let own = Architecture::of_this_program();
        for architecture in Architecture::ALL {
            let path = InstallerChoice::of(Vec::new()).path(architecture).unwrap();
            let expected =
                if architecture == own { "installer".into() } else { format!("installer-{architecture}") };
            assert_eq!(path, std::env::current_exe().unwrap().with_file_name(expected));
            let named = InstallerChoice::of(vec!["/made/installer".into()]);
            assert_eq!(named.path(architecture).unwrap(), Path::new("/made/installer"));
        }
    }

    #[test]
    fn of_several_installers_the_one_for_the_image_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, machine| {
            let path = directory.path().join(name);
            fs::write(&path, made(machine, "installer", BUILDER_VERSION, &[])).unwrap();
            path
        };
        let (x86, arm, other_arm) = (file("x86", 62), file("arm", 183), file("other-arm", 183));
        let choice =
            |paths: &[&PathBuf]| InstallerChoice::of(paths.iter().map(|&path| path.clone()).collect());
        let both = choice(&[&x86, &arm]);
        assert_eq!(both.path(Architecture::Amd64).unwrap(), x86);
        assert_eq!(both.path(Architecture::Arm64).unwrap(), arm);
        for (paths, architecture, told) in [
            ([&arm, &other_arm], Architecture::Amd64, "none of the named installers is for amd64"),
            ([&arm, &other_arm], Architecture::Arm64, "two of the named installers are for arm64"),
        ] {
            let error = choice(&paths).path(architecture).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid);
            assert!(error.to_string().contains(told), "{error:#}");
        }
        // One alone is for one architecture, and the other one is told so.
        let error = check(&choice(&[&x86]).path(Architecture::Arm64).unwrap(), Architecture::Arm64);
        let told = base::failure::render(&error.unwrap_err());
        assert!(told.contains("not for arm64") && told.contains("once for each architecture"), "{told}");
    }
}
