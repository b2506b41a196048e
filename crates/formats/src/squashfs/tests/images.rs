//! Trees with all that a squashfs can hold, and images of them.

use std::fs;
use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use testing::{privileges, programs};

use crate::iso9660::Source;
use crate::squashfs::{Compression, Expansion};

pub(super) struct Tree {
    pub(super) root: PathBuf,
    _directory: TempDir,
}

impl Tree {
    /// Nothing of its kind missing: files of all lengths, equal ones, holes, links, devices, large directories, attributes.
    pub(super) fn with_everything() -> Option<Self> {
        let mut tree = Archive::default();
        for length in [1, 4095, 4096, 4097, 131_071, 131_072, 131_073, 400_000, 3_000_000] {
            tree.file(&format!("text-{length}"), &text(length));
            tree.file(&format!("noise-{length}"), &noise(length));
        }
        tree.file("empty", b"");
        tree.file("again/text-400000", &text(400_000));
        tree.file("again/noise-131073", &noise(131_073));
        // The same blocks with another end.
        tree.file("again/longer", &[text(393_216), noise(100)].concat());
        let mut hole = vec![0; 1 << 20];
        tree.file("hole", &hole);
        hole[600_000] = 1;
        hole.extend(text(70_000));
        tree.file("hole-in-the-middle", &hole);
        // More than 256 entries below one header, and directories with an index.
        for number in 0..3000 {
            let name = format!("large/an-entry-with-a-rather-long-name-{number:05}");
            tree.file(&name, if number % 7 == 0 { b"seven" } else { b"" });
        }
        for depth in 1..40 {
            tree.entry(EntryType::Directory, &"d/".repeat(depth), |header| header.set_mode(0o2750));
        }
        tree.link(EntryType::Link, "another-name", "text-4097");
        tree.link(EntryType::Symlink, "symbolic", "../where/ever");
        tree.link(EntryType::Symlink, "long-symbolic", &"x".repeat(90));
        tree.entry(EntryType::Fifo, "fifo", |_| {});
        if privileges::root_runs() {
            for (kind, name) in [(EntryType::Char, "char"), (EntryType::Block, "block")] {
                tree.entry(kind, name, |header| {
                    header.set_device_major(259).unwrap();
                    header.set_device_minor(300).unwrap();
                });
            }
            let capability = *b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
            tree.attributed("program", &[("security.capability", &capability)]);
            tree.entry(EntryType::Directory, "attributed/", |header| {
                header.set_uid(1234);
                header.set_gid(70_000);
            });
        }
        // Long values that several files have are stored once, the others name that place.
        let long = text(3000);
        for number in 0..40 {
            let own = noise(200 + number);
            let attributes: [(&str, &[u8]); 3] =
                [("user.first", &own), ("user.same", &long), ("user.empty-but-for-this", b"x")];
            tree.attributed(&format!("attributed/{number}"), &attributes);
        }
        tree.unpack()
    }

    /// A few files.
    pub(super) fn small() -> Option<Self> {
        let mut tree = Archive::default();
        tree.file("one", &text(9000));
        tree.file("two", &noise(5000));
        tree.file("d/three", b"tail");
        tree.link(EntryType::Symlink, "link", "one");
        tree.attributed("attributed", &[("user.a", &text(200))]);
        tree.attributed("attributed-too", &[("user.b", &text(200))]);
        tree.unpack()
    }
}

#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn append(&mut self, header: &Header, bytes: &[u8]) {
        self.0.extend(header.as_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn entry(&mut self, kind: EntryType, name: &str, set: impl FnOnce(&mut Header)) {
        self.with_content(kind, name, &[], set);
    }

    fn with_content(&mut self, kind: EntryType, name: &str, bytes: &[u8], set: impl FnOnce(&mut Header)) {
        let mut header = Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_mtime(1_600_000_000 + name.len() as u64);
        header.set_size(bytes.len() as u64);
        set(&mut header);
        header.set_cksum();
        self.append(&header, bytes);
    }

    fn file(&mut self, name: &str, bytes: &[u8]) {
        self.with_content(EntryType::Regular, name, bytes, |_| {});
    }

    fn link(&mut self, kind: EntryType, name: &str, target: &str) {
        self.entry(kind, name, |header| header.set_link_name(target).unwrap());
    }

    fn attributed(&mut self, name: &str, attributes: &[(&str, &[u8])]) {
        let attributes = attributes.iter().map(|(name, value)| (format!("SCHILY.xattr.{name}"), *value));
        let attributes: Vec<_> = attributes.collect();
        let mut builder = Builder::new(Vec::new());
        builder
            .append_pax_extensions(attributes.iter().map(|(name, value)| (name.as_str(), *value)))
            .unwrap();
        // Without the two blocks that end an archive.
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        self.0.extend(bytes);
        self.file(name, name.as_bytes());
    }

    /// Unpacks it, unless a program is missing that tests of images need.
    fn unpack(mut self) -> Option<Tree> {
        if programs::find("mksquashfs").is_none() {
            programs::leave_out("expanding a squashfs", "there is no mksquashfs");
            return None;
        }
        self.0.extend([0; 1024]);
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("tree");
        fs::create_dir(&root).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-C"]).arg(&root);
        let mut tar = tar.stdin(Stdio::piped()).spawn().unwrap();
        tar.stdin.take().unwrap().write_all(&self.0).unwrap();
        assert!(tar.wait().unwrap().success());
        Some(Tree { root, _directory: directory })
    }
}

/// Bytes that compress well.
pub(super) fn text(length: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number: u32| format!("line {number} of a text\n").into_bytes());
    lines.take(length).collect()
}

/// Bytes that do not compress.
pub(super) fn noise(length: usize) -> Vec<u8> {
    testing::numbers::Numbers(length as u64 | 1).bytes(length)
}

/// An image of `root`, made with `options`.
pub(super) fn squash(root: &std::path::Path, options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut mksquashfs = Command::new("mksquashfs");
    mksquashfs.arg(root).arg(&image).args(["-quiet", "-no-progress", "-comp", "zstd", "-mkfs-time", "0"]);
    assert!(mksquashfs.args(options).status().unwrap().success());
    fs::read(image).unwrap()
}

pub(super) fn expand<S: Source>(image: &S, threads: usize) -> Vec<u8> {
    let expansion = Expansion::plan(image).unwrap();
    let mut expanded = Vec::new();
    expansion.write(threads, &mut expanded).unwrap();
    assert_eq!(expanded.len() as u64, expansion.length().get(), "the length is known before");
    expanded
}

pub(super) fn compress<S: Source>(image: &S, level: i32) -> Vec<u8> {
    compress_with(&Compression::<Vec<u8>>::at_level(level), image)
}

pub(super) fn compress_with<S: Source>(compression: &Compression<'_, Vec<u8>>, image: &S) -> Vec<u8> {
    let expansion = Expansion::plan(image).unwrap();
    let mut compressed = Cursor::new(Vec::new());
    compression.write(&expansion, 2, &mut compressed).unwrap();
    compressed.into_inner()
}
