//! A container image of this builder: the Debian packages of a definition, and above them the builder, the installer and the ordinary
//! user who builds.
//!
//! The packages are installed as those of a base are, and become one layer; so another builder on the same packages is a small layer
//! more. The image asks for no privileges: whoever runs it has only to allow user namespaces (`docs/how-to/ci.md`).

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Failure};
use base::progress::Progress;
use formats::oci::ImageReference;
use medium::build_output::SBOM;
use serde_json::json;
use tar::{EntryType, Header};

use super::base_system::BaseSystem;
use super::context::Build;
use super::host_programs::{self, HOST_PROGRAMS, MAPPING_PROGRAMS};
use super::image_outputs::{LIST_OUTPUT, STORE_OUTPUT, stored};
use super::image_report::ImageReport;
use super::options::InputOptions;
use super::program::{self, InstallerChoice};
use crate::cache::{StepKey, StepOutputs};
use crate::definition::{Base, Definition, DiskSpec, FirmwareChoice, LoadedDefinition, OutputKind};
use crate::files::{digest_of_path, link_or_copy};
use crate::images::Store;
use crate::images::contents::LayerContents;
use crate::images::image::{self, ImageProcess};
use crate::images::layer;
use crate::lock::Lock;
use crate::sbom::{self, LayerReader, SbomProduct, TreePackages};

/// The user of the image, with the same number as group.
const USER: &str = "builder";
const USER_ID: u32 = 1000;
const HOME: &str = "home/builder";
/// Subordinate ids (subuid(5)). Those of root are all of a container that has 65536, as in a user namespace of the runtime; root has
/// the first line, because `unshare` of util-linux 2.41 takes that for root whatever name it has.
const SUBORDINATE_IDS: &str = "root:1:65535\nbuilder:100000:65536\n";
/// `CAP_SETGID` and `CAP_SETUID`, for the programs that map ids. As set-user-ID programs, as Debian has them, they lack in a container
/// the capability that makes root the owner of someone else's namespace.
const GRANTS: [(&str, u32); 2] = [("usr/bin/newgidmap", 6), ("usr/bin/newuidmap", 7)];
/// Where programs are in an image, below its root.
const PROGRAM_DIRECTORIES: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "sbin"];
const MAX_ACCOUNTS_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct BuilderImageOptions {
    pub definition: PathBuf,
    pub inputs: InputOptions,
    /// The directory for the OCI image layout. The bill of materials is beside it.
    pub output: PathBuf,
    /// The name of the image; `localhost/ID:VERSION` of the definition unless given.
    pub name: Option<ImageReference>,
    /// The builder that goes into the image: without it this program, or the one for the image's architecture beside it.
    pub builder: Option<PathBuf>,
    /// The `installer` executable that the builder puts into OS images.
    pub installer: InstallerChoice,
}

/// Makes the image and writes it as an OCI image layout.
pub fn builder_image(options: &BuilderImageOptions, progress: &Progress) -> Result<ImageReport> {
    let loaded = LoadedDefinition::read_one(&options.definition, &options.inputs.images)?;
    check_definition(&loaded)?;
    let architecture = loaded.definition.architecture;
    let installer = program::check(&options.installer.path(architecture)?, architecture)?;
    let builder = program::builder(options.builder.as_deref(), architecture)?;
    host_programs::check(architecture)?;
    let cache = options.inputs.cache.open(progress)?;
    let build = Build::begin(loaded, &options.inputs, cache, &|_| Ok(()), progress)?;
    let definition = &build.inputs.loaded.definition;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => format!("localhost/{}:{}", definition.id, definition.version)
            .parse()
            .context("naming the image after the definition")?,
    };
    check_libraries(&builder, &build.lock)?;
    let base = build.base()?;
    let made = build.container(&name, &base, &builder, &installer)?;
    let images = stored(&made)?;
    let [image] = images.as_slice() else { return Err(anyhow!("the step made {} images", images.len())) };
    let (from, to) = (Store::at(&made.path(STORE_OUTPUT)?), Store::create(&options.output)?);
    for blob in image.blobs() {
        to.take(blob, &from.blob_path(blob.digest))?;
    }
    to.finish(&images)?;
    let sbom = beside(&options.output);
    link_or_copy(&made.path(SBOM)?, &sbom)?;
    Ok(ImageReport { sbom: Some(sbom), ..ImageReport::of(&name, image, &options.output) })
}

/// The bill of materials of a layout: a layout has no place for it.
fn beside(layout: &Path) -> PathBuf {
    let name = layout.file_name().unwrap_or_default().to_string_lossy();
    layout.with_file_name(format!("{name}.spdx.json"))
}

