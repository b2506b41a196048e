//! The OS image of a live system: on the medium that it was started from, or fetched into memory.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::open::judged;
use super::watch::{damage_of, paths_of, places_of};
use base::cancel::Cancel;
use base::command::Runner;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::progress::Progress;
use formats::squashfs::Expansion;
use formats::verity::{BLOCK_BYTES, VerityParameters, VerityTree, tree_bytes};
use install::execute::DamagedPart;
use machine::paths::below;
use machine::verity_device::{AtDamage, VerityDevice, loop_device};
use medium::payload_sources::{BOOT_MEDIUM, LocalMedium, expected_manifest, read_manifest};
use model::release::{Payload, Purpose, ROOTFS_TREE};
use model::release_manifest::ReleaseManifest;

/// Where the image of a live system is mounted, below its overlay.
const MOUNTED: &str = "/run/rootfsbase";
/// What to do about a medium that is damaged.
pub const WRITE_AGAIN: &str = "Write the medium again, or take another one.";
/// What it means that the kernel finds damage in an image that a netboot has in memory.
pub const MEMORY_DAMAGED: &str = "The OS image in memory is damaged: check the memory of this machine.";

/// The OS image on a medium, or beside the files of one.
#[derive(Clone, Debug)]
pub struct LiveImage {
    release: ReleaseManifest,
    image: PathBuf,
    /// In bytes, whole blocks.
    length: u64,
    /// Its digest, the salt of the tree.
    digest: Digest,
    root_hash: Digest,
    tree: PathBuf,
}

/// Makes [`ROOT_DEVICE`](machine::verity_device::ROOT_DEVICE) of the image of a live system with the kernel command line `line`. `root` is
/// that of the initrd, which has the trust store of its release; `medium` the directory with the files of the medium, and `image` the file
/// with the image if it is elsewhere. Returns the release and who has signed it: a clause.
///
/// # Errors
/// [`Class::Verification`] if the manifest is not that of this boot or not what its makers have signed, or does not fit the image.
pub fn open_live(
    root: &Path,
    line: &str,
    medium: &Path,
    image: Option<&Path>,
    runner: &dyn Runner,
) -> Result<String> {
    let live = LiveImage::at(line, medium, image)?;
    let origin = judged(root, &live.release)?
        .map_err(|error| error.failure(&format!("the medium at {}", medium.display()), WRITE_AGAIN))?;
    if image.is_some() {
        live.make_tree()?;
    }
    let device = VerityDevice {
        device: loop_device(&live.image, runner)?,
        length: live.length,
        tree_device: loop_device(&live.tree, runner)?,
        tree: 0,
        salt: live.digest,
        root_hash: live.root_hash,
        at_damage: AtDamage::Fail,
    };
    device.make(runner)?;
    Ok(format!("{} {}, {origin}", live.release.name, live.release.version))
}

impl LiveImage {
    /// The image of this live system, for the kernel command line `line`; none if it was not started from a medium.
    pub fn of_boot_medium(root: &Path, line: &str) -> Result<Option<Self>> {
        boot_medium(root).map(|medium| Self::at(line, &medium, None)).transpose()
    }

    /// What it means that the kernel has found damage in the image of this live system, without looking for where it is.
    #[must_use]
    pub fn damage_notice(root: &Path) -> String {
        match boot_medium(root) {
            Some(_) => {
                format!("A part of the OS image on this medium is damaged and cannot be read. {WRITE_AGAIN}")
            }
            None => MEMORY_DAMAGED.to_owned(),
        }
    }

