//! Checks of a build without the network, without privileges and without reading large files, for
//! `iso-builder check`. A mistake in one part hides none in another.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::failure::{self, Class, Failure};
use formats::oci::ImageReference;
use model::architecture::Architecture;
use model::kubernetes::KubernetesVersion;
use serde::Serialize;
use transfer::download::RetryPolicy;
use trust::Revocations;

use super::inputs::{built, shipped};
use super::program::InstallerChoice;
use super::{base_contents, base_listing, configuration, extension_inputs, host_programs, program, signing};
use crate::definition::{Base, Definition, FirmwareChoice, ImageChoice, LoadedDefinition};
use crate::extensions::ExtensionSpec;
use crate::firmware::{self, FirmwareSet, FirmwareSize};
use crate::images::PreloadSource;
use crate::images::import::{self, ImageImport};
use crate::images::preload::{self, NeededImage, PreloadPlan, PresentImage};
use crate::kubernetes::program_version;
use crate::kubernetes::texts::Artifacts;
use crate::lock::{Lock, LockRequest, LockedFile};
use crate::obtain::listed;
use crate::packages::plain_name;
use crate::wording::{counted, enumerated};
use crate::workloads;

#[derive(Clone, Debug)]
pub struct CheckOptions {
    pub definition: PathBuf,
    /// Which of its images are checked.
    pub images: ImageChoice,
    /// The `installer` executable that goes into the OS image.
    pub installer: InstallerChoice,
    /// True if a missing or outdated lock file is an error.
    pub locked: bool,
}

/// The findings about one definition.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    pub definition: PathBuf,
    pub product: String,
    pub checks: Vec<BuildCheck>,
}

/// The findings about one part of a definition.
#[derive(Clone, Debug, Serialize)]
pub struct BuildCheck {
    pub part: &'static str,
    /// Where the variants of the definition differ in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Where the architectures of the definition differ in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    pub state: CheckState,
    /// One line, or for an error its causes and hints too.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    Ok,
    /// A build here might fail, or would change the lock file.
    Warning,
    /// A build fails.
    Error,
    /// Only a build can tell.
    Unknown,
}

type Finding = (CheckState, String);

/// The variant and the architecture that tell an image from others of its definition.
type ImageName = (Option<String>, Option<Architecture>);

/// Checks a definition and everything that it refers to, for each of its variants and architectures.
///
/// # Errors
/// [`Class::Invalid`] if the definition itself is none, with all of its mistakes. Everything else is in the report.
pub fn check(options: &CheckOptions) -> Result<CheckReport> {
    let definitions = LoadedDefinition::read_each(&options.definition, &options.images)?;
    let reports = definitions.iter().map(|loaded| {
        let image = (loaded.variant.clone(), loaded.definition.own_architecture());
        Ok((image, check_one(loaded, options)?))
    });
    Ok(CheckReport::joined(reports.collect::<Result<_>>()?, &options.definition))
}

/// Checks one image of a definition.
fn check_one(loaded: &LoadedDefinition, options: &CheckOptions) -> Result<CheckReport> {
    let scratch = tempfile::tempdir().context("making a scratch directory")?;
    let definition = &loaded.definition;
    let architectures = match &definition.architectures[..] {
        [] => definition.architecture.to_string(),
        several => enumerated(several),
    };
    let product = format!("{} {} ({architectures})", definition.name, definition.version);
    let mut report =
        CheckReport { definition: loaded.file.clone(), product: product.clone(), checks: Vec::new() };
    report.add("definition", Ok(Some((CheckState::Ok, format!("{product}{}", extended(loaded))))));
    report.add("configurations", configurations(loaded, scratch.path()));
    report.add("base", base(loaded));
    report.add("firmware", Ok(firmware(loaded)));
    report.add("extensions", extensions(loaded));
    report.add("kubernetes", kubernetes(loaded));
    report.add("image lists", image_lists(loaded));
    let local = report.collect("archives and layouts", local(loaded));
    let found = report.collect("manifests and charts", workloads(loaded, scratch.path()));
    report.add("trust", trust(loaded));
    report.add("registries", loaded.registries(None, RetryPolicy::default()).map(|_| None));
    report.add("lock file", lock(loaded, options.locked, local, found));
    report.add("installer", installer(&options.installer, loaded));
    report.add("this host", Ok(Some(host(&loaded.definition))));
    Ok(report)
}

