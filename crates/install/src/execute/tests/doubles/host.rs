//! A machine whose mounts are directories.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;

use crate::execute::{Host, MadeArray, MountAccess, MountedFilesystem};
use crate::plan::{Partition, PartitionName, Target};
use machine::write_latency::WriteLatency;

thread_local! {
    /// Those of the test that this thread runs; they go with it.
    static DIRECTORIES: RefCell<Vec<tempfile::TempDir>> = const { RefCell::new(Vec::new()) };
}

/// Devices of partitions are names, file systems are directories.
pub(crate) struct TestHost {
    pub(crate) root: PathBuf,
    pub(crate) mounted: AtomicUsize,
    /// The disks whose new tables the kernel was asked to read.
    pub(crate) told: Mutex<Vec<String>>,
    /// The members that arrays were made to read from.
    pub(crate) read_from: Mutex<Vec<Option<usize>>>,
    /// What the disk of etcd can do; without it nothing is measured.
    pub(crate) latency: Mutex<Option<WriteLatency>>,
}

pub(crate) struct TestMount<'a>(PathBuf, &'a AtomicUsize);

impl MountedFilesystem for TestMount<'_> {
    fn path(&self) -> &Path {
        &self.0
    }
    fn unmount(self: Box<Self>) -> Result<()> {
        self.1.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl TestHost {
    pub(crate) fn new() -> &'static Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        DIRECTORIES.with_borrow_mut(|directories| directories.push(directory));
        // Mounts borrow the host for as long as they like.
        Box::leak(Box::new(Self {
            root,
            mounted: AtomicUsize::new(0),
            told: Mutex::default(),
            read_from: Mutex::default(),
            latency: Mutex::default(),
        }))
    }

    pub(crate) fn path(&self, partition: &str) -> PathBuf {
        self.root.join(partition)
    }
}

impl Host for &'static TestHost {
    fn partition_nodes(
        &self,
        disk: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>> {
        self.told.lock().unwrap().push(disk.name.clone());
        let node = |name: PartitionName| (name, Path::new("/dev").join(name.as_str()));
        Ok(partitions.iter().map(|partition| node(partition.name)).collect())
    }

    fn firmware_variables(&self) -> Option<PathBuf> {
        Some(self.path("efivars")).filter(|path| path.exists())
    }

    fn mount(&self, node: &Path, _: MountAccess) -> Result<Box<dyn MountedFilesystem>> {
        let path = self.path(node.file_name().unwrap().to_str().unwrap());
        std::fs::create_dir_all(&path).unwrap();
        self.mounted.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(TestMount(path, &self.mounted)))
    }

    fn write_latency(&self, root: &Path) -> Option<Result<WriteLatency>> {
        assert!(root.ends_with("persistent"), "{}", root.display());
        self.latency.lock().unwrap().map(Ok)
    }

    fn array_node(&self, name: PartitionName) -> Result<PathBuf> {
        Ok(Path::new("/dev").join(name.as_str()))
    }

    fn read_from(&self, _: &MadeArray, which: Option<usize>) -> Result<()> {
        self.read_from.lock().unwrap().push(which);
        Ok(())
    }
}
