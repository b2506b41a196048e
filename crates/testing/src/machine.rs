//! The files by which the kernel and udev describe a machine, below a directory.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use base::size::ByteSize;

use crate::specimens::Specimen;

/// `sys`, `dev` and `proc` of a machine, as far as an inventory reads them.
pub struct MachineTree(tempfile::TempDir, RefCell<Vec<Specimen>>);

impl MachineTree {
    pub fn new(mountinfo: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap(), RefCell::default());
        machine.file("proc/self/mountinfo", mountinfo);
        machine.file("proc/swaps", "Filename Type Size Used Priority\n");
        fs::create_dir_all(machine.0.path().join("sys/block")).unwrap();
        machine
    }

    /// The directory that stands for `/`.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub fn disk(&self, name: &str, number: &str, size: ByteSize) {
        self.file(&format!("sys/block/{name}/size"), &format!("{}\n", size.get() / 512));
        self.file(&format!("sys/block/{name}/dev"), &format!("{number}\n"));
        self.link(&format!("sys/dev/block/{number}"), &format!("../../block/{name}"));
        self.link(&format!("sys/class/block/{name}"), &format!("../../block/{name}"));
    }

    pub fn partition(&self, disk: &str, name: &str, number: &str) {
        self.placed(disk, name, number, ByteSize::mib(1), ByteSize::mib(2));
    }

    pub fn placed(&self, disk: &str, name: &str, number: &str, start: ByteSize, size: ByteSize) {
        let [start, size] = [start, size].map(|bytes| (bytes.get() / 512).to_string());
        // The kernel counts partitions by the digits at the end of their names.
        let place = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        for (file, text) in [("partition", place), ("start", &start), ("size", &size), ("dev", number)] {
            self.file(&format!("sys/block/{disk}/{name}/{file}"), text);
        }
        self.link(&format!("sys/dev/block/{number}"), &format!("../../block/{disk}/{name}"));
        self.link(&format!("sys/class/block/{name}"), &format!("../../block/{disk}/{name}"));
    }

    /// Makes the node of a disk or partition hold what `make` writes.
    pub fn content(&self, name: &str, size: ByteSize, make: fn(&Specimen) -> &Specimen) {
        let specimen = Specimen::new(size.get(), 512);
        make(&specimen);
        self.node(name, specimen);
    }

    /// Makes the node of a disk or partition that file.
    pub fn node(&self, name: &str, specimen: Specimen) {
        let node = self.0.path().join("dev").join(name);
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&node);
        symlink(&specimen.path, node).unwrap();
        self.1.borrow_mut().push(specimen);
    }
}

/// Makes a block device as sysfs has it, with a link of udev to it.
pub fn block_device(root: &Path, name: &str, number: &str, link: Option<&str>) {
    let at = root.join("sys/class/block").join(name);
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("dev"), format!("{number}\n")).unwrap();
    fs::create_dir_all(root.join("sys/dev/block")).unwrap();
    symlink(format!("../../class/block/{name}"), root.join("sys/dev/block").join(number)).unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    fs::write(root.join("dev").join(name), "").unwrap();
    if let Some(link) = link {
        let link = root.join(link.trim_start_matches('/'));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(root.join("dev").join(name), link).unwrap();
    }
}

/// An array over partitions with that name and those states.
pub fn put_array(
    root: &Path,
    device: &str,
    name: &str,
    degraded: u32,
    action: &str,
    members: &[(&str, &str)],
) {
    let put = |path: String, text: &str| {
        let path = root.join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    let md = format!("block/{device}/md");
    put(format!("{md}/raid_disks"), "2");
    put(format!("{md}/degraded"), &degraded.to_string());
    put(format!("{md}/sync_action"), action);
    for (member, state) in members {
        put(format!("{md}/dev-{member}/state"), state);
        put(format!("class/block/{member}/uevent"), &format!("DEVTYPE=partition\nPARTNAME={name}"));
    }
}

/// The keymaps of these files, as Debian has them.
pub fn put_keymaps(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join("usr/share/keymaps").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
}