impl CheckReport {
    /// One report of those for each image. A part of which all say the same is in it once.
    fn joined(reports: Vec<(ImageName, Self)>, definition: &Path) -> Self {
        let mut whole =
            Self { definition: definition.to_owned(), product: String::new(), checks: Vec::new() };
        let mut parts: Vec<&str> = Vec::new();
        for part in reports.iter().flat_map(|(_, report)| &report.checks).map(|check| check.part) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        for part in parts {
            let found: Vec<_> = reports
                .iter()
                .map(|(image, report)| (image, report.checks.iter().find(|check| check.part == part)))
                .collect();
            let said = |check: Option<&BuildCheck>| check.map(|check| (check.state, check.message.clone()));
            let is_same = found.iter().all(|(_, check)| said(*check) == said(found[0].1));
            let count = if is_same { 1 } else { found.len() };
            whole.checks.extend(found.into_iter().take(count).filter_map(|(image, check)| {
                let (variant, architecture) = if is_same { (None, None) } else { image.clone() };
                Some(BuildCheck { variant, architecture, ..check?.clone() })
            }));
        }
        let mut products: Vec<_> = reports.into_iter().map(|(_, report)| report.product).collect();
        products.dedup();
        whole.product = products.join("; ");
        whole
    }

    #[must_use]
    pub fn count(&self, state: CheckState) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    /// Adds a finding; a definition need not have every part.
    fn add(&mut self, part: &'static str, found: Result<Option<Finding>>) {
        let (state, message) = match found {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(error) => (CheckState::Error, failure::render(&error)),
        };
        self.checks.push(BuildCheck { part, variant: None, architecture: None, state, message });
    }

    /// Adds a finding, and returns the result for later checks.
    fn collect<T>(&mut self, part: &'static str, found: Result<(Option<Finding>, T)>) -> Option<T> {
        let (finding, value) = match found {
            Ok((finding, value)) => (Ok(finding), Some(value)),
            Err(error) => (Err(error), None),
        };
        self.add(part, finding);
        value
    }
}

fn ok(message: impl Into<String>) -> Finding {
    (CheckState::Ok, message.into())
}

/// The definitions that a definition extends, as a clause to append; empty if there are none.
fn extended(loaded: &LoadedDefinition) -> String {
    let others: Vec<_> = loaded.extended.iter().map(|other| other.path.display().to_string()).collect();
    if others.is_empty() { String::new() } else { format!(", extends {}", others.join(", ")) }
}

fn configurations(loaded: &LoadedDefinition, scratch: &Path) -> Result<Option<Finding>> {
    configuration::payloads(loaded, scratch)?;
    let definition = &loaded.definition;
    let outputs = definition.outputs.iter().copied().collect();
    configuration::disk(loaded, &outputs)?;
    if let Some(warning) = configuration::unreachable_images(loaded, &outputs) {
        return Ok(Some((CheckState::Warning, warning)));
    }
    let named = [
        ("defaults", &definition.install_defaults),
        ("embedded", &definition.install_config),
        ("disk", &definition.disk.config),
    ];
    let told =
        named.into_iter().filter_map(|(kind, file)| Some(format!("{kind}: {}", file.as_ref()?.display())));
    let told = told.collect::<Vec<_>>();
    Ok((!told.is_empty()).then(|| ok(told.join(", "))))
}

