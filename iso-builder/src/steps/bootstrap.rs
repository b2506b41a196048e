//! Root file systems and layers from Debian packages, with `mmdebstrap`.

use std::path::Path;

use anyhow::Result;
use base::command::{Invocation, Runner, SystemRunner};
use base::{failure, files};
use model::architecture::Architecture;

use super::base_image::{self, TreeOwners};
use super::limit::long;
use super::memory::MemoryMount;
use super::modules;
use super::repository::PackageRepository;
use super::request::StepRequest;
use super::tree::Tree;
use crate::firmware::asks_for_a_licence;
use crate::packages::plain_name;

/// The `mmdebstrap` command as it runs in the sandbox, where it is root and needs no mode of its own. `output` is a directory or the file of an
/// archive, by which mmdebstrap knows what is wanted.
pub(super) fn mmdebstrap(
    request: &StepRequest,
    variant: &str,
    suite: &str,
    output: &Path,
    mirrors: &[String],
    options: Vec<String>,
) -> Invocation {
    let architecture = request.architecture;
    // mmdebstrap refuses what the kernel has been told only for this namespace.
    let foreign = Architecture::of_this_program() != architecture;
    long(Invocation::new("mmdebstrap"))
        .env("SOURCE_DATE_EPOCH", request.epoch.to_string())
        .env("TMPDIR", &request.scratch)
        .arg("--mode=root")
        .arg(format!("--variant={variant}"))
        .arg(format!("--architectures={architecture}"))
        .args(foreign.then_some("--skip=check/qemu"))
        .args(["--aptopt=APT::Sandbox::User \"root\"", "--aptopt=APT::Install-Recommends \"false\""])
        .arg("--aptopt=Acquire::Languages \"none\"")
        .arg("--aptopt=Acquire::Retries \"3\"")
        .args(options)
        .arg(suite)
        .arg(output)
        .args(mirrors)
}

/// Since Debian 13 no package of a program has the links beside /usr: not the one to the loader, which programs name, nor
/// the one that leads /bin to what older packages had there.
const LINKS_BESIDE_USR: &str = "--setup-hook=for directory in bin lib lib64 sbin; do \
    mkdir -p \"$1/usr/$directory\" && ln -s \"usr/$directory\" \"$1/$directory\"; done";

/// Removes what is another each time that the same packages are installed, or on another host, and belongs to no image: what mmdebstrap copies
/// from the host (its section SOURCE_DATE_EPOCH), where apt found the packages, and the names and keys that packages give a machine. Without
/// it what is made is the same everywhere, and so is the key of each step after it.
const SAME_EVERYWHERE: &str = "--customize-hook=cd \"$1/etc\" && \
    rm -f apt/sources.list hostname iscsi/initiatorname.iscsi resolv.conf ssh/ssh_host_*";

/// Makes `base.tar`, with the modules of the kernel unpacked: several steps need them so, whatever is laid over the base.
pub(super) fn bootstrap(
    request: &StepRequest,
    suite: &str,
    repository: &PackageRepository,
    include: &[String],
) -> Result<()> {
    let names = include.iter().map(|package| plain_name(package));
    let accepted: Vec<_> = names.filter(|name| asks_for_a_licence(name)).map(accept_licence).collect();
    let hooks: Vec<_> = accepted.iter().map(String::as_str).chain([SAME_EVERYWHERE]).collect();
    let mirror = lay_out(request, suite, repository)?;
    let options = options(include, &hooks);
    in_memory_or_on_disk(request, repository, |place| {
        let tree = Tree::empty(place)?;
        let mirrors = std::slice::from_ref(&mirror);
        let install = mmdebstrap(request, "essential", suite, tree.root(), mirrors, options.clone());
        SystemRunner.run(&install.env("TMPDIR", place))?;
        modules::unpack(&tree)?;
        let archive = request.out.join("base.tar");
        base_image::pack(tree.root(), TreeOwners::Sandbox, &request.scratch, &archive, request.epoch)
    })
}

/// The hook that tells debconf that the licence of a package is accepted, as the definition names it: without, `dpkg` fails.
fn accept_licence(package: &str) -> String {
    format!(
        "--essential-hook=echo {package} {package}/license/accepted boolean true | chroot \"$1\" debconf-set-selections"
    )
}

