//! The media under test: built by `iso-builder` from the repository's own definition, with an install configuration for
//! the tests embedded.
//!
//! A variant is a copy of `configs/` and `overlays/` with the configuration beside the definition. All variants share
//! one build cache, so only the first costs a whole build. A file lock serializes builds, also those of other test
//! processes. `NQRUST_E2E_ISO` names a full ISO to use instead; it must have been built with the identity of this
//! target directory.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::files;
use model::release::{MANIFEST, Release};
use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::images;
use crate::paths;
use crate::programs;

/// The path of the definition, relative to the workspace.
pub const DEFINITION: &str = "configs/images/minimal.yaml";

/// The path of the definition whose nodes are a cluster of upstream Kubernetes, relative to the workspace.
pub const KUBERNETES_DEFINITION: &str = "configs/images/default.yaml";

/// The other inputs of a build, relative to the workspace.
const BUILD_INPUTS: [&str; 2] = ["configs", "overlays"];

/// The key of a definition that names the install configuration to embed.
const EMBED_KEY: &str = "install_config";

/// The time limit of a complete build.
pub const BUILD_LIMIT: Duration = Duration::from_secs(1800);

#[derive(Clone, Debug)]
pub struct Medium {
    pub full: PathBuf,
    pub net_install: Option<PathBuf>,
}

impl Medium {
    /// The media with `config` embedded, built unless they are up to date. `name` distinguishes variants.
    pub fn shared(name: &str, config: &Value) -> Result<Self> {
        if let Some(iso) = env::var_os("NQRUST_E2E_ISO") {
            return Ok(Self { full: iso.into(), net_install: None });
        }
        Self::built(name, |directory| stage(directory, config))
    }

    /// The media of the definition that `stage` writes into its directory, built unless they are up to date.
    pub fn built(name: &str, stage: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<Self> {
        let media = paths::e2e().join("media");
        fs::create_dir_all(&media)?;
        let _lock = lock(&media.join("lock"))?;
        let directory = media.join(name);
        let definition = stage(&directory.join("source"))?;
        let out = directory.join("out");
        let mut build = build_command(&definition, &out, &cache())?;
        build.arg("--metrics").arg(metrics_file(name));
        let ended = programs::run(&mut build, BUILD_LIMIT)?;
        fs::create_dir_all(logs(name))?;
        fs::write(logs(name).join("build.log"), ended.said())?;
        ended.success("iso-builder build")?;
        let lock = fs::read(lock_file(&definition)).context("reading the lock file")?;
        files::write_atomically(&shared_lock(), &lock, 0o644)?;
        Self::in_directory(&out)
    }

    /// As [`built`](Self::built), with a cache of their own: what they are made of is not that of the shared media.
    pub fn built_apart(name: &str, stage: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<Self> {
        Self::built_with(&paths::installer()?, name, stage)
    }

    /// As [`built_apart`](Self::built_apart), with another installer.
    pub fn built_with(
        installer: &Path,
        name: &str,
        stage: impl FnOnce(&Path) -> Result<PathBuf>,
    ) -> Result<Self> {
        Self::in_directory(&ApartBuild::new(name)?.installer(installer).run(stage)?)
    }

    /// As [`built_apart`](Self::built_apart), with the modules of extensions signed by the key of this name beside the definition.
    pub fn built_with_module_key(
        key: &str,
        name: &str,
        stage: impl FnOnce(&Path) -> Result<PathBuf>,
    ) -> Result<Self> {
        let build = ApartBuild::new(name)?.installer(&paths::installer()?);
        Self::in_directory(&ApartBuild { module_key: Some(key), ..build }.run(stage)?)
    }

    /// The media in the output directory of a build: those of the last one, beside which others of an earlier version may lie.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        let mut medium = Self { full: PathBuf::new(), net_install: None };
        let sums = directory.join("SHA256SUMS");
        let sums = fs::read_to_string(&sums).with_context(|| format!("reading {}", sums.display()))?;
        for name in sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name) {
            let path = directory.join(name);
            if name.ends_with("-net-install.iso") {
                medium.net_install = Some(path);
            } else if name.ends_with(".iso") {
                medium.full = path;
            }
        }
        if medium.full.as_os_str().is_empty() {
            bail!("the build left no full ISO in {}", directory.display());
        }
        Ok(medium)
    }