/// Reads what the definition revokes. Which keys sign is known only by a build.
fn trust(loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let Revocations { keys, releases } = signing::revocations(loaded)?;
    let (keys, releases) = (counted(keys.len(), "key"), counted(releases.len(), "release"));
    let told = loaded.definition.trust.revoked.list.is_some();
    Ok(told.then(|| ok(format!("{keys} and {releases} are revoked"))))
}

/// Checks that the base has what a node needs: by the packages of the lock file or else by those that the definition names, and by
/// the files of a directory, an archive or a layout.
fn base(loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let shown = |path: &Path| loaded.resolve(path).display().to_string();
    Ok(Some(match &loaded.definition.base {
        Base::Debian(_) => debian(loaded)?,
        Base::Directory(base) => {
            let path = loaded.resolve(&base.path);
            if !["usr", "etc"].iter().all(|name| path.join(name).is_dir()) {
                let what = format!("{} is not a root file system", path.display());
                let why = anyhow!("usr or etc is missing");
                return Err(Failure::new(Class::Invalid, what).because(why).into());
            }
            // A directory may have parts that only root can read; a build reads them as root of a namespace.
            match base_contents::paths_below(&path) {
                Ok(paths) => {
                    base_contents::missing(loaded, |contents| contents.lacks_files(&paths))?
                        .refuse("the base lacks")?;
                    ok(format!("the directory {}", path.display()))
                }
                Err(_) => (CheckState::Unknown, format!("a build reads {}", path.display())),
            }
        }
        Base::Oci(base) => of_archive(loaded, base_listing::of_layout(loaded, base)?, &shown(&base.path))?,
        Base::Archive(base) => {
            of_archive(loaded, base_listing::of_archive(&loaded.resolve(&base.path))?, &shown(&base.path))?
        }
    }))
}

/// Checks that a base with the files of an archive or layout, if they could be listed, has what a node needs.
fn of_archive(loaded: &LoadedDefinition, paths: Option<BTreeSet<PathBuf>>, shown: &str) -> Result<Finding> {
    let Some(paths) = paths else {
        return Ok((CheckState::Unknown, format!("a build reads {shown}, which is compressed")));
    };
    base_contents::missing(loaded, |contents| contents.lacks_files(&paths))?.refuse("the base lacks")?;
    Ok(ok(shown.to_owned()))
}

fn debian(loaded: &LoadedDefinition) -> Result<Finding> {
    let source = &loaded.definition.packages;
    let lock = Lock::read(&Lock::path_of(loaded)).ok().flatten();
    let request = LockRequest::of(loaded, &[]);
    let lock = lock
        .filter(|lock| lock.request.architecture == request.architecture)
        .filter(|lock| (&lock.request.source, &lock.request.wanted) == (&request.source, &request.wanted));
    let packages = loaded.definition.base_packages();
    let (missing, known) = match &lock {
        Some(lock) => (base_contents::missing_packages(loaded, lock)?, "the packages of the lock file"),
        None => {
            let missing = base_contents::missing(loaded, |contents| contents.lacks_names(&packages))?;
            (missing, "the packages that the definition names")
        }
    };
    if source.mirrors.is_empty() {
        missing.refuse(&format!("{known} lack"))?;
    } else if !missing.is_empty() {
        let packages = missing.packages().join(", ");
        let told = format!(
            "{known} lack {packages}, which a node needs; only a build can tell whether the definition's mirrors have \
             the same under other names"
        );
        return Ok((CheckState::Warning, told));
    }
    let (suite, count) = (&source.suite, packages.len());
    Ok(ok(format!("Debian {suite} with {count} packages and what they depend on")))
}