/// Refuses keys of media in a definition of a builder: they would have no effect on the image.
fn check_definition(loaded: &LoadedDefinition) -> Result<()> {
    let Definition { base, overlays, kernel, extensions, images, kubernetes, manifests, charts, .. } =
        &loaded.definition;
    let stray = [
        ("base", !matches!(base, Base::Debian(_))),
        // `lock` does not know what the definition is for, so it cannot be left out silently.
        ("firmware", matches!(base, Base::Debian(base) if base.firmware != FirmwareChoice::none())),
        ("overlays", overlays != &Default::default()),
        ("kernel", kernel != &Default::default()),
        ("extensions", !extensions.is_empty()),
        ("images", !images.preload.is_empty()),
        ("kubernetes", kubernetes.is_some()),
        ("manifests", !manifests.is_empty()),
        ("charts", !charts.is_empty()),
        ("install_config", loaded.definition.install_config.is_some()),
        ("install_defaults", loaded.definition.install_defaults.is_some()),
        ("outputs", loaded.definition.outputs != OutputKind::MEDIA),
        ("disk", loaded.definition.disk != DiskSpec::default()),
    ];
    let Some((key, _)) = stray.into_iter().find(|(_, is_there)| *is_there) else { return Ok(()) };
    let what = format!("{} does not define a container image of the builder", loaded.file.display());
    let why = match key {
        "base" => anyhow!("its base is not made of Debian packages"),
        "firmware" => anyhow!(
            "its base has firmware, and a container has no devices of its own: it needs `firmware: none`"
        ),
        key => anyhow!("it has the key {key}, which is for media"),
    };
    let hint = "Take configs/builder/image.yaml, or a copy of it with further packages.";
    Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into())
}

/// Fails if the builder was linked with a newer C library than the image has.
fn check_libraries(builder: &Path, lock: &Lock) -> Result<()> {
    let bytes = fs::read(builder).with_context(|| format!("reading {}", builder.display()))?;
    let there = lock.packages.iter().find_map(|package| minor(package.file.strip_prefix("libc6_2.")?));
    match (needed_minor(&bytes), there) {
        (Some(needed), Some(there)) if needed > there => {
            let what = format!("{} would not start in the image", builder.display());
            let why =
                anyhow!("it needs glibc 2.{needed}, and Debian {} has 2.{there}", lock.request.source.suite);
            let hint = "Build it on that Debian release or an older one, or name a newer `packages.suite`.";
            Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into())
        }
        _ => Ok(()),
    }
}

/// The highest version 2.x of glibc whose symbols a program asks for by name.
fn needed_minor(program: &[u8]) -> Option<u32> {
    const VERSION: &[u8] = b"GLIBC_2.";
    let at = program.windows(VERSION.len()).enumerate().filter(|(_, window)| *window == VERSION);
    let text = |(at, _): (usize, &[u8])| {
        let digits =
            program.get(at + VERSION.len()..)?.iter().take(3).take_while(|byte| byte.is_ascii_digit());
        minor(&digits.map(|byte| char::from(*byte)).collect::<String>())
    };
    at.filter_map(text).max()
}

/// The number that a text begins with.
fn minor(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

impl Build<'_> {
    /// `store/`, `images.json` and the bill of materials.
    fn container(
        &self,
        name: &ImageReference,
        base: &BaseSystem,
        builder: &Path,
        installer: &Path,
    ) -> Result<StepOutputs> {
        let definition = &self.inputs.loaded.definition;
        let inputs = json!({
            "base": base.digest()?,
            "name": name,
            "product": [&definition.id, &definition.name, &definition.version],
            "builder": digest_of_path(builder)?,
            "installer": digest_of_path(installer)?,
        });
        self.inputs.cache.step(&StepKey::new("builder-image", 2, inputs), |out| {
            self.progress.within("builder-image", "Writing the image of the builder", || {
                let store = Store::create(&out.join(STORE_OUTPUT))?;
                let system = base.archive()?;
                let mut contents = LayerContents::scan_installed(&system)?;
                check_programs(&contents, &self.inputs.loaded.file)?;
                for (program, capability) in GRANTS {
                    contents.grant(program, capability)?;
                }
                let epoch = base.epoch;
                let lowest = layer::write(&system, &contents, &LayerContents::default(), epoch, &store)?;
                let scratch = tempfile::NamedTempFile::new_in(self.inputs.cache.scratch())
                    .context("making a scratch file")?;
                write_programs(scratch.as_file(), &Accounts::read(&system)?, builder, installer)?;
                let upper = LayerContents::scan(scratch.path())?;
                let upper = layer::write(scratch.path(), &upper, &contents, epoch, &store)?;
                let home = format!("/{HOME}");
                let process = ImageProcess {
                    name,
                    entrypoint: &["/usr/bin/iso-builder".to_owned()],
                    cmd: &["--help".to_owned()],
                    env: vec![],
                    user: USER,
                    working_dir: &home,
                    labels: vec![
                        ("org.opencontainers.image.title", &definition.name),
                        ("org.opencontainers.image.licenses", "Apache-2.0"),
                    ],
                };
                let architecture = definition.architecture.debian();
                let image = image::write_process(process, &[lowest, upper], architecture, epoch, &store)?;
                let inside = LayerReader::new(&store).image(&image)?;
                let (id, version) = (&definition.id, &definition.version);
                let product = SbomProduct { id, name: &definition.name, version };
                let document = sbom::document(&product, &TreePackages::default(), &[inside], epoch);
                fs::write(out.join(SBOM), document).context("writing the bill of materials")?;
                fs::write(out.join(LIST_OUTPUT), serde_json::to_vec(&[image])?)
                    .context("writing the list of images")
            })
        })
    }
}