    /// The release manifest of the full ISO.
    pub fn release(&self) -> Result<Release> {
        let directory = tempfile::tempdir()?;
        let manifest = directory.path().join(MANIFEST);
        let (from, to) = (format!("/{MANIFEST}"), manifest.display().to_string());
        programs::xorriso(&self.full, &["-extract", &from, &to])?;
        Ok(Release::parse(&fs::read(manifest)?)?)
    }

    /// Unpacks the full ISO into `directory`, for a web server.
    pub fn unpack(&self, directory: &Path) -> Result<()> {
        programs::xorriso(&self.full, &["-extract", "/", &directory.display().to_string()])?;
        // Directories are read-only as on the medium, and could not be removed later.
        for entry in WalkDir::new(directory) {
            let entry = entry?;
            if entry.file_type().is_dir() {
                fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))?;
            }
        }
        Ok(())
    }
}

/// A build whose cache is not that of the shared media.
#[derive(Debug)]
pub struct ApartBuild<'a> {
    place: PathBuf,
    cache: PathBuf,
    /// One for each architecture.
    installers: Vec<PathBuf>,
    module_key: Option<&'a str>,
}

impl ApartBuild<'_> {
    /// A build in the place `name`, with a cache of its own and without an installer.
    pub fn new(name: &str) -> Result<Self> {
        let place = apart(name);
        fs::create_dir_all(&place)?;
        Ok(Self { cache: place.join("cache"), place, installers: Vec::new(), module_key: None })
    }

    /// Adds the installer for an architecture.
    #[must_use]
    pub fn installer(mut self, installer: &Path) -> Self {
        self.installers.push(installer.to_owned());
        self
    }

    /// Takes the cache of the place `name`.
    #[must_use]
    pub fn cache_of(self, name: &str) -> Self {
        Self { cache: apart(name).join("cache"), ..self }
    }

    /// Builds the definition that `stage` writes into its directory; returns the directory of the outputs.
    pub fn run(self, stage: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<PathBuf> {
        let _lock = lock(&self.place.join("lock"))?;
        let definition = stage(&self.place.join("source"))?;
        let out = self.place.join("out");
        let mut build = build_command_with(&self.installers, &definition, &out, &self.cache)?;
        if let Some(key) = self.module_key {
            build.arg("--module-key").arg(definition.with_file_name(key));
        }
        let ended = programs::run(&mut build, BUILD_LIMIT * u32::try_from(self.installers.len())?)?;
        files::write_atomically(&self.place.join("build.log"), ended.said().as_bytes(), 0o644)?;
        ended.success("iso-builder build")?;
        Ok(out)
    }
}

/// The place of media that are built apart.
fn apart(name: &str) -> PathBuf {
    paths::e2e().join("media-apart").join(name)
}

/// The build cache that all variants share.
#[must_use]
pub fn cache() -> PathBuf {
    paths::e2e().join("media/cache")
}

/// The logs of the build of a variant.
#[must_use]
pub fn logs(name: &str) -> PathBuf {
    paths::e2e().join("media").join(name).join("logs")
}

/// The metrics of the last build of a variant.
#[must_use]
pub fn metrics_file(name: &str) -> PathBuf {
    paths::e2e().join("media").join(name).join("build.prom")
}

/// The command that builds `definition` into `out`, with the cache in `cache`.
pub fn build_command(definition: &Path, out: &Path, cache: &Path) -> Result<Command> {
    build_command_with(&[paths::installer()?], definition, out, cache)
}

