//! Expanding images that `mksquashfs` made, and images that nobody should have made.

mod images;
mod mutations;
mod tree_image;

use std::ops::Range;
use std::process::{Command, Stdio};

use base::digest::Digest;
use images::{Tree, compress, compress_with, expand, squash};
use testing::{privileges, programs};

use super::bytes::u32_at;
use super::*;

/// Options beside those of our builds: other sizes of blocks, no fragments, fragments only, nothing optional.
const WAYS: [&[&str]; 6] = [
    &["-b", "128K"],
    &["-b", "4K"],
    &["-b", "1M", "-no-duplicates"],
    &["-b", "64K", "-no-fragments", "-no-exports"],
    &["-b", "128K", "-always-use-fragments", "-no-sparse"],
    &["-b", "128K", "-no-xattrs", "-noI", "-noF"],
];

#[test]
fn the_kernel_finds_the_same_in_both_forms() {
    let Some(tree) = Tree::with_everything() else { return };
    if !privileges::root_runs() {
        return programs::leave_out("expanded images as the kernel reads them", "only root can mount");
    }
    for options in WAYS {
        let image = squash(&tree.root, options);
        let expanded = expand(&image, 2);
        let (before, after) = (archive(&image), archive(&expanded));
        assert!(before == archive(&compress(&expanded, 3)), "{options:?}");
        let attributes = before.windows(29).any(|part| part == b"SCHILY.xattr.security.capabil");
        assert_eq!(attributes, !options.contains(&"-no-xattrs"), "{options:?}");
        assert!(before == after, "{options:?}");
    }
}

#[test]
fn nothing_is_compressed_in_the_expanded_form_and_it_expands_to_itself() {
    let Some(tree) = Tree::with_everything() else { return };
    for options in WAYS {
        let image = squash(&tree.root, options);
        let expanded = expand(&image, 3);
        assert!(expanded.len() > image.len() && expanded.len().is_multiple_of(4096), "{options:?}");
        assert!(expand(&expanded, 1) == expanded, "{options:?}");
    }
}

#[test]
fn the_level_of_the_compression_and_the_number_of_threads_make_no_difference() {
    let Some(tree) = Tree::with_everything() else { return };
    let fast = expand(&squash(&tree.root, &["-b", "128K", "-Xcompression-level", "1"]), 1);
    let small = expand(&squash(&tree.root, &["-b", "128K", "-Xcompression-level", "19"]), 4);
    assert_eq!(Digest::of(&fast), Digest::of(&small));
}

#[test]
fn the_compressed_form_is_the_same_from_any_form_and_expands_to_the_same_bytes() {
    let Some(tree) = Tree::with_everything() else { return };
    for options in WAYS {
        let image = squash(&tree.root, options);
        let expanded = expand(&image, 2);
        let compressed = compress(&expanded, 3);
        assert!(compressed.len() < expanded.len() && compressed.len().is_multiple_of(4096), "{options:?}");
        assert!(expand(&compressed, 2) == expanded, "{options:?}");
        for form in [&image, &compressed] {
            assert!(compress(form, 3) == compressed, "{options:?}");
        }
    }
}

#[test]
fn blocks_of_an_earlier_image_are_taken_over_and_give_the_bytes_of_compressing() {
    let Some(tree) = Tree::with_everything() else { return };
    let options = ["-b", "128K"];
    let image = squash(&tree.root, &options);
    let earlier = compress(&image, 3);
    let reusing = |level| Compression::reusing(level, &earlier, 2).unwrap();
    // Another level shows where blocks come from.
    assert!(compress(&image, 19) != earlier);
    assert!(compress_with(&reusing(19), &image) == earlier);
    std::fs::write(tree.root.join("changed"), "another file").unwrap();
    let changed = squash(&tree.root, &options);
    assert!(compress_with(&reusing(3), &changed) == compress(&changed, 3));
    // One that is damaged, or no image, is told before anything is written.
    let mut damaged = earlier.clone();
    damaged[96 + 4000..96 + 4100].fill(0x55);
    assert!(Compression::reusing(3, &damaged, 2).is_err());
    assert!(Compression::reusing(3, &vec![0; 4096], 2).is_err());
}

