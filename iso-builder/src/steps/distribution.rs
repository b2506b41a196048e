//! Lays out the files of a Kubernetes distribution's release as a directory to lay over the OS image.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::files;
use model::config::Distribution;

use super::base_image::archive;
use super::request::{DistributionSource, StepRequest};
use super::tree::{Tree, place_file};
use crate::kubernetes::program_version;
use crate::kubernetes::system::{self, RKE2_RUNTIME, SystemFileContent};
use crate::kubernetes::upstream::has_version_of_release;
use model::kubernetes::KubernetesVersion;

/// The output: a directory with every file in its place.
pub const OVERLAY_OUTPUT: &str = "tree";
/// The output: the images of a release of upstream Kubernetes, one in each line.
pub const IMAGE_NAMES_OUTPUT: &str = "images.txt";

/// RKE2's archive is unpacked below this directory, as upstream's installer does: its units name the program there.
const INSTALLATION_PREFIX: &str = "usr/local";
/// kubeadm prints what is compiled in.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// The directory where systemd, and the links on a node, look for the units.
const UNIT_DIRECTORY: &str = "usr/lib/systemd/system";

/// Makes [`OVERLAY_OUTPUT`]. Owners and modes are set when it is laid over the OS image.
pub(super) fn make(request: &StepRequest, from: &DistributionSource) -> Result<()> {
    let stage = request.scratch.join("stage");
    files::make_directory(&stage.join("usr"), 0o755)?;
    match from.version.distribution() {
        Distribution::Rke2 => {
            unpack_installation(request, program(from)?, &stage)?;
            unpack_runtime(request, from, &stage)?;
            check_program(&stage.join("usr/local/bin/rke2"), program(from)?, &from.version)?;
        }
        Distribution::K3s => {
            let program = program(from)?;
            check_program(&place_program(program, "k3s", &stage)?, program, &from.version)?;
        }
        Distribution::Kubeadm => {
            for program in &from.programs {
                let name = program.file_name().context("a program has a name")?.to_string_lossy();
                let placed = place_program(program, &name, &stage)?;
                if has_version_of_release(&name) {
                    check_program(&placed, program, &from.version)?;
                }
            }
        }
    }
    for file in system::files(&from.version, from.images.as_ref()) {
        write(&stage.join(&file.path), &file.content)?;
    }
    Tree::empty(&request.out)?.overlay(&stage)
}

/// The images that this kubeadm would run for its release.
pub(super) fn image_names(request: &StepRequest, kubeadm: &Path, version: &KubernetesVersion) -> Result<()> {
    let program = request.scratch.join("kubeadm");
    place_file(kubeadm, &program, 0o755)?;
    // Without the version it would ask the internet for the newest one.
    let list = Invocation::new(&program)
        .args(["config", "images", "list", "--kubernetes-version", version.as_str()])
        .limit(LIST_LIMIT);
    let listed =
        SystemRunner.run(&list).with_context(|| format!("asking {} for its images", kubeadm.display()))?;
    files::write_atomically(&request.out.join(IMAGE_NAMES_OUTPUT), &listed, 0o644)
}

/// The one file with the program of RKE2 or K3s.
fn program(from: &DistributionSource) -> Result<&Path> {
    from.programs.first().map(PathBuf::as_path).context("a release has a program")
}

/// Puts a program into its directory, and returns its place.
fn place_program(program: &Path, name: &str, stage: &Path) -> Result<PathBuf> {
    let directory = stage.join(INSTALLATION_PREFIX).join("bin");
    files::make_directory(&directory, 0o755)?;
    let target = directory.join(name);
    place_file(program, &target, 0o755)?;
    Ok(target)
}

fn check_program(program: &Path, from: &Path, version: &KubernetesVersion) -> Result<()> {
    let file = fs::File::open(program).with_context(|| format!("opening {}", program.display()))?;
    program_version::check(file, from, version)
}

/// RKE2's `bin`, `lib` and `share` below [`INSTALLATION_PREFIX`], and its units in [`UNIT_DIRECTORY`].
fn unpack_installation(request: &StepRequest, program: &Path, stage: &Path) -> Result<()> {
    let tree = scratch_tree(request, "installation")?;
    archive::unpack(program, &tree, &request.scratch, archive::ArchiveUse::Whole)?;
    for name in
        ["bin/rke2", "lib/systemd/system/rke2-server.service", "lib/systemd/system/rke2-agent.service"]
    {
        if !tree.path(name).symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            let what = format!("{} is not RKE2's archive of an installation", program.display());
            return Err(Failure::new(Class::Invalid, what)
                .because(anyhow::anyhow!("it has no {name}"))
                .into());
        }
    }
    // The OS image is replaced as a whole, so nothing is uninstalled.
    remove(&tree.path("bin/rke2-uninstall.sh"))?;
    rename(tree.root(), &stage.join(INSTALLATION_PREFIX))?;
    files::make_directory(&stage.join(UNIT_DIRECTORY), 0o755)?;
    for unit in ["rke2-server.service", "rke2-agent.service"] {
        rename(
            &stage.join(INSTALLATION_PREFIX).join("lib/systemd/system").join(unit),
            &stage.join(UNIT_DIRECTORY).join(unit),
        )?;
    }
    Ok(())
}

fn unpack_runtime(request: &StepRequest, from: &DistributionSource, stage: &Path) -> Result<()> {
    let tree = scratch_tree(request, "runtime")?;
    for layer in &from.runtime {
        archive::unpack(layer, &tree, &request.scratch, archive::ArchiveUse::Layer)?;
    }
    let target = stage.join(RKE2_RUNTIME);
    files::make_directory(&target, 0o755)?;
    for name in ["bin", "charts"] {
        if !tree.path(name).symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            let what = format!("the runtime image of RKE2 {} has no directory /{name}", from.version);
            return Err(Failure::new(Class::Invalid, what)
                .hint("This release is not supported; use another one, or report it to the maintainers of iso-builder.")
                .into());
        }
        rename(&tree.path(name), &target.join(name))?;
    }
    Ok(())
}

/// An empty tree below the scratch directory.
fn scratch_tree(request: &StepRequest, name: &str) -> Result<Tree> {
    let directory = request.scratch.join(name);
    files::make_directory(&directory, 0o755)?;
    Tree::empty(&directory)
}

fn write(path: &Path, content: &SystemFileContent) -> Result<()> {
    let parent = path.parent().context("a file is in a directory")?;
    files::make_directory(parent, 0o755)?;
    match content {
        SystemFileContent::Text(text) => files::write_atomically(path, text.as_bytes(), 0o644),
        SystemFileContent::Link(target) => {
            remove(path)?;
            symlink(target, path).with_context(|| format!("linking {}", path.display()))
        }
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("moving {} to {}", from.display(), to.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
