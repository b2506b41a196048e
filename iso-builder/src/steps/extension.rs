//! The modules of one extension: compiled with DKMS or Kbuild in a tree with compiler and kernel headers, or taken as they are; signed
//! where a key is given. Nothing but the modules, and what names them, leaves the tree.
//!
//! A module carries the paths of its sources in its debugging information, its build ID and texts of warnings, so everything is built at
//! the same places of the tree, whoever builds (reproducible-builds.org, "Build path").

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result, anyhow};
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::files;
use formats::kernel_modules;
use nix::mount::{MsFlags, mount};

use super::modules;
use super::request::{ExtensionSource, ModuleFiles, ModuleSigner, StepRequest};
use super::tree::{Tree, place_file};
use crate::extensions::module::{self, BuiltExtension, BuiltModule};

/// A [`BuiltExtension`] as JSON.
pub const EXTENSION_OUTPUT: &str = "extension.json";
/// What is laid over the OS image.
pub const EXTENSION_ROOTFS: &str = "rootfs";
/// What is laid over the tree that the initrd is made from; absent unless the extension is for the initrd.
pub const EXTENSION_INITRD: &str = "initrd";

/// The modules in memory while they are compiled: the tree of the tools beside it takes twice its archive.
const BUILD_BYTES: u64 = 512 << 20;
/// The directory of DKMS's records in the tree (dkms(8)).
const DKMS: &str = "var/lib/dkms";
/// DKMS signs modules with a key that it makes at random, unless its program for that is missing.
const DKMS_CONFIGURATION: &str = "sign_file=\"/nonexistent\"\n";
/// The exit code of dkms(8) for sources that say themselves that they are not for this kernel (`BUILD_EXCLUSIVE_…`).
const DKMS_EXCLUDED: &str = "exit status: 77";
/// How many bytes of the end of a log an error has.
const LOG_END: usize = 2000;

/// Makes [`EXTENSION_OUTPUT`], [`EXTENSION_ROOTFS`] and [`EXTENSION_INITRD`].
pub(super) fn make(request: &StepRequest, source: &ExtensionSource) -> Result<()> {
    let tree = match &source.tools {
        Some(tools) => Some(Tree::unpack_in_memory(tools, &request.scratch, BUILD_BYTES)?),
        None => None,
    };
    if let Some(tree) = &tree {
        check_headers(tree, &source.kernel)?;
        tree.mount_kernel_file_systems()?;
    }
    let place = request.scratch.join("modules");
    files::make_directory(&place, 0o755)?;
    let made = match (&source.files, &tree) {
        (ModuleFiles::Dkms(package), Some(tree)) => dkms(request, source, tree, package)?,
        (ModuleFiles::Directory(directory), Some(tree)) => kbuild(request, source, tree, directory)?,
        (ModuleFiles::Ready(path), _) => module::files(path)?,
        (_, None) => return Err(anyhow!("no tools are given to build {}", source.name)),
    };
    for file in made {
        let name = file.file_name().context("naming a module")?;
        place_file(&file, &place.join(name), 0o644)?;
    }
    modules::unpack_below(&place)?;
    let files = module::files(&place)?;
    if let (Some(signer), Some(tree)) = (&source.signer, &tree) {
        sign(tree, source, signer, &files)?;
    }
    let mut built = Vec::new();
    for file in &files {
        built.push(BuiltModule::read(file, &source.kernel, request.architecture)?);
    }
    built.sort_by(|one, other| one.name.cmp(&other.name));
    let extension = BuiltExtension {
        name: source.name.clone(),
        kernel: source.kernel.clone(),
        modules: built,
        initrd: source.initrd,
        load: source.load.clone(),
    };
    module::check_names(std::slice::from_ref(&extension))?;
    lay_out(&files, &extension, &request.out.join(EXTENSION_ROOTFS))?;
    if extension.initrd {
        let overlay = request.out.join(EXTENSION_INITRD);
        lay_out(&files, &extension, &overlay)?;
        let names: Vec<_> = extension.modules.iter().map(|module| module.name.as_str()).collect();
        let text = format!("add_drivers+=\" {} \"\n", names.join(" "));
        write(&overlay.join(format!("etc/dracut.conf.d/60-{}.conf", extension.name)), &text)?;
    }
    module::write(&extension, &request.out.join(EXTENSION_OUTPUT)).context("writing what was built")
}