/// What the firmware of a base of Debian packages takes, and what the other choices would.
fn firmware(loaded: &LoadedDefinition) -> Option<Finding> {
    let definition = &loaded.definition;
    let Base::Debian(base) = &definition.base else { return None };
    let suite = &definition.packages.suite;
    let told = |word: &str, packages: &[String]| {
        let names = packages.iter().map(|package| plain_name(package));
        let sizes: Vec<_> = names.map(|name| firmware::size(suite, name)).collect();
        let unknown = sizes.iter().filter(|size| size.is_none()).count();
        let FirmwareSize { download, installed } = sizes.into_iter().flatten().sum();
        let beside = match unknown {
            0 => String::new(),
            count => format!(" beside {} of unknown size", counted(count, "package")),
        };
        match packages.len() {
            0 => format!("{word}: nothing"),
            count => format!(
                "{word}: {}, about {download} to download and {installed} installed{beside}",
                counted(count, "package")
            ),
        }
    };
    let chosen = told(&base.firmware.words(), &base.firmware.packages(suite, definition.architecture));
    let others = FirmwareSet::EVERY.map(|set| {
        let packages = FirmwareChoice::from(set).packages(suite, definition.architecture);
        (FirmwareChoice::from(set), packages)
    });
    let others = others.into_iter().chain([(FirmwareChoice::none(), Vec::new())]);
    let others = others.filter(|(choice, _)| *choice != base.firmware);
    let others: Vec<_> = others.map(|(choice, packages)| told(&choice.words(), &packages)).collect();
    Some(ok(format!("{chosen} ({})", others.join("; "))))
}

/// Checks the files of extensions. Whether mirrors have the packages, and whether sources compile, only a build can tell.
fn extensions(loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let extensions = &loaded.definition.extensions;
    let unsigned = extension_inputs::check(loaded)?;
    if extensions.is_empty() {
        return Ok(None);
    }
    let names: Vec<_> = extensions.iter().map(ExtensionSpec::name).collect();
    Ok(Some(match extension_inputs::warning(&unsigned) {
        Some(warning) => (CheckState::Warning, warning),
        None => ok(names.join(", ")),
    }))
}

/// Checks that a directory has the files of the release, and that its programs are of that release. Digests are computed by a build.
fn kubernetes(loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let Some(spec) = &loaded.definition.kubernetes else { return Ok(None) };
    let release = format!("{} {}", spec.distribution.name(), spec.version);
    let names = spec.files(loaded.definition.architecture);
    Ok(Some(match spec.artifacts(loaded.definition.architecture) {
        Artifacts::Url(_) => {
            (CheckState::Unknown, format!("a build downloads {} files of {release}", names.len()))
        }
        Artifacts::Directory(path) => {
            let directory = loaded.resolve(&path);
            listed(loaded, spec, &names, &directory)?;
            for name in spec.versioned_programs(loaded.definition.architecture) {
                check_program(&directory.join(name), &spec.version)?;
            }
            ok(format!("{release}: {} files in {}", names.len(), path.display()))
        }
    }))
}

/// Checks that a program, or the one in an archive of an installation, is of the release.
fn check_program(file: &Path, version: &KubernetesVersion) -> Result<()> {
    let reading = || format!("reading {}", file.display());
    let program = File::open(file).with_context(reading)?;
    if file.extension().is_none_or(|extension| extension != "gz") {
        return program_version::check(program, file, version);
    }
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(program));
    for entry in archive.entries().with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.path().with_context(reading)?.ends_with("bin/rke2") {
            return program_version::check(entry, file, version);
        }
    }
    let what = format!("{} is not RKE2's archive of an installation", file.display());
    Err(Failure::new(Class::Invalid, what).because(anyhow!("it has no bin/rke2")).into())
}