/// Fails if the image lacks a program that builds run.
fn check_programs(contents: &LayerContents, definition: &Path) -> Result<()> {
    let is_there = |program: &str| {
        PROGRAM_DIRECTORIES.iter().any(|directory| contents.has(&format!("{directory}/{program}")))
    };
    let missing = HOST_PROGRAMS.iter().chain(&MAPPING_PROGRAMS).filter(|(program, _)| !is_there(program));
    let (programs, mut packages): (Vec<_>, Vec<_>) = missing.copied().unzip();
    if programs.is_empty() {
        return Ok(());
    }
    packages.dedup();
    let what = format!("the image of {} would lack {}", definition.display(), programs.join(", "));
    let hint = format!("Add to base.debian.include: {}", packages.join(", "));
    Err(Failure::new(Class::Invalid, what).hint(hint).into())
}

/// The accounts of the system below.
#[derive(Debug, Default)]
struct Accounts {
    users: String,
    groups: String,
}

impl Accounts {
    fn read(system: &Path) -> Result<Self> {
        let reading = || format!("reading the accounts in {}", system.display());
        let mut archive = tar::Archive::new(File::open(system).with_context(reading)?);
        let mut accounts = Self::default();
        for entry in archive.entries_with_seek().with_context(reading)? {
            let mut entry = entry.with_context(reading)?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            let text = match path.as_str() {
                "etc/passwd" => &mut accounts.users,
                "etc/group" => &mut accounts.groups,
                _ => continue,
            };
            entry.by_ref().take(MAX_ACCOUNTS_BYTES).read_to_string(text).with_context(reading)?;
        }
        Ok(accounts)
    }
}

/// Writes what is above the packages, as a tar file.
fn write_programs(file: &File, accounts: &Accounts, builder: &Path, installer: &Path) -> Result<()> {
    let mut tar = tar::Builder::new(file);
    let users = format!("{}{USER}:x:{USER_ID}:{USER_ID}:{USER}:/{HOME}:/bin/bash\n", accounts.users);
    let groups = format!("{}{USER}:x:{USER_ID}:\n", accounts.groups);
    for (path, text) in [
        ("etc/passwd", users.as_str()),
        ("etc/group", &groups),
        ("etc/subuid", SUBORDINATE_IDS),
        ("etc/subgid", SUBORDINATE_IDS),
    ] {
        let mut header = header(EntryType::Regular, 0o644, 0, u64::try_from(text.len())?);
        tar.append_data(&mut header, path, text.as_bytes())?;
    }
    tar.append_data(&mut header(EntryType::Directory, 0o755, USER_ID, 0), HOME, std::io::empty())?;
    for (path, program) in [("usr/bin/iso-builder", builder), ("usr/bin/installer", installer)] {
        let reading = || format!("reading {}", program.display());
        let content = File::open(program).with_context(reading)?;
        let size = content.metadata().with_context(reading)?.len();
        tar.append_data(&mut header(EntryType::Regular, 0o755, 0, size), path, content)
            .with_context(reading)?;
    }
    tar.finish().context("writing the layer of the programs")
}