/// Puts the modules where modprobe looks before it takes one of the kernel itself (depmod.d(5), `updates`), and names those to load.
fn lay_out(files: &[PathBuf], extension: &BuiltExtension, overlay: &Path) -> Result<()> {
    let directory = overlay.join("usr/lib/modules").join(&extension.kernel).join("updates");
    files::make_directory(&directory, 0o755)?;
    for file in files {
        place_file(file, &directory.join(file.file_name().context("naming a module")?), 0o644)?;
    }
    if extension.load.is_empty() {
        return Ok(());
    }
    let text: String = extension.load.iter().map(|name| format!("{name}\n")).collect();
    write(&overlay.join(format!("usr/lib/modules-load.d/{}.conf", extension.name)), &text)
}

fn write(path: &Path, text: &str) -> Result<()> {
    files::make_directory(files::parent(path), 0o755)?;
    files::write_atomically(path, text.as_bytes(), 0o644)
}

/// Fails unless the tree has the headers of exactly the kernel of the image.
fn check_headers(tree: &Tree, kernel: &str) -> Result<()> {
    if headers(tree, kernel).join("Makefile").is_file() {
        return Ok(());
    }
    let found = fs::read_dir(tree.path("usr/lib/modules")).into_iter().flatten().flatten();
    let found = found.filter(|entry| entry.path().join("build").exists());
    let found: Vec<_> = found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let what = format!("there are no headers of Linux {kernel}, the kernel of the image");
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow!("the packages of headers are for: {found}"))
        .hint("Resolve kernel and headers together: make the lock file anew with `iso-builder lock DEFINITION`.")
        .into())
}

/// The host's path of the kernel's headers, which are behind a link in the tree.
fn headers(tree: &Tree, kernel: &str) -> PathBuf {
    let link = Path::new("usr/lib/modules").join(kernel).join("build");
    super::within::within(tree.root(), &link).unwrap_or_else(|_| tree.root().join(link))
}

/// A program inside the tree, with an environment that gives the same bytes each time (Documentation/kbuild/reproducible-builds.rst).
fn program(request: &StepRequest, tree: &Tree, program: &str) -> Invocation {
    let epoch = request.epoch.to_string();
    tree.chroot(program)
        .env("SOURCE_DATE_EPOCH", &epoch)
        .env("KBUILD_BUILD_TIMESTAMP", format!("@{epoch}"))
        .env("KBUILD_BUILD_USER", "builder")
        .env("KBUILD_BUILD_HOST", "localhost")
}

fn threads() -> String {
    available_parallelism().map_or(1, usize::from).to_string()
}

/// Builds the modules of a package with DKMS; returns their files.
fn dkms(request: &StepRequest, source: &ExtensionSource, tree: &Tree, package: &str) -> Result<Vec<PathBuf>> {
    files::write_atomically(&tree.path("etc/dkms/framework.conf"), DKMS_CONFIGURATION.as_bytes(), 0o644)?;
    let directory = dkms_directory(tree, package)?;
    let log = BuildLog::new(source, tree);
    let add = program(request, tree, "dkms").args(["add", &directory]);
    log.run(&add, &[])?;
    let (name, version) = added(tree, &directory)?;
    let build = program(request, tree, "dkms")
        .args(["build", "-m", &name, "-v", &version, "-k", &source.kernel])
        .args(["-j", &threads()]);
    let place = format!("{DKMS}/{name}/{version}");
    let details = [tree.path(&format!("{place}/build/make.log"))];
    log.run(&build, &details)?;
    found(source, &tree.path(&format!("{place}/{}", source.kernel)))
}