/// The images of archives and layouts; none if an archive tells them only when it is read as a whole.
fn local(loaded: &LoadedDefinition) -> Result<(Option<Finding>, Option<Vec<PresentImage>>)> {
    let (mut sources, mut unread, mut present) = (0, Vec::new(), Vec::new());
    for entry in &loaded.definition.images.preload {
        let PreloadSource::Local(local) = &entry.source else { continue };
        sources += 1;
        let path = loaded.resolve(&local.path);
        let import = ImageImport {
            path: &path,
            references: &local.references,
            checksums: None,
            architecture: loaded.definition.architecture.debian(),
            roles: &[],
        };
        match import::names(&import)? {
            Some(names) => present.extend(
                names.into_iter().map(|name| PresentImage { names: vec![name], roles: entry.roles.clone() }),
            ),
            None => unread.push(path.display().to_string()),
        }
    }
    if sources == 0 {
        return Ok((None, Some(present)));
    }
    if unread.is_empty() {
        return Ok((Some(ok(format!("{} images in {sources}", present.len()))), Some(present)));
    }
    let told = format!("a build reads {}, which is compressed", unread.join(", "));
    Ok((Some((CheckState::Unknown, told)), None))
}

fn image_lists(loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let images = &loaded.definition.images;
    let lists = images.preload.iter().filter(|entry| matches!(entry.source, PreloadSource::List(_))).count();
    let named = preload::named(images, &|path| loaded.resolve(path))?.len();
    Ok((lists > 0).then(|| ok(format!("{named} images of registries, {lists} lists among their sources"))))
}

/// The images that manifests and charts run, with those that every node runs.
fn workloads(loaded: &LoadedDefinition, scratch: &Path) -> Result<(Option<Finding>, Vec<NeededImage>)> {
    let (_, found) = shipped(loaded, scratch)?;
    let definition = &loaded.definition;
    let (manifests, charts) = (definition.manifests.len(), definition.charts.len());
    let included = workloads::included(&found).into_iter();
    let needed: Vec<_> = included.map(|(reference, roles)| NeededImage { reference, roles }).collect();
    let told = format!("{manifests} manifests and {charts} charts, which run {} images", found.len());
    Ok(((manifests + charts > 0).then(|| ok(told)), needed))
}

/// Checks that the lock file matches. A build compares the digests of local files.
fn lock(
    loaded: &LoadedDefinition,
    locked: bool,
    local: Option<Option<Vec<PresentImage>>>,
    found: Option<Vec<NeededImage>>,
) -> Result<Option<Finding>> {
    let path = Lock::path_of(loaded);
    let misfit = |why: String| {
        let what = format!("{} {why}", path.display());
        let hint = format!("Run `iso-builder lock {}`.", loaded.file.display());
        match locked {
            true => Err(Failure::new(Class::Invalid, what).hint(hint).into()),
            false => Ok(Some((CheckState::Warning, format!("{what}; a build resolves what is not locked")))),
        }
    };
    let Some(lock) = Lock::read(&path)? else { return misfit("is missing".into()) };
    let (Some(local), Some(found)) = (local, found) else {
        return Ok(Some((CheckState::Unknown, "the inputs of the definition are unknown".into())));
    };
    let mut present: Vec<_> = local.iter().flatten().cloned().collect();
    present.extend(built(loaded));
    let mut needed = preload::named(&loaded.definition.images, &|path| loaded.resolve(path))?;
    needed.extend(found);
    let request = LockRequest::of(loaded, &PreloadPlan::new(&present, &needed).pulled);
    if request.architecture != lock.request.architecture {
        return misfit(format!("is for {}, not for {}", lock.request.architecture, request.architecture));
    }
    if (&request.source, &request.wanted, &request.base)
        != (&lock.request.source, &lock.request.wanted, &lock.request.base)
    {
        return misfit("is for other packages or another base".into());
    }
    if let Some(spec) = &loaded.definition.kubernetes {
        let names = spec.files(loaded.definition.architecture);
        if lock
            .kubernetes
            .as_ref()
            .is_none_or(|release| !release.fits(spec, loaded.definition.architecture, &names))
        {
            return misfit(format!("does not lock {} {}", spec.distribution.name(), spec.version));
        }
    }
    if local.is_some() {
        let missing: Vec<_> =
            request.images.iter().filter(|image| !lock.request.images.contains(image)).collect();
        if !missing.is_empty() {
            return misfit(format!("does not lock {}", listing(&missing)));
        }
    }
    for entry in &loaded.definition.images.preload {
        if let PreloadSource::Local(local) = &entry.source
            && !lock.files.iter().any(|file| file.path == local.path)
        {
            return misfit(format!("does not lock {}", local.path.display()));
        }
    }
    for path in loaded.definition.local_paths() {
        if !lock.files.iter().any(|file| file.path == *path) {
            return misfit(format!("does not lock {}", path.display()));
        }
    }
    for text in LockedFile::extended_by(loaded) {
        if !lock.files.contains(&text) {
            return misfit(format!("does not lock {} as it is now", text.path.display()));
        }
    }
    let (packages, images) = (lock.packages.len(), lock.images.len());
    Ok(Some(ok(format!("{packages} packages and {images} images of registries"))))
}

