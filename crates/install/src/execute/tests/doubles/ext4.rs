//! A machine whose file systems are real: made by `mkfs.ext4` in a file, filled by `debugfs`, and written to the disk of the test
//! as the kernel would at an unmount: all changes, in any order, then a flush. Needs neither root nor devices.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use nix::unistd::{Whence, lseek};

use super::TestDisk;
use crate::execute::{BlockDevice, Host, MadeArray, MountAccess, MountedFilesystem};
use crate::plan::{Partition, PartitionName, Plan, Target};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;

/// The bytes of a file system that are compared, and written, at once.
const PIECE: u64 = 64 << 10;

/// What is at each path: the digest of a file, and the mode.
type Listing = BTreeMap<PathBuf, (Option<Digest>, u32)>;

#[derive(Clone)]
pub(crate) struct Ext4Machine(Arc<Inner>);

struct Inner {
    disk: Arc<TestDisk>,
    partitions: Vec<Partition>,
    files: tempfile::TempDir,
    /// The content of each file system.
    held: Mutex<BTreeMap<String, Listing>>,
}

impl Ext4Machine {
    pub(crate) fn new(disk: &Arc<TestDisk>, plan: &Plan) -> Self {
        let (disk, partitions) = (disk.clone(), plan.partitions.clone());
        let files = tempfile::tempdir().unwrap();
        Self(Arc::new(Inner { disk, partitions, files, held: Mutex::default() }))
    }
}

impl Inner {
    fn image(&self, name: &str) -> PathBuf {
        self.files.path().join(format!("{name}.img"))
    }

    fn root(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn mkfs(&self, make: &Invocation) -> Result<()> {
        let (node, options) = make.args.split_last().unwrap();
        let name = Path::new(node).file_name().unwrap().to_str().unwrap();
        let partition = self.partitions.iter().find(|partition| partition.name.as_str() == name).unwrap();
        let _ = fs::remove_dir_all(self.root(name));
        fs::create_dir(self.root(name))?;
        self.held.lock().unwrap().insert(name.into(), BTreeMap::new());
        let _ = fs::remove_file(self.image(&format!("{name}-before")));
        File::create(self.image(name))?.set_len(partition.size.get())?;
        SystemRunner.run(&Invocation::new("mkfs.ext4").args(options).arg(self.image(name)))?;
        self.write_out(name)
    }

    /// Checks the file system that an earlier run has left on the disk, and keeps it from then on.
    fn check(&self, check: &Invocation) -> Result<()> {
        let (node, options) = check.args.split_last().unwrap();
        let name = Path::new(node).file_name().unwrap().to_str().unwrap();
        let image = self.copy_in(name, name)?;
        let size = fs::metadata(&image)?.len();
        copy_data(&File::open(&image)?, 0..size, &File::create(self.image(&format!("{name}-before")))?);
        let checked = SystemRunner.run(&Invocation::new("e2fsck").args(options).arg(&image));
        self.write_out(name)?;
        checked?;
        let now = listing(&self.read_in(name, name)?);
        self.held.lock().unwrap().insert(name.into(), now);
        Ok(())
    }

    /// Writes the directory that was mounted into the file system, and that to the disk.
    fn unmount(&self, name: &str) -> Result<()> {
        let now = listing(&self.root(name));
        let before = self.held.lock().unwrap().insert(name.into(), now.clone()).unwrap();
        let mut commands = String::new();
        for (path, (digest, _)) in before.iter().rev().filter(|(path, _)| !now.contains_key(*path)) {
            let remove = if digest.is_some() { "rm" } else { "rmdir" };
            commands.push_str(&format!("{remove} /{}\n", path.display()));
        }
        for (path, (digest, mode)) in &now {
            let place = path.display();
            if before.get(path) == Some(&(*digest, *mode)) {
                continue;
            }
            let known = before.contains_key(path);
            if known && digest.is_some() {
                commands.push_str(&format!("rm /{place}\n"));
            }
            match digest {
                None if known => {}
                None => commands.push_str(&format!("mkdir /{place}\n")),
                Some(_) => {
                    let from = self.root(name).join(path);
                    commands.push_str(&format!("write {} /{place}\n", from.display()));
                }
            }
            commands.push_str(&format!("sif /{place} mode 0{mode:o}\n"));
        }
        let script = self.root(&format!("{name}.debugfs"));
        fs::write(&script, commands)?;
        SystemRunner
            .run(&Invocation::new("debugfs").arg("-w").arg("-f").arg(script).arg(self.image(name)))?;
        self.write_out(name)
    }

    /// The real content of a partition of the disk, as the file system `copy`.
    fn copy_in(&self, name: &str, copy: &str) -> Result<PathBuf> {
        let partition = self.partitions.iter().find(|partition| partition.name.as_str() == name).unwrap();
        let (image, start) = (self.image(copy), partition.start.get());
        copy_data(self.disk.file(), start..partition.end().get(), &File::create(&image)?);
        let mut magic = [0; 2];
        File::open(&image)?.read_exact_at(&mut magic, 1024 + 0x38)?;
        anyhow::ensure!(magic == [0x53, 0xef], "mounting /dev/{name}: wrong fs type");
        Ok(image)
    }

    /// The files of a partition of the disk, in the directory `copy`.
    fn read_in(&self, name: &str, copy: &str) -> Result<PathBuf> {
        let (image, root) = (self.copy_in(name, copy)?, self.root(copy));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root)?;
        let dump = format!("rdump / {}", root.display());
        SystemRunner.run(&Invocation::new("debugfs").args(["-R", &dump]).arg(image))?;
        Ok(root)
    }