    fn at(line: &str, medium: &Path, image: Option<&Path>) -> Result<Self> {
        let release = read_manifest(&LocalMedium::new(medium), expected_manifest(line)?)?;
        let lacks = |why: &str| {
            let what = format!("the OS image of the medium at {} cannot be checked", medium.display());
            Failure::new(Class::Verification, what).because(anyhow::anyhow!(why.to_owned())).hint(WRITE_AGAIN)
        };
        let Payload { path, size, sha256, .. } =
            release.payload(Purpose::Rootfs).ok_or_else(|| lacks("its release.json names none"))?.clone();
        let root_hash = release.iso.as_ref().and_then(|iso| iso.rootfs_root_hash);
        let root_hash = root_hash.ok_or_else(|| lacks("its release.json has no root hash of it"))?;
        let image = image.map_or_else(|| medium.join(path), Path::to_owned);
        let found = fs::metadata(&image).with_context(|| format!("looking at {}", image.display()))?.len();
        if found != size || size == 0 || !size.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(lacks(&format!("it has {found} bytes, and its release.json says {size}")).into());
        }
        let tree = medium.join(ROOTFS_TREE);
        Ok(Self { release, image, length: size, digest: sha256, root_hash, tree })
    }

    /// Makes the hash tree of an image in memory, which came without one: whether it has the right root hash shows whether the image is right.
    fn make_tree(&self) -> Result<()> {
        let what = || format!("reading {}", self.image.display());
        let tree = VerityTree::of_image(self.digest, File::open(&self.image).with_context(what)?)
            .with_context(what)?;
        if tree.root != self.root_hash {
            let what = format!("the OS image in {} is not that of its release", self.image.display());
            let why =
                anyhow::anyhow!("its root hash is {}, and release.json says {}", tree.root, self.root_hash);
            return Err(Failure::new(Class::Verification, what).because(why).into());
        }
        fs::write(&self.tree, tree.bytes).with_context(|| format!("writing {}", self.tree.display()))
    }

    /// Reads the image and its tree as a whole, and returns what is damaged: each a clause. `root` is where the system sees its own files.
    pub fn damage(&self, root: &Path, progress: &Progress, cancel: &Cancel) -> Result<Vec<String>> {
        let stored = self.stored_tree();
        let parameters = VerityParameters::of_image(self.digest);
        let tree = VerityTree::of_stored(&stored, parameters, self.length, self.root_hash);
        let mut damaged = Vec::new();
        // The hashes of the blocks may be right below those of a level above them that are not.
        if tree.as_ref().is_none_or(|tree| tree.bytes != stored) {
            damaged.push(DamagedPart::HashTree);
        }
        if let Some(tree) = tree {
            let blocks = self.wrong_blocks(&tree, progress, cancel)?;
            damaged.extend((!blocks.is_empty()).then_some(DamagedPart::Blocks(blocks)));
        }
        let mounted = below(root, MOUNTED);
        let files = |blocks: &[u64]| {
            let numbers = self.files_in(blocks);
            numbers.map(|numbers| paths_of(&mounted, &numbers)).unwrap_or_default()
        };
        let text = |part| damage_of(part, &self.release.version, "on the medium", &files);
        Ok(damaged.iter().map(text).collect())
    }

    /// The tree as the medium has it, as far as it can be read.
    fn stored_tree(&self) -> Vec<u8> {
        let mut stored = Vec::new();
        // What is missing at its end is damage like any other.
        let _ = File::open(&self.tree)
            .and_then(|file| file.take(tree_bytes(self.length)).read_to_end(&mut stored));
        stored
    }

    /// The numbers of the blocks of the image that are not what their hashes say, or cannot be read.
    fn wrong_blocks(&self, tree: &VerityTree, progress: &Progress, cancel: &Cancel) -> Result<Vec<u64>> {
        let file = File::open(&self.image).with_context(|| format!("opening {}", self.image.display()))?;
        let mut step = progress.step("root", "Reading the OS image of the medium", Some(self.length));
        let (mut block, mut wrong) = (vec![0; BLOCK_BYTES], Vec::new());
        for number in 0..self.length / BLOCK_BYTES as u64 {
            cancel.check()?;
            let read = file.read_exact_at(&mut block, number * BLOCK_BYTES as u64);
            if read.is_err() || !tree.has_block(number, &block) {
                wrong.push(number);
            }
            step.advance(BLOCK_BYTES as u64);
        }
        step.done();
        Ok(wrong)
    }

    /// The inode numbers of the files that have data in these blocks.
    fn files_in(&self, blocks: &[u64]) -> Result<Vec<u32>> {
        let file = File::open(&self.image)?;
        Ok(Expansion::plan(&file)?.files_stored_in(&places_of(blocks))?)
    }
}

