//! The OS image: base, overlays and our installer, without what differs from build to build, as one squashfs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::{files, parallel};
use formats::squashfs::compression::zstd_version;
use formats::squashfs::{Compression, Expansion, TreeImage};
use formats::verity::{BLOCK_BYTES, VerityBuilder, VerityParameters, VerityTree};
use model::release::ExpandedImage;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::hardware;
use super::kernel::kernel_release;
use super::modules;
use super::request::{ProductIdentity, RootfsSource, StepRequest};
use super::tree::{Tree, place_file};
use super::within::within;
use crate::product;

/// Paths that are removed from the image. Kernel and initrd are payloads of their own; host keys and logs belong to a
/// machine; indexes and caches are remade or not needed. The kernel takes microcode only from the front of the initrd, since it loads
/// none later (Documentation/arch/x86/microcode.rst). A trailing `/*` empties a directory.
const REMOVED_PATHS: &[&str] = &[
    "boot/*",
    "vmlinuz",
    "vmlinuz.old",
    "initrd.img",
    "initrd.img.old",
    "etc/resolv.conf",
    "etc/ssh/ssh_host_*",
    "etc/apt/sources.list",
    "run/*",
    "tmp/*",
    "usr/lib/firmware/amd-ucode/*",
    "usr/lib/firmware/intel-ucode/*",
    "var/cache/*",
    "var/lib/apt/*",
    "var/lib/dpkg/*-old",
    "var/lib/systemd/random-seed",
    "var/log/*",
    "var/tmp/*",
];

/// The directory from which systemd and the boot code fill an empty /var.
const FACTORY_VAR: &str = "usr/share/factory/var";

/// An [`ImageHashes`] as JSON.
pub const IMAGE_HASHES_OUTPUT: &str = "rootfs.hashes.json";

/// The OS image.
pub const IMAGE_OUTPUT: &str = "rootfs.squashfs";

/// What the release manifest has of the OS image beside its digest, and how it is compressed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageHashes {
    /// The image as a slot has it.
    pub expanded: ExpandedImage,
    /// The root hash of the tree over the image as a medium has it.
    pub root_hash: Digest,
    pub compression: ImageCompression,
}

/// How an OS image is compressed. Where two are the same, equal blocks of both images are compressed to the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageCompression {
    zstd_version: String,
    level: u32,
}

impl ImageCompression {
    /// By this program.
    #[must_use]
    pub fn at_level(level: u32) -> Self {
        Self { zstd_version: zstd_version().to_owned(), level }
    }
}

/// Makes [`IMAGE_OUTPUT`], what it can drive, and its root hashes.
pub(super) fn make(request: &StepRequest, rootfs: &RootfsSource) -> Result<()> {
    let earlier = rootfs.earlier.as_ref().and_then(|path| File::open(path).ok());
    let (tree, compression) = parallel::both(
        || Tree::unpack_in_memory(&rootfs.base, &request.scratch, laid_over(rootfs)?),
        || compression(rootfs.level, earlier.as_ref()),
    )?;
    let configurations = keep_kernel_configurations(&tree)?;
    // The image of the kernel, by which it is known, goes with the rest of /boot.
    let kernel = kernel_release(&tree)?;
    modules::unpack(&tree)?;
    clean(&tree)?;
    link_kernel_configurations(&tree, &configurations)?;
    for overlay in &rootfs.overlays {
        tree.overlay(overlay)?;
    }
    modules::index_overlaid(&tree, &kernel, &rootfs.overlays)?;
    trust_authorities(&tree, &rootfs.overlays)?;
    place_file(&rootfs.installer, &tree.path("usr/bin/installer"), 0o755)?;
    write_identity(&tree, rootfs, request.epoch)?;
    make_mount_points(&tree)?;
    settle_var(&tree)?;
    check_product(&tree)?;
    let (hashes, ()) = parallel::both(
        || write_image(request, &tree, &compression, rootfs.level),
        || hardware::survey(request, &tree, &kernel),
    )?;
    let hashes = serde_json::to_vec(&hashes)?;
    fs::write(request.out.join(IMAGE_HASHES_OUTPUT), hashes).context("writing the root hashes")
}