/// The directory with sources and `dkms.conf` of an installed package, as a path of the tree.
fn dkms_directory(tree: &Tree, package: &str) -> Result<String> {
    let lists = tree.path("var/lib/dpkg/info");
    let list = fs::read_to_string(lists.join(format!("{package}.list")))
        .with_context(|| format!("reading the files of the package {package}"))?;
    let conf = list.lines().find(|line| line.starts_with("/usr/src/") && line.ends_with("/dkms.conf"));
    conf.and_then(|line| line.strip_suffix("/dkms.conf")).map(str::to_owned).ok_or_else(|| {
        Failure::new(Class::Invalid, format!("{package} has no sources for DKMS"))
            .because(anyhow!("none of its files is /usr/src/NAME-VERSION/dkms.conf"))
            .hint("Name the package that has them, with the end -dkms.")
            .into()
    })
}

/// Name and version under which DKMS knows the sources in a directory.
fn added(tree: &Tree, directory: &str) -> Result<(String, String)> {
    for name in fs::read_dir(tree.path(DKMS)).into_iter().flatten().flatten() {
        for version in fs::read_dir(name.path()).into_iter().flatten().flatten() {
            if fs::read_link(version.path().join("source")).is_ok_and(|link| link == Path::new(directory)) {
                let text = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
                return Ok((text(&name), text(&version)));
            }
        }
    }
    Err(anyhow!("dkms has not added {directory}"))
}

/// Builds the modules of a directory with Kbuild; returns their files.
fn kbuild(
    request: &StepRequest,
    source: &ExtensionSource,
    tree: &Tree,
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    let place = format!("/usr/src/{}", source.name);
    tree.overlay_at(directory, Path::new(place.trim_start_matches('/')))?;
    let make = program(request, tree, "make")
        .args(["-C", &format!("/lib/modules/{}/build", source.kernel)])
        .args([format!("M={place}"), format!("-j{}", threads())])
        .arg("modules");
    BuildLog::new(source, tree).run(&make, &[])?;
    let made = found(source, &tree.path(&place))?;
    let inside = |file: &PathBuf| Some(Path::new("/").join(file.strip_prefix(tree.root()).ok()?));
    // As the modules of packages are: with debugging information they are ten times as large.
    let strip = tree.chroot("strip").arg("--strip-debug").args(made.iter().filter_map(inside));
    SystemRunner.run(&strip).context("removing the debugging information of modules")?;
    Ok(made)
}

/// The modules below a directory in which a build has ended without an error.
fn found(source: &ExtensionSource, directory: &Path) -> Result<Vec<PathBuf>> {
    module::files(directory).map_err(|_| {
        Failure::new(Class::Invalid, format!("the build of the extension {} made no module", source.name))
            .because(anyhow!("it ended without an error"))
            .hint("Check that the Makefile says `obj-m := NAME.o` for this kernel.")
            .into()
    })
}

/// Signs modules with the program of the kernel's own build (Documentation/admin-guide/module-signing.rst). One that is signed
/// already stays as it is: its maker's signature may be one that machines know.
fn sign(tree: &Tree, source: &ExtensionSource, signer: &ModuleSigner, files: &[PathBuf]) -> Result<()> {
    let place = tree.path("run/signing");
    files::make_directory(&place, 0o700)?;
    // The key is seen inside for as long as this process, and never copied.
    for (name, file) in [("key", &signer.key), ("certificate", &signer.certificate)] {
        let target = place.join(name);
        fs::write(&target, "").with_context(|| format!("making {}", target.display()))?;
        mount(Some(file), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .with_context(|| format!("binding {} into the tree", file.display()))?;
    }
    let build = format!("/lib/modules/{}/build", source.kernel);
    let hash = signature_hash(tree, &source.kernel);
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        if kernel_modules::header(&bytes).is_ok_and(|header| header.signed) {
            continue;
        }
        let inside = place.join("module.ko");
        place_file(file, &inside, 0o600)?;
        let sign = tree.chroot(&format!("{build}/scripts/sign-file")).args([
            &*hash,
            "/run/signing/key",
            "/run/signing/certificate",
            "/run/signing/module.ko",
        ]);
        SystemRunner.run(&sign).map_err(|error| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            Failure::new(
                Class::Invalid,
                format!("signing the module {name} of the extension {}", source.name),
            )
            .because(error)
            .hint("Check that --module-key and kernel.module_certificate belong together.")
        })?;
        place_file(&inside, file, 0o644)?;
    }
    Ok(())
}