    fn write_out(&self, name: &str) -> Result<()> {
        let partition = self.partitions.iter().find(|partition| partition.name.as_str() == name).unwrap();
        let image = File::open(self.image(name))?;
        // As it was written last, whatever became of that on the disk: the kernel does not read it there again either.
        let before = File::options().read(true).open(self.image(&format!("{name}-before"))).ok();
        let (mut at, mut new) = (0, vec![0; PIECE as usize]);
        while let Ok(data) = lseek(&image, at, Whence::SeekData) {
            let place = data.cast_unsigned() / PIECE * PIECE;
            let length = usize::try_from(PIECE.min(partition.size.get() - place))?;
            image.read_exact_at(&mut new[..length], place)?;
            let mut old = vec![0; length];
            if let Some(before) = &before {
                before.read_exact_at(&mut old, place)?;
            }
            if before.is_none() || old != new[..length] {
                self.disk.write_at(partition.start.get() + place, &new[..length])?;
            }
            at = (place + PIECE).cast_signed();
        }
        copy_data(&image, 0..partition.size.get(), &File::create(self.image(&format!("{name}-before")))?);
        Ok(self.disk.flush()?)
    }
}

/// Copies a part of a sparse file to the start of another one.
pub(crate) fn copy_data(from: &File, part: Range<u64>, to: &File) {
    to.set_len(part.end - part.start).unwrap();
    let (mut at, mut buffer) = (part.start, vec![0; 1 << 16]);
    while let Ok(data) = lseek(from, at.cast_signed(), Whence::SeekData) {
        let place = data.cast_unsigned();
        if place >= part.end {
            break;
        }
        let count = usize::try_from((part.end - place).min(1 << 16)).unwrap();
        from.read_exact_at(&mut buffer[..count], place).unwrap();
        to.write_all_at(&buffer[..count], place - part.start).unwrap();
        at = place + count as u64;
    }
}

/// The entries below `root`: directories have no digest.
fn listing(root: &Path) -> Listing {
    let entries = walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name().into_iter();
    let entry = |entry: walkdir::DirEntry| {
        let mode = entry.metadata().unwrap().permissions().mode();
        let digest = entry.file_type().is_file().then(|| Digest::of(&fs::read(entry.path()).unwrap()));
        (entry.path().strip_prefix(root).unwrap().to_owned(), (digest, mode))
    };
    entries.map(|found| entry(found.unwrap())).collect()
}

impl Runner for Ext4Machine {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        match invocation.program.to_str() {
            Some("mkfs.ext4") => self.0.mkfs(invocation),
            Some("e2fsck") => self.0.check(invocation),
            _ => panic!("{}", invocation.display()),
        }
        .map(|()| Vec::new())
    }
}

impl Host for Ext4Machine {
    fn partition_nodes(
        &self,
        _: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>> {
        let node = |name: PartitionName| (name, Path::new("/dev").join(name.as_str()));
        Ok(partitions.iter().map(|partition| node(partition.name)).collect())
    }

    fn firmware_variables(&self) -> Option<PathBuf> {
        None
    }

    fn mount(&self, node: &Path, access: MountAccess) -> Result<Box<dyn MountedFilesystem>> {
        let name = node.file_name().context("no name")?.to_str().context("no text")?.to_owned();
        let point = match access {
            MountAccess::Write => self.0.root(&name),
            MountAccess::Read | MountAccess::Look => self.0.read_in(&name, &format!("{name}-read"))?,
        };
        Ok(Box::new(Ext4Mount { machine: self.0.clone(), name, point, access }))
    }

    fn array_node(&self, name: PartitionName) -> Result<PathBuf> {
        anyhow::bail!("no array of {}", name.as_str())
    }

    fn read_from(&self, _: &MadeArray, _: Option<usize>) -> Result<()> {
        Ok(())
    }
}

struct Ext4Mount {
    machine: Arc<Inner>,
    name: String,
    point: PathBuf,
    access: MountAccess,
}

impl MountedFilesystem for Ext4Mount {
    fn path(&self) -> &Path {
        &self.point
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        match self.access {
            MountAccess::Write => self.machine.unmount(&self.name),
            MountAccess::Read | MountAccess::Look => Ok(()),
        }
    }
}