/// How blocks are compressed; an earlier image that cannot be read is none.
fn compression(level: u32, earlier: Option<&File>) -> Result<Compression<'_, File>> {
    let level = i32::try_from(level)?;
    let reused = earlier.and_then(|image| Compression::reusing(level, image, threads()).ok());
    Ok(reused.unwrap_or(Compression::at_level(level)))
}

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Writes the OS image of a finished tree.
fn write_image(
    request: &StepRequest,
    tree: &Tree,
    compression: &Compression<'_, File>,
    level: u32,
) -> Result<ImageHashes> {
    let time = u32::try_from(request.epoch).context("a squashfs cannot hold the time of the image")?;
    let laid_out = TreeImage::of(tree.root(), time, threads()).context("laying out the OS image")?;
    let expansion = Expansion::plan(&laid_out).context("laying out the OS image")?;
    let image = request.out.join(IMAGE_OUTPUT);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&image).context("making the OS image")?);
    compression.write(&expansion, threads(), &mut out).context("compressing the OS image")?;
    out.flush().context("writing the OS image")?;
    drop(out);
    hashes(&image, &expansion, ImageCompression::at_level(level))
}

/// The bytes of the expanded image that are hashed side by side.
const HASHED_BYTES: usize = 8 << 20;

/// Where an administrator's own certificate authorities are, as update-ca-certificates(8) has it.
const AUTHORITIES: &str = "usr/local/share/ca-certificates";

/// Adds the certificate authorities of overlays to the list that the programs of the OS read: there is no package whose installation
/// would do it.
fn trust_authorities(tree: &Tree, overlays: &[PathBuf]) -> Result<()> {
    if !overlays.iter().any(|overlay| overlay.join(AUTHORITIES).is_dir()) {
        return Ok(());
    }
    if !tree.path("usr/sbin/update-ca-certificates").is_file() {
        return Err(Failure::new(
            Class::Invalid,
            format!("the certificates in {AUTHORITIES} would not be trusted"),
        )
        .because(anyhow::anyhow!("the base has no update-ca-certificates"))
        .hint("Include the package ca-certificates.")
        .into());
    }
    tree.run_with_devices(&tree.chroot("update-ca-certificates"))
        .context("adding the certificate authorities of overlays to those of the OS image")
}

/// Fails unless the finished tree has the installer and the units by which a medium and a node start. An overlay can replace
/// them, and must not take them away: the medium would boot into a system that does nothing.
fn check_product(tree: &Tree) -> Result<()> {
    let starts = |path: &Path| -> Result<bool> {
        let found = fs::metadata(within(tree.root(), path)?);
        Ok(found.is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0))
    };
    let mut gone = Vec::new();
    for path in product::started_units().chain(["usr/bin/installer".into()]) {
        if !starts(&path)? {
            gone.push(format!("/{}", path.display()));
        }
    }
    if gone.is_empty() {
        return Ok(());
    }
    let what = "the OS image lacks files by which its media and nodes start";
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("{} is missing, empty or masked", gone.join(", ")))
        .hint("Remove from the definition's overlays what replaces these files.")
        .into())
}

/// Hashes both forms of an image. What nodes will make of the compressed one has to be the expanded one: each of its blocks was compared when
/// it was compressed, and its tables are here.
fn hashes(
    image: &Path,
    expansion: &Expansion<'_, TreeImage>,
    compression: ImageCompression,
) -> Result<ImageHashes> {
    let open = || File::open(image).context("reading the OS image");
    let (digest, length) = Digest::of_reader(open()?)?;
    // Live systems read it through dm-verity, which knows whole blocks only.
    ensure!(length.is_multiple_of(BLOCK_BYTES as u64), "the OS image does not have whole blocks");
    let made = open()?;
    let again = Expansion::plan(&made).context("expanding the OS image")?;
    ensure!(again.is_like(expansion), "the compressed OS image has other files than its tree");
    let of_compressed = || Ok(VerityTree::of_image(digest, open()?).context("reading the OS image")?.root);
    let of_expanded = || {
        let mut hashes = VerityBuilder::new(VerityParameters::of_image(digest)).on_threads(threads());
        let mut pieces = BufWriter::with_capacity(HASHED_BYTES, &mut hashes);
        expansion.write(threads(), &mut pieces).context("expanding the OS image")?;
        pieces.flush().context("hashing the OS image")?;
        drop(pieces);
        Ok(hashes.finish().root)
    };
    let (root_hash, root_of_expanded) = parallel::both(of_compressed, of_expanded)?;
    let expanded = ExpandedImage { size: expansion.length().get(), root_hash: root_of_expanded };
    Ok(ImageHashes { expanded, root_hash, compression })
}

/// The bytes that are laid over the base.
fn laid_over(rootfs: &RootfsSource) -> Result<u64> {
    let mut bytes = 0;
    for path in rootfs.overlays.iter().chain([&rootfs.installer]) {
        for entry in WalkDir::new(path) {
            bytes += entry.and_then(|entry| entry.metadata()).context("measuring the overlays")?.len();
        }
    }
    Ok(bytes)
}