/// The hash that the kernel's own modules are signed with.
fn signature_hash(tree: &Tree, kernel: &str) -> String {
    let config = fs::read_to_string(headers(tree, kernel).join(".config")).unwrap_or_default();
    let line = config.lines().find_map(|line| line.strip_prefix("CONFIG_MODULE_SIG_HASH="));
    line.map_or("sha256", |value| value.trim_matches('"')).to_owned()
}

/// The log of the programs that build an extension, outside of the tree.
struct BuildLog<'a> {
    source: &'a ExtensionSource,
    tree: &'a Tree,
}

impl<'a> BuildLog<'a> {
    fn new(source: &'a ExtensionSource, tree: &'a Tree) -> Self {
        Self { source, tree }
    }

    /// Runs a program, whose output goes to the log. `details` are logs of its own that are appended.
    ///
    /// # Errors
    /// [`Class::Invalid`] with the end of the log and its path.
    fn run(&self, invocation: &Invocation, details: &[PathBuf]) -> Result<()> {
        let output = self.tree.path("run/build.log");
        let mut shell = super::limit::long(Invocation::new("sh"))
            .args(["-c", "log=$1; shift; exec \"$@\" >\"$log\" 2>&1", "sh"])
            .arg(&output)
            .arg(&invocation.program)
            .args(invocation.args.iter().cloned());
        shell.env.clone_from(&invocation.env);
        let ended = SystemRunner.run(&shell);
        let mut text = String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
        for file in details {
            text.push_str(&String::from_utf8_lossy(&fs::read(file).unwrap_or_default()));
        }
        let Err(error) = ended else { return Ok(()) };
        let log = &self.source.log;
        files::make_directory(files::parent(log), 0o755)?;
        fs::write(log, &text).with_context(|| format!("writing {}", log.display()))?;
        // Whoever reads it is not root of the namespace.
        let _ = fs::set_permissions(log, fs::Permissions::from_mode(0o644));
        let Self { source, .. } = self;
        let advice = match format!("{error:#}").contains(DKMS_EXCLUDED) {
            true => {
                "Its dkms.conf says that it is not for this kernel: take another version, or another kernel"
            }
            false => "Take a version of the source that knows this kernel",
        };
        let what =
            format!("the modules of the extension {} do not build for Linux {}", source.name, source.kernel);
        Err(Failure::new(Class::Invalid, what)
            .because(anyhow!("{}", end_of(&text, LOG_END)))
            .hint(format!("{advice}. The whole output is in {}.", log.display()))
            .into())
    }
}