/// DKMS then leaves building to us: its own builds come in the middle of an installation, and say nothing of what fails
/// (dkms's `common.postinst`).
const NO_DKMS_BUILD: &str = "--setup-hook=mkdir -p \"$1/etc/dkms\" && : > \"$1/etc/dkms/no-autoinstall\"";

/// Makes `tools.tar`.
pub(super) fn module_tools(
    request: &StepRequest,
    suite: &str,
    repository: &PackageRepository,
    include: &[String],
) -> Result<()> {
    archive(request, "essential", suite, repository, include, &[NO_DKMS_BUILD, SAME_EVERYWHERE], "tools.tar")
}

/// Makes `layer.tar`.
pub(super) fn extract(
    request: &StepRequest,
    suite: &str,
    repository: &PackageRepository,
    include: &[String],
) -> Result<()> {
    archive(request, "extract", suite, repository, include, &[LINKS_BESIDE_USR], "layer.tar")
}

/// These packages for a repository that has nothing but those that were chosen, and no release from which one could be asked for.
fn named(include: &[String]) -> String {
    let names: Vec<_> =
        include.iter().map(|package| package.split_once('/').map_or(&**package, |(name, _)| name)).collect();
    names.join(",")
}

/// Lets mmdebstrap make an archive.
fn archive(
    request: &StepRequest,
    variant: &str,
    suite: &str,
    repository: &PackageRepository,
    include: &[String],
    hooks: &[&str],
    output: &str,
) -> Result<()> {
    let mirror = lay_out(request, suite, repository)?;
    let output = request.out.join(output);
    let command = mmdebstrap(request, variant, suite, &output, &[mirror], options(include, hooks));
    in_memory_or_on_disk(request, repository, |place| {
        SystemRunner.run(&command.clone().env("TMPDIR", place)).map(drop)
    })
}

/// Lays out the repository; returns its line for apt.
fn lay_out(request: &StepRequest, suite: &str, repository: &PackageRepository) -> Result<String> {
    let directory = request.scratch.join("repository");
    files::make_directory(&directory, 0o755)?;
    repository.lay_out(&directory, suite, request.architecture)
}

fn options(include: &[String], hooks: &[&str]) -> Vec<String> {
    let include = (!include.is_empty()).then(|| format!("--include={}", named(include)));
    include.into_iter().chain(hooks.iter().map(|hook| (*hook).to_owned())).collect()
}

/// Does `make` with a directory in memory, and if that has no room or becomes full, with one on the disk.
fn in_memory_or_on_disk(
    request: &StepRequest,
    repository: &PackageRepository,
    make: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
    let place = request.scratch.join("memory");
    files::make_directory(&place, 0o755)?;
    if let Some(memory) = MemoryMount::at(&place, unpacked_bytes(repository.size())) {
        let made = make(&place);
        let removed = memory.remove();
        match made {
            Err(error) if is_full(&error) => removed?,
            made => return made,
        }
    }
    make(&request.scratch)
}

/// More than the files of packages of so many bytes come to. Those of the minimal image come to three times as much.
fn unpacked_bytes(packages: u64) -> u64 {
    packages.saturating_mul(5).saturating_add(256 << 20)
}

/// True if a program failed because its file system is full.
fn is_full(error: &anyhow::Error) -> bool {
    failure::causes(error).iter().any(|cause| cause.contains("No space left on device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_system_that_is_full_lets_a_program_run_again_elsewhere() {
        let run = |script: &str| SystemRunner.run(&Invocation::new("sh").args(["-c", script])).unwrap_err();
        assert!(is_full(&run("cat /proc/self/stat >/dev/full").context("the step")));
        assert!(!is_full(&run("echo 'dpkg: error' >&2; exit 1").context("the step")));
    }

    #[test]
    fn the_release_of_a_package_was_for_its_choice_and_its_version_still_counts() {
        let include = ["linux-image-amd64/trixie-backports", "curl=8.14.1-2", "dash"].map(str::to_owned);
        assert_eq!(named(&include), "linux-image-amd64,curl=8.14.1-2,dash");
    }
}