fn header(kind: EntryType, mode: u32, owner: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner.into());
    header.set_gid(owner.into());
    header.set_mtime(0);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::contents::LayerContents;

    fn repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
    }

    #[test]
    fn the_definition_of_the_repository_has_the_builders_version_and_the_packages_of_its_programs() {
        let loaded = LoadedDefinition::read(&repository("configs/builder/image.yaml")).unwrap();
        check_definition(&loaded).unwrap();
        assert_eq!(loaded.definition.version, env!("CARGO_PKG_VERSION"));
        let Base::Debian(base) = &loaded.definition.base else { panic!("no packages") };
        // Essential packages are in every system.
        let essential = ["coreutils", "dpkg", "tar", "util-linux"];
        for (program, package) in HOST_PROGRAMS.iter().chain(&MAPPING_PROGRAMS) {
            let named = base.include.iter().any(|name| name == package);
            assert!(named || essential.contains(package), "{program} of {package}");
        }
    }

    #[test]
    fn what_belongs_to_media_is_refused_by_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image.yaml");
        for (more, told) in [
            ("base: {debian: {include: [dash]}}", Some("`firmware: none`")),
            ("base: {debian: {include: [dash], firmware: none}}", None),
            ("base: {directory: {path: .}}", Some("not made of Debian packages")),
            (
                "base: {debian: {include: [dash], firmware: none}}\noverlays: {rootfs: [.]}",
                Some("the key overlays"),
            ),
            (
                "base: {debian: {include: [dash], firmware: none}}\nkernel: {arguments: [quiet]}",
                Some("the key kernel"),
            ),
            (
                "base: {debian: {include: [dash], firmware: none}}\nimages: {preload: [{image: a.b/c:1}]}",
                Some("the key images"),
            ),
            (
                "base: {debian: {include: [dash], firmware: none}}\ninstall_defaults: image.yaml",
                Some("the key install_defaults"),
            ),
        ] {
            fs::write(&file, format!("id: a\nname: A\nversion: '1'\n{more}\n")).unwrap();
            let checked = check_definition(&LoadedDefinition::read(&file).unwrap());
            match told {
                None => checked.unwrap(),
                Some(told) => {
                    let error = checked.unwrap_err();
                    assert_eq!(base::failure::class_of(&error), Class::Invalid);
                    assert!(base::failure::render(&error).contains(told), "{error:#}");
                }
            }
        }
    }

    #[test]
    fn the_newest_symbols_decide_which_c_library_a_program_needs() {
        assert_eq!(needed_minor(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE"), Some(34));
        assert_eq!(needed_minor(b"static GLIBC_2."), None);
        assert_eq!(minor("41-12+deb13u1_amd64.deb"), Some(41));
    }

    #[test]
    fn the_upper_layer_adds_the_user_to_the_accounts_below_and_owns_his_home() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut below = tar::Builder::new(File::create(path("base.tar")).unwrap());
        for (name, text) in [
            ("./etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
            ("./etc/group", "root:x:0:\n"),
            ("./etc/other", "no"),
        ] {
            let mut header = header(EntryType::Regular, 0o644, 0, text.len() as u64);
            below.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        below.finish().unwrap();
        let accounts = Accounts::read(&path("base.tar")).unwrap();
        assert_eq!(accounts.groups, "root:x:0:\n");
        fs::write(path("program"), "x").unwrap();
        let upper = File::create_new(path("upper.tar")).unwrap();
        write_programs(&upper, &accounts, &path("program"), &path("program")).unwrap();
        let mut archive = tar::Archive::new(File::open(path("upper.tar")).unwrap());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (mut text, header) = (String::new(), entry.header().clone());
            entry.read_to_string(&mut text).unwrap();
            let name = entry.path().unwrap().display().to_string();
            found.push((name, header.mode().unwrap(), header.uid().unwrap(), text));
        }
        let of = |name: &str| found.iter().find(|(path, ..)| path.trim_end_matches('/') == name).unwrap();
        assert_eq!(
            of("etc/passwd").3,
            "root:x:0:0::/root:/bin/sh\nbuilder:x:1000:1000:builder:/home/builder:/bin/bash\n"
        );
        assert_eq!((of("home/builder").1, of("home/builder").2), (0o755, 1000));
        assert_eq!((of("usr/bin/iso-builder").1, of("usr/bin/iso-builder").2), (0o755, 0));
        assert!(LayerContents::scan(&path("upper.tar")).unwrap().has("usr/bin/installer"));
    }

    #[test]
    fn programs_that_the_packages_lack_are_told_with_their_packages() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("base.tar");
        let mut system = tar::Builder::new(File::create(&path).unwrap());
        let programs = HOST_PROGRAMS.iter().chain(&MAPPING_PROGRAMS).map(|(program, _)| *program);
        for program in programs.filter(|program| !["xz", "newuidmap", "newgidmap"].contains(program)) {
            let mut header = header(EntryType::Regular, 0o755, 0, 1);
            system.append_data(&mut header, format!("./usr/bin/{program}"), &b"x"[..]).unwrap();
        }
        system.finish().unwrap();
        let contents = LayerContents::scan_installed(&path).unwrap();
        let told = base::failure::render(&check_programs(&contents, Path::new("image.yaml")).unwrap_err());
        assert!(told.contains("would lack xz, newuidmap, newgidmap"), "{told}");
        assert!(told.contains("xz-utils, uidmap\n") || told.ends_with("xz-utils, uidmap"), "{told}");
    }
}