/// The last lines of a text, at most so many bytes.
fn end_of(text: &str, most: usize) -> &str {
    let text = text.trim();
    let from = text.len().saturating_sub(most);
    let Some(from) = (from..text.len()).find(|at| text.is_char_boundary(*at)) else { return text };
    match text[from..].split_once('\n') {
        Some((_, whole)) if from > 0 => whole,
        _ => &text[from..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::architecture::Architecture;
    use testing::kernel::module;

    const KERNEL: &str = "6.12.1-amd64";

    fn bench() -> (tempfile::TempDir, StepRequest) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let request = StepRequest {
            work: super::super::StepWork::Survey("/".into()),
            architecture: Architecture::Amd64,
            out: at("out"),
            scratch: at("scratch"),
            epoch: 1,
        };
        (directory, request)
    }

    fn source(directory: &Path, files: ModuleFiles) -> ExtensionSource {
        ExtensionSource {
            name: "acme".into(),
            files,
            kernel: KERNEL.into(),
            tools: None,
            initrd: true,
            load: vec!["acme-net".into()],
            signer: None,
            log: directory.join("logs/acme.log"),
        }
    }

    #[test]
    fn ready_modules_go_where_modprobe_looks_first_and_into_the_initrd_where_asked() {
        let (directory, request) = bench();
        let ready = directory.path().join("ready");
        fs::create_dir(&ready).unwrap();
        let own = module(&[("vermagic", "6.12.1-amd64 SMP "), ("license", "GPL")]);
        fs::write(ready.join("acme-net.ko.zst"), zstd::bulk::compress(&own, 1).unwrap()).unwrap();
        make(&request, &source(directory.path(), ModuleFiles::Ready(ready.clone()))).unwrap();
        let place = "usr/lib/modules/6.12.1-amd64/updates/acme-net.ko";
        for overlay in [EXTENSION_ROOTFS, EXTENSION_INITRD] {
            let overlay = request.out.join(overlay);
            assert_eq!(fs::read(overlay.join(place)).unwrap(), own);
            assert_eq!(
                fs::read_to_string(overlay.join("usr/lib/modules-load.d/acme.conf")).unwrap(),
                "acme-net\n"
            );
        }
        let dracut = request.out.join(EXTENSION_INITRD).join("etc/dracut.conf.d/60-acme.conf");
        assert_eq!(fs::read_to_string(dracut).unwrap(), "add_drivers+=\" acme_net \"\n");
        let built: BuiltExtension =
            serde_json::from_slice(&fs::read(request.out.join(EXTENSION_OUTPUT)).unwrap()).unwrap();
        assert_eq!((&*built.modules[0].name, built.modules[0].license.as_deref()), ("acme_net", Some("GPL")));
        assert!(!built.modules[0].signed && built.initrd);
    }

    #[test]
    fn a_module_for_another_kernel_ends_the_step() {
        let (directory, request) = bench();
        let ready = directory.path().join("acme-net.ko");
        fs::write(&ready, module(&[("vermagic", "6.1.0 SMP ")])).unwrap();
        let told = make(&request, &source(directory.path(), ModuleFiles::Ready(ready))).unwrap_err();
        assert!(base::failure::render(&told).contains("built for Linux 6.1.0"), "{told:#}");
        assert!(!request.out.join(EXTENSION_OUTPUT).exists());
    }

    #[test]
    fn headers_of_another_kernel_are_told_with_those_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        let headers = tree.path("usr/src/linux-headers-6.12.2-amd64");
        fs::create_dir_all(&headers).unwrap();
        fs::write(headers.join("Makefile"), "").unwrap();
        fs::create_dir_all(tree.path("usr/lib/modules/6.12.2-amd64")).unwrap();
        let link = tree.path("usr/lib/modules/6.12.2-amd64/build");
        // As Debian has it; followed from outside it leads to the host.
        std::os::unix::fs::symlink("/usr/src/linux-headers-6.12.2-amd64", link).unwrap();
        check_headers(&tree, "6.12.2-amd64").unwrap();
        let told = check_headers(&tree, KERNEL).map_err(|error| base::failure::render(&error)).unwrap_err();
        assert!(told.contains("no headers of Linux 6.12.1-amd64"), "{told}");
    }

    #[test]
    fn a_failed_build_says_the_last_lines_and_where_all_are() {
        let (directory, _) = bench();
        let tree = Tree::empty(directory.path()).unwrap();
        fs::create_dir_all(tree.path("run")).unwrap();
        let source = source(directory.path(), ModuleFiles::Directory("x".into()));
        let log = BuildLog::new(&source, &tree);
        let said =
            "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); done; echo acme.c:3: error: no >&2";
        let shell = |end: &str| Invocation::new("sh").args(["-c", &format!("{said}; exit {end}")]);
        log.run(&shell("0"), &[]).unwrap();
        assert!(!source.log.exists());
        let more = directory.path().join("make.log");
        fs::write(&more, "of make\n").unwrap();
        let told = base::failure::render(&log.run(&shell("2"), &[more]).unwrap_err());
        assert!(told.contains("extension acme do not build for Linux 6.12.1-amd64"), "{told}");
        assert!(told.contains("acme.c:3: error: no") && told.contains("of make"), "{told}");
        assert!(told.contains(&source.log.display().to_string()) && !told.contains("line 1\n"), "{told}");
        assert!(fs::read_to_string(&source.log).unwrap().starts_with("line 0\n"));
        let excluded = base::failure::render(&log.run(&shell("77"), &[]).unwrap_err());
        assert!(excluded.contains("it is not for this kernel"), "{excluded}");
    }

    #[test]
    fn the_end_of_a_text_begins_with_a_line_and_with_a_character() {
        assert_eq!(end_of("short\n", 10), "short");
        assert_eq!(end_of("one\ntwo\nthree\n", 8), "three");
        assert_eq!(end_of("ééééé", 3), "é");
    }
}