/// The medium that a live system was started from; none if its image was fetched into memory.
fn boot_medium(root: &Path) -> Option<PathBuf> {
    let medium = below(root, BOOT_MEDIUM);
    medium.join(ROOTFS_TREE).exists().then_some(medium)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use base::failure::{class_of, render};
    use model::boot::parameter;
    use model::release::{MANIFEST, Release, SIGNATURES};
    use testing::iso;
    use testing::release::contents;
    use testing::runner::ScriptedRunner;

    static NEVER: AtomicBool = AtomicBool::new(false);

    /// The files of a live system's medium, below the root directory of an initrd.
    struct Live {
        root: tempfile::TempDir,
        medium: PathBuf,
        image: PathBuf,
        line: String,
    }

    impl Live {
        fn new(release: &Release) -> Self {
            let root = tempfile::tempdir().unwrap();
            let medium = below(root.path(), BOOT_MEDIUM);
            let payload = release.payload(Purpose::Rootfs).unwrap();
            let image = medium.join(&payload.path);
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            let (_, bytes) = contents().iter().find(|(known, _)| known.path == payload.path).unwrap();
            fs::write(&image, bytes).unwrap();
            fs::write(medium.join(ROOTFS_TREE), iso::tree(&iso::release()).bytes).unwrap();
            fs::write(medium.join(MANIFEST), release.to_bytes()).unwrap();
            let line = format!("quiet {}={}", parameter::RELEASE, Digest::of(&release.to_bytes()).oci());
            Self { root, medium, image, line }
        }

        fn open(&self, image: Option<&Path>, runner: &ScriptedRunner) -> Result<String> {
            open_live(self.root.path(), &self.line, &self.medium, image, runner)
        }

        fn damage(&self) -> Vec<String> {
            let image = LiveImage::of_boot_medium(self.root.path(), &self.line).unwrap().unwrap();
            image.damage(self.root.path(), &Progress::silent(), &Cancel::new(&NEVER)).unwrap()
        }

        fn flip(file: &Path, at: u64) {
            let file = File::options().read(true).write(true).open(file).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    }

    fn system() -> ScriptedRunner {
        ScriptedRunner::silent().answer("rootfs.squashfs", "/dev/loop0\n").answer(ROOTFS_TREE, "/dev/loop1\n")
    }

    #[test]
    fn the_image_of_a_medium_is_opened_by_the_root_hash_of_its_manifest() {
        let release = iso::release();
        let (live, runner) = (Live::new(&release), system());
        assert_eq!(live.open(None, &runner).unwrap(), "NQRust Hypervisor 0.1.0, not signed");
        let payload = release.payload(Purpose::Rootfs).unwrap();
        let blocks = payload.size / 4096;
        let root = release.iso.as_ref().unwrap().rootfs_root_hash.unwrap();
        let create = format!(
            "dmsetup create nqrust-root --readonly --table 0 {} verity 1 /dev/loop0 /dev/loop1 4096 4096 {blocks} 1 sha256 {root} {}",
            blocks * 8,
            payload.sha256
        );
        assert_eq!(runner.commands().last(), Some(&create));
        assert!(live.damage().is_empty());
    }

    #[test]
    fn what_contradicts_the_manifest_or_is_not_of_this_boot_is_not_opened() {
        let release = iso::release();
        let opened = |change: &dyn Fn(&mut Live)| {
            let (mut live, runner) = (Live::new(&release), system());
            change(&mut live);
            let error = live.open(None, &runner).unwrap_err();
            assert_eq!((class_of(&error), runner.commands().len()), (Class::Verification, 0));
            render(&error)
        };
        let other = opened(&|live| live.line = format!("{}={}", parameter::RELEASE, Digest::of(b"").oci()));
        assert!(other.contains("is not the one of this boot"), "{other}");
        let torn = opened(&|live| fs::write(live.medium.join(SIGNATURES), "torn").unwrap());
        assert!(torn.contains("is not trusted"), "{torn}");
        let short = opened(&|live| fs::write(&live.image, "short").unwrap());
        assert!(short.contains("it has 5 bytes"), "{short}");
        let old = Release { iso: None, ..iso::release() };
        let error = Live::new(&old).open(None, &system()).unwrap_err();
        assert!(render(&error).contains("has no root hash"), "{}", render(&error));
    }

    #[test]
    fn an_image_in_memory_gets_its_tree_and_is_not_opened_if_it_is_another_one() {
        let release = iso::release();
        let (live, runner) = (Live::new(&release), system());
        let tree = live.medium.join(ROOTFS_TREE);
        fs::remove_file(&tree).unwrap();
        live.open(Some(&live.image), &runner).unwrap();
        assert!(fs::read(&tree).unwrap() == iso::tree(&release).bytes);
        Live::flip(&live.image, 500_000);
        let again = system();
        let error = live.open(Some(&live.image), &again).unwrap_err();
        assert_eq!((class_of(&error), again.commands().len()), (Class::Verification, 0));
        assert!(render(&error).contains("is not that of its release"), "{}", render(&error));
    }

    #[test]
    fn damage_of_a_medium_is_told_with_its_blocks_and_files() {
        let live = Live::new(&iso::release());
        Live::flip(&live.image, 7 * 4096 + 5);
        let block = "damage in block 7 (byte 28672) of the OS image of 0.1.0 on the medium";
        assert_eq!(live.damage(), [block]);
        assert!(LiveImage::damage_notice(live.root.path()).ends_with(WRITE_AGAIN));
        assert_eq!(LiveImage::damage_notice(Path::new("/nonexistent")), MEMORY_DAMAGED);
        // The image has one file, the first of its inodes.
        let image = LiveImage::of_boot_medium(live.root.path(), &live.line).unwrap().unwrap();
        assert_eq!(image.files_in(&[7]).unwrap(), [1]);
        let (tree, damaged) =
            (live.medium.join(ROOTFS_TREE), "damage in the hash tree of 0.1.0 on the medium");
        // The block of the root, then one of the hashes of blocks.
        Live::flip(&tree, 4096 + 1);
        assert_eq!(live.damage(), [damaged, block]);
        Live::flip(&tree, 2 * 4096 + 1);
        assert_eq!(live.damage(), [damaged]);
        fs::remove_file(live.medium.join(ROOTFS_TREE)).unwrap();
        assert!(LiveImage::of_boot_medium(live.root.path(), &live.line).unwrap().is_none());
    }
}