fn build_command_with(
    installers: &[PathBuf],
    definition: &Path,
    out: &Path,
    cache: &Path,
) -> Result<Command> {
    let mut command = programs::iso_builder()?;
    command.args(["build", "--progress", "plain"]).arg(definition);
    command.arg("-o").arg(out).arg("--cache-dir").arg(cache);
    for installer in installers {
        command.arg("--installer").arg(installer);
    }
    command.args(["--sign-with", "development"]);
    Ok(command)
}

#[must_use]
pub fn lock_file(definition: &Path) -> PathBuf {
    let mut path = definition.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// The lock file of the newest variant: others start from it, so that their packages are the same.
fn shared_lock() -> PathBuf {
    paths::e2e().join("media/definition.lock")
}

/// Copies the inputs of a build to `directory`, embeds `config`, adds the images of [`images`], and returns the path of
/// the definition there. Its lock file is that of the other variants, else the existing one; never one that a user's
/// own build left in the workspace.
pub fn stage(directory: &Path, config: &Value) -> Result<PathBuf> {
    stage_definition(DEFINITION, directory, config)
}

/// As [`stage`], the default definition, with the release of Kubernetes that `make kubernetes` has built, without a configuration, and
/// with the intervals for slow machines, which emulated ones are, as the default of every install.
pub fn stage_kubernetes(directory: &Path) -> Result<PathBuf> {
    let release = paths::target().join("kubernetes");
    if !release.exists() {
        bail!("there is no {}; make kubernetes builds it", release.display());
    }
    let definition = stage_definition(KUBERNETES_DEFINITION, directory, &Value::Null)?;
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
    value["kubernetes"]["artifacts"] = serde_yaml::to_value(fs::canonicalize(release)?)?;
    value.as_mapping_mut().context("a definition")?.remove(EMBED_KEY);
    fs::write(&definition, serde_yaml::to_string(&value)?)?;
    let name = value["install_defaults"].as_str().context("a definition with defaults")?;
    let defaults = json!({ "kubernetes": { "distribution": "kubeadm", "timing": "relaxed" } });
    files::write_atomically(&definition.with_file_name(name), defaults.to_string().as_bytes(), 0o644)?;
    Ok(definition)
}

fn stage_definition(definition: &str, directory: &Path, config: &Value) -> Result<PathBuf> {
    let definition = directory.join(definition);
    let lock = lock_file(&definition);
    let known = [&shared_lock(), &lock].into_iter().find_map(|path| fs::read(path).ok());
    for source in BUILD_INPUTS {
        copy_tree(&paths::workspace().join(source), &directory.join(source))?;
    }
    match known {
        Some(known) => fs::write(&lock, known)?,
        None if lock.exists() => fs::remove_file(&lock)?,
        None => {}
    }
    let embedded = definition.with_file_name("e2e-install.yaml");
    // JSON is YAML, and quotes everything that needs it.
    files::write_atomically(&embedded, config.to_string().as_bytes(), 0o600)?;
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)
        .with_context(|| format!("reading {}", definition.display()))?;
    value[EMBED_KEY] = "e2e-install.yaml".into();
    let beside = definition.parent().context("the directory of the definition")?;
    let entries = serde_yaml::to_value(images::entries(beside)?)?;
    match (value["images"]["preload"].as_sequence_mut(), entries) {
        (Some(preload), serde_yaml::Value::Sequence(entries)) => preload.extend(entries),
        // The images are inherited.
        (_, entries) => value["images"] = serde_yaml::to_value(json!({ "preload": { "add": entries } }))?,
    }
    fs::write(&definition, serde_yaml::to_string(&value)?)?;
    Ok(definition)
}

/// The place of the OS alone for 64-bit Arm, whose cache media for both architectures share, and its definition there.
pub const ARM64: &str = "arm64";
const ARM64_DEFINITION: &str = "e2e-arm64.yaml";