fn listing(images: &[&ImageReference]) -> String {
    images.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A missing installer may exist on the host that builds the media; a wrong one is always an error.
fn installer(choice: &InstallerChoice, loaded: &LoadedDefinition) -> Result<Option<Finding>> {
    let architecture = loaded.definition.architecture;
    let path = choice.path(architecture)?;
    if !path.exists() {
        let told = format!("there is no {}, which a build needs; `make binaries` builds it", path.display());
        return Ok(Some((CheckState::Warning, told)));
    }
    program::check(&path, architecture)?;
    Ok(Some(ok(path.display().to_string())))
}

fn host(definition: &Definition) -> Finding {
    let disks = definition.outputs.iter().copied().collect();
    match host_programs::check(definition.architecture).and_then(|()| host_programs::check_disks(&disks)) {
        Ok(()) => ok("it has the programs that a build runs"),
        Err(error) => (CheckState::Warning, failure::render(&error).trim_start_matches("error: ").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base::digest::Digest;

    use super::*;
    use crate::product::requirements::whole_base;

    /// A directory with a definition that has every part, and nothing that is wrong.
    fn whole() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("root/usr/x", "");
        file("root/etc/x", "");
        file("defaults.yaml", "os: {ntp_servers: [ntp.example.org]}\n");
        file(
            "pod.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'a.b/c:1'}]}}",
        );
        let digest = Digest::of(b"manifest").oci();
        let manifest = "application/vnd.oci.image.manifest.v1+json";
        let name = r#"{"io.containerd.image.name": "a.b/c:1"}"#;
        file(
            "layout/index.json",
            &format!(
                r#"{{"schemaVersion": 2, "manifests": [{{"mediaType": "{manifest}", "digest": "{digest}", "size": 8, "annotations": {name}}}]}}"#
            ),
        );
        let text = "{id: a, name: A, version: '1', base: {directory: {path: root}}, images: {preload: [{layout: layout}]}}";
        for path in whole_base(&serde_saphyr::from_str(text).unwrap()) {
            file(&format!("root/{}", path.display()), "");
        }
        file(
            "image.yaml",
            "{id: a, name: A, version: '1', base: {directory: {path: root}}, install_defaults: defaults.yaml,\n\
            manifests: [{path: pod.yaml}], images: {preload: [{layout: layout}]}}\n",
        );
        directory
    }

    fn checked(directory: &Path, locked: bool) -> CheckReport {
        let installer = InstallerChoice::Named(vec![directory.join("installer")]);
        let definition = directory.join("image.yaml");
        check(&CheckOptions { definition, images: ImageChoice::default(), installer, locked }).unwrap()
    }

    fn state(report: &CheckReport, part: &str) -> (CheckState, String) {
        let found = report.checks.iter().find(|check| check.part == part).unwrap();
        (found.state, found.message.clone())
    }

    #[test]
    fn a_base_of_any_form_is_told_everything_that_it_lacks_at_once() {
        let directory = whole();
        let root = directory.path().join("root");
        let lacking = ["usr/lib/shim/shimx64.efi.signed.latest", "usr/bin/dbus-broker-launch"];
        for path in lacking {
            fs::remove_file(root.join(path)).unwrap();
        }
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_dir_all(".", &root).unwrap();
        fs::write(directory.path().join("base.tar"), archive.into_inner().unwrap()).unwrap();
        for base in ["{directory: {path: root}}", "{archive: {path: base.tar}}"] {
            let text = format!("{{id: a, name: A, version: '1', base: {base}}}");
            fs::write(directory.path().join("image.yaml"), text).unwrap();
            let (found, message) = state(&checked(directory.path(), false), "base");
            assert!(found == CheckState::Error && message.contains("dbus, shim-signed"), "{message}");
        }
    }

    #[test]
    fn packages_that_a_definition_does_not_name_are_told_before_there_is_a_lock_file() {
        let directory = tempfile::tempdir().unwrap();
        let base = |mirrors: &str| {
            let text = format!(
                "{{id: a, name: A, version: '1', packages: {{mirrors: [{mirrors}]}}, \
                 base: {{debian: {{include: [linux-image-amd64, dracut, dracut-live, dracut-network, systemd-sysv]}}}}}}"
            );
            fs::write(directory.path().join("image.yaml"), text).unwrap();
            state(&checked(directory.path(), false), "base")
        };
        let (found, message) = base("");
        assert_eq!(found, CheckState::Error);
        for package in ["shim-signed", "grub-efi-amd64-signed", "grub-pc-bin", "mdadm", "network-manager"] {
            assert!(message.contains(package), "{package}: {message}");
        }
        assert!(!message.contains("containerd"), "without images: {message}");
        assert_eq!(base("deb http://mirror.example.org trixie main").0, CheckState::Warning);
    }

    #[test]
    fn the_size_of_each_choice_of_firmware_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let message = |firmware: &str| {
            let text =
                format!("{{id: a, name: A, version: '1', base: {{debian: {{include: [dash]{firmware}}}}}}}");
            fs::write(directory.path().join("image.yaml"), text).unwrap();
            state(&checked(directory.path(), false), "firmware").1
        };
        let servers = message("");
        assert!(servers.starts_with("servers: 13 packages, about 27."), "{servers}");
        assert!(servers.contains("(all: 3") && servers.ends_with("; none: nothing)"), "{servers}");
        let none = message(", firmware: none");
        assert!(
            none.starts_with("none: nothing (servers: 13 packages") && none.contains("; all: "),
            "{none}"
        );
        let named = message(", firmware: [firmware-bnx2, firmware-acme]");
        assert!(
            named.contains("firmware-acme: 2 packages") && named.contains("1 package of unknown size"),
            "{named}"
        );
        let other = whole();
        assert!(checked(other.path(), false).checks.iter().all(|check| check.part != "firmware"));
    }

    #[test]
    fn a_whole_definition_passes_with_the_lock_and_the_installer_that_only_a_build_needs_told() {
        let directory = whole();
        let report = checked(directory.path(), false);
        assert_eq!(report.count(CheckState::Error), 0, "{report:?}");
        for part in ["definition", "configurations", "base", "archives and layouts", "manifests and charts"] {
            assert_eq!(state(&report, part).0, CheckState::Ok, "{report:?}");
        }
        let (found, message) = state(&report, "lock file");
        assert!(found == CheckState::Warning && message.contains("image.yaml.lock is missing"), "{message}");
        assert_eq!(state(&report, "installer").0, CheckState::Warning);
        assert!(!directory.path().join("image.yaml.lock").exists());
        let report = checked(directory.path(), true);
        let (found, message) = state(&report, "lock file");
        assert!(found == CheckState::Error && message.contains("next: Run `iso-builder lock "), "{message}");
    }

    #[test]
    fn a_mistake_in_one_part_hides_none_in_another() {
        let directory = whole();
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        fs::remove_dir_all(directory.path().join("root/etc")).unwrap();
        file("defaults.yaml", "os: {ntp_serverss: [ntp.example.org]}\n");
        file(
            "pod.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'A b'}]}}",
        );
        file("layout/index.json", "{}");
        file("list", "- a.b/c:1\n");
        let definition = fs::read_to_string(directory.path().join("image.yaml")).unwrap();
        file("image.yaml", &definition.replace("preload: [", "preload: [{list: list}, "));
        file("installer", "#!/bin/sh\n");
        let report = checked(directory.path(), false);
        for (part, told) in [
            ("base", "usr or etc is missing"),
            ("configurations", "ntp_servers"),
            ("manifests and charts", "A b"),
            ("archives and layouts", "index.json"),
            ("image lists", "list:1: "),
            ("installer", "not a 64-bit ELF program"),
        ] {
            let (found, message) = state(&report, part);
            assert!(found == CheckState::Error && message.contains(told), "{part}: {message}");
        }
    }

    #[test]
    fn parts_in_which_architectures_differ_say_for_which_they_are() {
        let directory = whole();
        let definition = directory.path().join("image.yaml");
        let text = fs::read_to_string(&definition).unwrap();
        let both = text.replace("{id: a,", "{id: a, architectures: [amd64, arm64],");
        fs::write(&definition, both).unwrap();
        let report = checked(directory.path(), false);
        assert!(report.product.ends_with("(amd64 and arm64)"), "{}", report.product);
        let of = |part: &str| report.checks.iter().filter(|check| check.part == part).collect::<Vec<_>>();
        let [definition] = of("definition")[..] else { panic!("{report:?}") };
        assert_eq!(definition.architecture, None);
        let locks = of("lock file");
        assert_eq!(locks.len(), 2, "{report:?}");
        for (check, architecture) in locks.iter().zip(Architecture::ALL) {
            assert_eq!(check.architecture, Some(architecture));
            assert!(
                check.message.contains(&format!("image.yaml.{architecture}.lock is missing")),
                "{check:?}"
            );
        }
    }

    #[test]
    fn a_lock_that_fits_is_told_from_one_of_another_definition() {
        let directory = whole();
        let definition = directory.path().join("image.yaml");
        let text = fs::read_to_string(&definition).unwrap();
        let loaded = LoadedDefinition::read(&definition).unwrap();
        let files = vec![crate::lock::LockedFile { path: "layout".into(), sha256: Digest::of(b"") }];
        let request = LockRequest::of(&loaded, &[]);
        let lock = Lock {
            format: crate::lock::LOCK_FORMAT,
            epoch: None,
            request,
            packages: Vec::new(),
            base: None,
            images: Vec::new(),
            kubernetes: None,
            files,
        };
        let whole = lock;
        assert_eq!(checked_lock(directory.path(), &whole).0, CheckState::Ok);
        fs::write(&definition, text.replace("preload: [", "preload: [{image: 'a.b/d:1'}, ")).unwrap();
        let told = checked_lock(directory.path(), &whole);
        assert!(told.0 == CheckState::Warning && told.1.contains("does not lock a.b/d:1"), "{told:?}");
        fs::write(&definition, text.replace("path: root", "path: ./root")).unwrap();
        assert!(checked_lock(directory.path(), &whole).1.contains("another base"));
    }

    fn checked_lock(directory: &Path, lock: &Lock) -> (CheckState, String) {
        lock.write(&Lock::path(&directory.join("image.yaml"), &[])).unwrap();
        state(&checked(directory, false), "lock file")
    }

    #[test]
    fn a_definition_with_mistakes_is_refused_as_a_whole() {
        let directory = whole();
        fs::write(directory.path().join("image.yaml"), "id: a\n").unwrap();
        let installer = InstallerChoice::Named(vec![directory.path().join("installer")]);
        let options = CheckOptions {
            definition: directory.path().join("image.yaml"),
            images: ImageChoice::default(),
            installer,
            locked: false,
        };
        assert_eq!(failure::class_of(&check(&options).unwrap_err()), Class::Invalid);
    }
}