/// Moves `/boot/config-RELEASE` beside the kernel's modules, where kubeadm looks too; returns the releases.
fn keep_kernel_configurations(tree: &Tree) -> Result<Vec<String>> {
    let mut releases = Vec::new();
    for entry in fs::read_dir(within(tree.root(), Path::new("boot"))?).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(release) = name.strip_prefix("config-") else { continue };
        let modules = within(tree.root(), &Path::new("usr/lib/modules").join(release))?;
        if modules.is_dir() && entry.file_type()?.is_file() {
            place_file(&entry.path(), &modules.join("config"), 0o644)?;
            releases.push(release.to_owned());
        }
    }
    Ok(releases)
}

/// Links `/boot/config-RELEASE` to the configuration beside the modules: Longhorn, for one, looks only there. The link is
/// relative, because pods see the node's root at another path.
fn link_kernel_configurations(tree: &Tree, releases: &[String]) -> Result<()> {
    let boot = within(tree.root(), Path::new("boot"))?;
    for release in releases {
        let link = boot.join(format!("config-{release}"));
        symlink(format!("../usr/lib/modules/{release}/config"), &link)
            .with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

fn clean(tree: &Tree) -> Result<()> {
    for pattern in REMOVED_PATHS {
        let (parent, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        // Resolved inside the tree: if a base has `/var/tmp -> /tmp`, the host's own /tmp must not be emptied.
        let parent = within(tree.root(), Path::new(parent))?;
        for entry in fs::read_dir(parent).into_iter().flatten() {
            let entry = entry?;
            if matches(name, &entry.file_name().to_string_lossy()) {
                remove(&entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
            }
        }
    }
    Ok(())
}

/// Matches a name with a pattern that has at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
        None => pattern == name,
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn write_identity(tree: &Tree, rootfs: &RootfsSource, epoch: u64) -> Result<()> {
    let ProductIdentity { id, name, version } = &rootfs.identity;
    let path = tree.path("usr/lib/os-release");
    let base = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.context("reading the base's usr/lib/os-release")?,
    };
    let kept = base.lines().filter(|line| {
        !["PRETTY_NAME=", "IMAGE_ID=", "IMAGE_VERSION="].iter().any(|key| line.starts_with(key))
    });
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    text.push_str(&format!("PRETTY_NAME=\"{name} {version}\"\nIMAGE_ID={id}\nIMAGE_VERSION={version}\n"));
    files::write_atomically(&path, text.as_bytes(), 0o644)?;
    files::write_atomically(&tree.path("etc/hostname"), format!("{id}\n").as_bytes(), 0o644)?;
    // Present and empty: then systemd neither fails on a read-only /etc nor runs its first-boot questions.
    files::write_atomically(&tree.path("etc/machine-id"), b"", 0o444)?;
    // The earliest time that a machine with an empty clock battery assumes.
    let clock = tree.path("usr/lib/clock-epoch");
    files::write_atomically(&clock, b"", 0o644)?;
    let time = TimeSpec::new(i64::try_from(epoch)?, 0);
    utimensat(nix::fcntl::AT_FDCWD, &clock, &time, &time, UtimensatFlags::FollowSymlink)?;
    Ok(())
}

/// Keeps a copy of /var for new nodes, moves dpkg's records to a place in the read-only image, and makes the mount
/// points of partitions. The copy costs nothing: squashfs stores equal files once.
fn settle_var(tree: &Tree) -> Result<()> {
    if tree.path("var/lib/dpkg").is_dir() {
        files::make_directory(&tree.path("usr/lib/sysimage"), 0o755)?;
        fs::rename(tree.path("var/lib/dpkg"), tree.path("usr/lib/sysimage/dpkg"))?;
        symlink("../../usr/lib/sysimage/dpkg", tree.path("var/lib/dpkg"))?;
    }
    for directory in ["oem", "var/lib/harvester/defaultdisk", "usr/share/factory"] {
        files::make_directory(&tree.path(directory), 0o755)?;
    }
    let copy = Invocation::new("cp").arg("--archive").arg(tree.path("var")).arg(tree.path(FACTORY_VAR));
    SystemRunner.run(&copy).context("copying /var")?;
    Ok(())
}

/// Makes the mount points of a running system that not every base has: `/` is read-only.
fn make_mount_points(tree: &Tree) -> Result<()> {
    for (name, mode) in [
        ("boot", 0o755),
        ("dev", 0o755),
        ("home", 0o755),
        ("opt", 0o755),
        ("proc", 0o555),
        ("root", 0o700),
        ("run", 0o755),
        ("srv", 0o755),
        ("sys", 0o555),
        ("tmp", 0o1777),
        ("var/tmp", 0o1777),
    ] {
        let path = tree.path(name);
        if path.symlink_metadata().is_err() {
            files::make_directory(&path, 0o755)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_one_star_at_most() {
        assert!(
            matches("ssh_host_*", "ssh_host_rsa_key") && matches("*-old", "status-old") && matches("*", "x")
        );
        assert!(!matches("*-old", "old") && !matches("vmlinuz", "vmlinuz.old"));
    }

    #[test]
    fn the_configuration_of_the_kernel_stays_with_its_modules_and_has_a_relative_link_in_boot() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        for path in ["boot", "usr/lib/modules/6.12.1-amd64"] {
            fs::create_dir_all(tree.path(path)).unwrap();
        }
        for release in ["6.12.1-amd64", "of-no-kernel"] {
            fs::write(tree.path(&format!("boot/config-{release}")), release).unwrap();
        }
        let releases = keep_kernel_configurations(&tree).unwrap();
        clean(&tree).unwrap();
        link_kernel_configurations(&tree, &releases).unwrap();
        let link = tree.path("boot/config-6.12.1-amd64");
        assert!(fs::read_link(&link).unwrap().is_relative());
        assert_eq!(fs::read_to_string(&link).unwrap(), "6.12.1-amd64");
        assert!(!tree.path("boot/config-of-no-kernel").is_symlink());
        let kept = fs::read_to_string(tree.path("usr/lib/modules/6.12.1-amd64/config")).unwrap();
        assert_eq!(kept, "6.12.1-amd64");
        assert!(!tree.path("usr/lib/modules/of-no-kernel").exists());
    }

    #[test]
    fn authorities_of_an_overlay_need_the_program_that_lists_them() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        let overlay = directory.path().join("overlay");
        fs::create_dir_all(overlay.join("etc")).unwrap();
        trust_authorities(&tree, std::slice::from_ref(&overlay)).unwrap();
        fs::create_dir_all(overlay.join(AUTHORITIES)).unwrap();
        let told = base::failure::render(&trust_authorities(&tree, &[overlay]).unwrap_err());
        assert!(told.contains("Include the package ca-certificates"), "{told}");
    }

    #[test]
    fn a_tree_is_refused_where_a_unit_that_starts_everything_is_masked_empty_or_missing() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        let overlays = product::ProductOverlays::below(directory.path().to_owned());
        tree.overlay(&overlays.directory(product::ProductTree::Rootfs).unwrap()).unwrap();
        let told = || check_product(&tree).map_err(|error| base::failure::render(&error));
        let text = told().unwrap_err();
        assert!(text.contains("/usr/bin/installer is missing") && !text.contains("nqrust-"), "{text}");
        fs::create_dir_all(tree.path("usr/bin")).unwrap();
        fs::write(tree.path("usr/bin/installer"), "x").unwrap();
        told().unwrap();
        let unit = tree.path("usr/lib/systemd/system/nqrust-install.service");
        fs::write(&unit, "").unwrap();
        assert!(told().unwrap_err().contains("nqrust-install.service"));
        fs::remove_file(&unit).unwrap();
        symlink("/dev/null", &unit).unwrap();
        let text = told().unwrap_err();
        assert!(text.contains("nqrust-install.service is missing, empty or masked"), "{text}");
    }

    #[test]
    fn cleaning_empties_directories_but_keeps_them() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        for file in
            ["boot/vmlinuz", "var/log/apt/history.log", "etc/ssh/ssh_host_rsa_key", "etc/ssh/sshd_config"]
        {
            fs::create_dir_all(tree.path(file).parent().unwrap()).unwrap();
            fs::write(tree.path(file), "x").unwrap();
        }
        clean(&tree).unwrap();
        assert!(tree.path("boot").is_dir() && tree.path("var/log").is_dir());
        assert!(tree.path("etc/ssh/sshd_config").exists());
        assert!(!tree.path("boot/vmlinuz").exists() && !tree.path("etc/ssh/ssh_host_rsa_key").exists());
    }

    #[test]
    fn cleaning_follows_links_inside_the_tree_and_never_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, host) = (Tree::empty(directory.path()).unwrap(), directory.path().join("host"));
        for path in [host.join("kept"), tree.path(host.join("gone").to_str().unwrap())] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        fs::create_dir_all(tree.path("var")).unwrap();
        symlink(&host, tree.path("var/tmp")).unwrap();
        clean(&tree).unwrap();
        assert!(host.join("kept").exists());
        assert!(!tree.path(host.join("gone").to_str().unwrap()).exists());
    }
}
