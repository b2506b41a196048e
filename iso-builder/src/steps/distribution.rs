//! Lays out the files of a Kubernetes distribution's release as a directory to lay over the OS image.

use std::fs::{self, File};
use std::io::Read;
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
use crate::kubernetes::system::{self, RKE2_RUNTIME, SystemFileContent};
use model::kubernetes::KubernetesVersion;

/// The output: a directory with every file in its place.
pub const OVERLAY_OUTPUT: &str = "tree";
/// The output: the images of a release of upstream Kubernetes, one in each line.
pub const IMAGE_NAMES_OUTPUT: &str = "images.txt";

/// RKE2's archive is unpacked below this directory, as upstream's installer does: its units name the program there.
const INSTALLATION_PREFIX: &str = "usr/local";
/// In bytes; versions of distributions are shorter.
const VERSION_BYTES_MAX: usize = 64;
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
            check_version(&stage.join("usr/local/bin/rke2"), program(from)?, &from.version)?;
        }
        Distribution::K3s => place_program(program(from)?, "k3s", &stage, &from.version)?,
        Distribution::Kubeadm => {
            for program in &from.programs {
                let name = program.file_name().context("a program has a name")?.to_string_lossy();
                place_program(program, &name, &stage, &from.version)?;
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

/// Puts a program into its directory, if it is of the release.
fn place_program(program: &Path, name: &str, stage: &Path, version: &KubernetesVersion) -> Result<()> {
    let target = stage.join(INSTALLATION_PREFIX).join("bin").join(name);
    files::make_directory(&stage.join(INSTALLATION_PREFIX).join("bin"), 0o755)?;
    place_file(program, &target, 0o755)?;
    check_version(&target, program, version)
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
                .hint("This release is not supported; use another one, or report it to the makers of this program.")
                .into());
        }
        rename(&tree.path(name), &target.join(name))?;
    }
    Ok(())
}

/// Fails unless the program is of the release: otherwise nodes would look for images that the media do not have.
/// `from` is the file of the release that it is from.
fn check_version(program: &Path, from: &Path, version: &KubernetesVersion) -> Result<()> {
    let file = File::open(program).with_context(|| format!("opening {}", program.display()))?;
    let versions =
        versions(file, version.distribution()).with_context(|| format!("reading {}", program.display()))?;
    if versions.iter().any(|found| found == version.as_str()) {
        return Ok(());
    }
    let found = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    Err(Failure::new(Class::Invalid, format!("{} is not of {version}", from.display()))
        .because(anyhow::anyhow!("its program contains these versions: {found}"))
        .hint("Take all files from one release, the one that kubernetes.version names.")
        .into())
}

/// The versions of the distribution that occur in the strings of a program, each once. Its own is one of them: the
/// linker writes it there, followed by a byte that cannot be part of a version.
fn versions(mut program: impl Read, distribution: Distribution) -> Result<Vec<String>> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut found: Vec<String> = Vec::new();
    let mut bytes = Vec::new();
    loop {
        let kept = bytes.len();
        let count = (&mut program).take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
        for version in within(&bytes, distribution) {
            if !found.contains(&version) {
                found.push(version);
            }
        }
        if count == 0 && kept <= VERSION_BYTES_MAX {
            return Ok(found);
        }
        // A version that begins at the end of a piece ends in the next.
        bytes.drain(..bytes.len().saturating_sub(VERSION_BYTES_MAX));
    }
}

/// The versions in `bytes` that end before the last byte.
fn within(bytes: &[u8], distribution: Distribution) -> Vec<String> {
    let mark: &[u8] = match distribution {
        Distribution::Rke2 => b"+rke2r",
        Distribution::K3s => b"+k3s",
        Distribution::Kubeadm => return between_zeros(bytes),
    };
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    let marks =
        bytes.iter().enumerate().filter(|(index, byte)| **byte == b'+' && bytes[*index..].starts_with(mark));
    let version = |(index, _): (usize, &u8)| {
        let start = bytes[..index].iter().rposition(|byte| *byte == b'v')?;
        let length = bytes[index + 1..].iter().position(|byte| !part(byte)).map(|length| index + 1 + length);
        let text = String::from_utf8_lossy(bytes.get(start..length.unwrap_or(bytes.len()))?);
        text.parse::<KubernetesVersion>().ok().map(|version| version.as_str().to_owned())
    };
    marks.filter_map(version).collect()
}

/// The versions of upstream Kubernetes with a zero on either side. Nothing in their text tells them from those of other
/// modules, which stand among other words.
fn between_zeros(bytes: &[u8]) -> Vec<String> {
    let starts = bytes.windows(2).enumerate().filter(|(_, pair)| pair == b"\0v").map(|(index, _)| index + 1);
    let version = |start: usize| {
        let rest = bytes.get(start..)?;
        let length = rest.iter().take(VERSION_BYTES_MAX).position(|byte| *byte == 0)?;
        let version = str::from_utf8(rest.get(..length)?).ok()?.parse::<KubernetesVersion>().ok()?;
        (version.distribution() == Distribution::Kubeadm).then(|| version.as_str().to_owned())
    };
    starts.filter_map(version).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_version_is_found_wherever_it_stands_among_other_bytes(
            before in proptest::collection::vec(any::<u8>(), 0..200),
            // Around the end of the first piece, which the padding fills up.
            fill in (1_usize << 20) - 260..(1 << 20) + 20,
            after in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut program = vec![b'.'; fill];
            program.extend(&before);
            program.extend(b"\0v1.33.1+rke2r1\0");
            program.extend(&after);
            let found = versions(&program[..], Distribution::Rke2).unwrap();
            prop_assert!(found.iter().any(|version| version == "v1.33.1+rke2r1"));
        }
    }

    #[test]
    fn a_programs_versions_are_found_among_its_texts() {
        let at = |length: usize, text: &str| {
            let mut program = vec![0; length];
            program.extend(text.as_bytes());
            program
        };
        for (program, found) in [
            (b"\0v1.33.1+rke2r1\0".to_vec(), &["v1.33.1+rke2r1"][..]),
            (b"rke2 version v1.33.1+rke2r12 (abc)".to_vec(), &["v1.33.1+rke2r12"]),
            (
                b"v1.33.1+rke2r1\0v1.33.1+rke2r1\0v1.32.0+rke2r2\n".to_vec(),
                &["v1.33.1+rke2r1", "v1.32.0+rke2r2"],
            ),
            (b"v1.33.1+k3s1\0".to_vec(), &[]),
            (b"+rke2r1 version+rke2r1 v+rke2r1".to_vec(), &[]),
            (at((1 << 20) - 7, "v1.33.1+rke2r1\0"), &["v1.33.1+rke2r1"]),
            (at((1 << 20) - 14, "v1.33.1+rke2r1"), &["v1.33.1+rke2r1"]),
            (Vec::new(), &[]),
        ] {
            assert_eq!(versions(&program[..], Distribution::Rke2).unwrap(), found);
        }
        assert_eq!(versions(&b"v1.33.1-rc1+k3s1\n"[..], Distribution::K3s).unwrap(), ["v1.33.1-rc1+k3s1"]);
        let upstream = |program: &[u8]| versions(program, Distribution::Kubeadm).unwrap();
        let other = b"\0\0v1.37.2\0v1.1\0k8s.io/x\tv0.37.2\tv1.36.0\0v1.33.1+k3s1\0v1.38.0-rc.1";
        assert_eq!(upstream(other), ["v1.37.2"]);
        assert_eq!(upstream(&at((1 << 20) - 3, "\0v1.37.2\0")), ["v1.37.2"]);
    }
}