#[test]
fn every_number_of_the_export_table_leads_to_its_inode() {
    let Some(tree) = Tree::with_everything() else { return };
    let expanded = expand(&squash(&tree.root, &["-b", "128K"]), 1);
    let read = Expansion::plan(&expanded).unwrap();
    let references = read.export_references().unwrap();
    assert!(references.len() > 1000);
    for (number, at) in (1..).zip(references) {
        assert_eq!(u32_at(read.inode_bytes(), at + 12).unwrap(), number);
    }
}

#[test]
fn the_files_at_a_place_are_known_by_their_inode_numbers() {
    let tree = tempfile::tempdir().unwrap();
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(tree.path().join("large"), [&b"the large one"[..], &large].concat()).unwrap();
    for name in ["one", "two"] {
        std::fs::write(tree.path().join(name), format!("the small file {name}")).unwrap();
    }
    for options in WAYS {
        let image = squash(tree.path(), options);
        let stored = Expansion::plan(&image).unwrap();
        let expanded = expand(&image, 1);
        let plan = Expansion::plan(&expanded).unwrap();
        let files_in = |place: Range<u64>| plan.files_in(&[place]).unwrap();
        let files = |text: &str| {
            let at = expanded.windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap() as u64;
            files_in(at..at + 1)
        };
        let found = ["the large one", "the small file one", "the small file two"].map(files);
        // In the order of their names, after the directory or before it.
        let first = found[0][0];
        assert_eq!(found, [vec![first], vec![first + 1], vec![first + 2]], "{options:?}");
        assert_eq!(files_in(0..90), [0; 0]);
        assert_eq!(files_in(0..expanded.len() as u64), [first, first + 1, first + 2]);
        // Data begins behind the superblock; the first is that of the large file, or of a fragment.
        let stored_in = |place: Range<u64>| stored.files_stored_in(&[place]).unwrap();
        let begin = stored_in(96..97);
        assert!(begin.contains(&first) || begin == [first + 1, first + 2], "{begin:?} {options:?}");
        assert_eq!(stored_in(0..96), [0; 0]);
        assert_eq!(stored_in(0..image.len() as u64), [first, first + 1, first + 2], "{options:?}");
    }
}

#[test]
fn what_is_not_a_squashfs_or_not_ours_is_told() {
    let Some(tree) = Tree::small() else { return };
    let plan = |bytes: Vec<u8>| Expansion::plan(&bytes).map(drop).unwrap_err().to_string();
    assert_eq!(plan(Vec::new()), "not a squashfs");
    assert_eq!(plan(vec![0; 4096]), "not a squashfs");
    let image = squash(&tree.root, &[]);
    let mut other = image.clone();
    other[20] = 4;
    assert_eq!(plan(other), "the squashfs cannot be expanded: it is compressed by xz, not by zstd");
    let mut version = image.clone();
    version[28] = 3;
    assert_eq!(plan(version), "the squashfs cannot be expanded: it has version 3.0, not 4.0");
    assert!(plan(image[..100].to_vec()).starts_with("the squashfs is cut off: it has 100 bytes"));
}

/// Everything that the kernel says of a mounted image, in the order of names, as a tar archive.
fn archive(image: &[u8]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (file, mounted) = (directory.path().join("image"), directory.path().join("mounted"));
    std::fs::write(&file, image).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    run(Command::new("mount").args(["-t", "squashfs", "-o", "ro,loop"]).args([&file, &mounted]));
    let options = ["--sort=name", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--create", "--file"];
    let tar = directory.path().join("tar");
    let mut packed = Command::new("tar");
    packed.args(options).arg(&tar).arg("-C").arg(&mounted).arg(".");
    // Without attributes tar warns of every directory.
    let packed = packed.stderr(Stdio::null()).status();
    run(Command::new("umount").arg(&mounted));
    assert!(packed.unwrap().success(), "the kernel can read all of it");
    std::fs::read(tar).unwrap()
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