/// Writes a definition that extends that of the OS alone for 64-bit Arm, with `config` embedded, if there is one.
pub fn stage_arm64(directory: &Path, config: Option<&Value>) -> Result<PathBuf> {
    let embed = if config.is_some() { format!("{EMBED_KEY}: e2e-install.yaml\n") } else { String::new() };
    let text = format!("extends: minimal-arm64.yaml\n{embed}");
    let definition = stage_extension(directory, ARM64_DEFINITION, &text)?;
    if let Some(config) = config {
        let embedded = definition.with_file_name("e2e-install.yaml");
        files::write_atomically(&embedded, config.to_string().as_bytes(), 0o600)?;
    }
    Ok(definition)
}

/// Writes a definition that extends the default one for 64-bit Arm, with the release of Kubernetes that `make kubernetes
/// ARCHITECTURE=arm64` has built.
pub fn stage_kubernetes_arm64(directory: &Path) -> Result<PathBuf> {
    let release = paths::target().join("kubernetes-arm64");
    if !release.exists() {
        bail!("there is no {}; make kubernetes ARCHITECTURE=arm64 builds it", release.display());
    }
    let release = fs::canonicalize(release)?;
    let text = format!("extends: default-arm64.yaml\nkubernetes: {{artifacts: {}}}\n", json!(release));
    stage_extension(directory, "e2e-kubernetes-arm64.yaml", &text)
}

/// The directory with the outputs of one build of the OS alone, for both architectures. It begins with the packages and the cache of the
/// media for 64-bit Arm, whose base takes longest.
pub fn built_for_both() -> Result<PathBuf> {
    let build = ApartBuild::new("both")?.cache_of(ARM64);
    build.installer(&paths::installer()?).installer(&paths::installer_arm64()?).run(|directory| {
        let text = "extends: minimal.yaml\narchitectures: [amd64, arm64]\n";
        let definition = stage_extension(directory, "e2e-both.yaml", text)?;
        let of_arm64 = apart(ARM64).join("source").join(DEFINITION).with_file_name(ARM64_DEFINITION);
        if let Ok(lock) = fs::read(lock_file(&of_arm64)) {
            fs::write(definition.with_file_name("e2e-both.yaml.arm64.lock"), lock)?;
        }
        Ok(definition)
    })
}

/// Copies the inputs of a build to `directory` and writes the definition `name` beside those of the workspace. Returns its path.
fn stage_extension(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    for source in BUILD_INPUTS {
        copy_tree(&paths::workspace().join(source), &directory.join(source))?;
    }
    let definition = directory.join(DEFINITION).with_file_name(name);
    fs::write(&definition, text)?;
    Ok(definition)
}

/// Copies a tree of directories, files and links over `to`; other files of `to` stay.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry.with_context(|| format!("reading {}", from.display()))?;
        let target = to.join(entry.path().strip_prefix(from)?);
        let context = || format!("copying {} to {}", entry.path().display(), target.display());
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target).with_context(context)?;
            continue;
        }
        if target.symlink_metadata().is_ok() {
            fs::remove_file(&target).with_context(context)?;
        }
        if entry.file_type().is_symlink() {
            let link = fs::read_link(entry.path()).with_context(context)?;
            std::os::unix::fs::symlink(link, &target).with_context(context)?;
        } else {
            fs::copy(entry.path(), &target).with_context(context)?;
        }
    }
    Ok(())
}

/// Holds the lock file at `path` until the result is dropped; waits for other processes and threads.
pub fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copying_a_tree_again_replaces_what_changed_and_keeps_what_is_extra() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        fs::write(from.join("a/file"), "one").unwrap();
        std::os::unix::fs::symlink("file", from.join("a/link")).unwrap();
        copy_tree(&from, &to).unwrap();
        fs::write(to.join("a/extra.lock"), "kept").unwrap();
        fs::write(from.join("a/file"), "two").unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/link")).unwrap(), "two");
        assert_eq!(fs::read_to_string(to.join("a/extra.lock")).unwrap(), "kept");
    }
}
