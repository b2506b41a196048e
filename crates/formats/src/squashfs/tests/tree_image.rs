//! Images that are laid out here, as the kernel, `unsquashfs` and the reader of this module see them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use testing::{privileges, programs};

use super::images::{Tree, compress, expand, noise, squash, text};
use super::{archive, run};
use crate::iso9660::{Offset, Source};
use crate::squashfs::{Expansion, TreeImage};

const TIME: u32 = 1_600_000_000;

fn lay_out(root: &Path) -> TreeImage {
    TreeImage::of(root, TIME, 2).unwrap()
}

/// All bytes of a source.
fn read(source: &impl Source) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(source.length().unwrap()).unwrap()];
    let mut at = 0;
    while at < bytes.len() {
        // Of lengths that are none of the format.
        let end = bytes.len().min(at + 100_003);
        let count = source.read_at(&mut bytes[at..end], Offset(at as u64)).unwrap();
        assert!(count > 0, "it ends at {at}");
        at += count;
    }
    assert_eq!(source.read_at(&mut [0], Offset(at as u64)).unwrap(), 0);
    bytes
}

#[test]
fn the_kernel_finds_what_it_finds_in_an_image_of_mksquashfs() {
    let Some(tree) = Tree::with_everything() else { return };
    if !privileges::root_runs() {
        return programs::leave_out("laid out images as the kernel reads them", "only root can mount");
    }
    let theirs = archive(&squash(&tree.root, &["-b", "128K", "-all-time", &TIME.to_string()]));
    let ours = lay_out(&tree.root);
    for image in [read(&ours), compress(&ours, 3)] {
        assert!(found(&archive(&image)) == found(&theirs));
    }
}

/// What an archive has, with the records of extended headers as sets: images list attributes in any order.
fn found(archive: &[u8]) -> Vec<ArchivedEntry> {
    let mut entries = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap().raw(true) {
        let mut entry = entry.unwrap();
        let (header, is_extended) =
            (entry.header().as_bytes().to_vec(), entry.header().entry_type().is_pax_local_extensions());
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let content = if is_extended { records(&content) } else { BTreeSet::from([content]) };
        entries.push(ArchivedEntry { header, content });
    }
    assert!(entries.len() > 3000 && entries.iter().any(|entry| entry.content.len() > 3));
    entries
}

/// The records of an extended header, each of which begins with its length (pax(1), "pax Extended Header").
fn records(mut header: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut records = BTreeSet::new();
    while let Some(space) = header.iter().position(|byte| *byte == b' ') {
        let length = std::str::from_utf8(&header[..space]).unwrap().parse().unwrap();
        let (record, rest) = header.split_at(length);
        records.insert(record.to_vec());
        header = rest;
    }
    records
}

#[derive(PartialEq, Eq)]
struct ArchivedEntry {
    header: Vec<u8>,
    content: BTreeSet<Vec<u8>>,
}

#[test]
fn it_is_the_expanded_form_of_itself_and_of_what_it_is_compressed_to() {
    let Some(tree) = Tree::with_everything() else { return };
    let image = lay_out(&tree.root);
    let bytes = read(&image);
    assert!(bytes.len().is_multiple_of(4096));
    assert!(expand(&image, 3) == bytes && expand(&bytes, 1) == bytes);
    let compressed = compress(&image, 3);
    assert!(compressed == compress(&bytes, 3) && expand(&compressed, 2) == bytes);
    let [laid_out, packed] = [Expansion::plan(&bytes).unwrap(), Expansion::plan(&compressed).unwrap()];
    assert!(laid_out.is_like(&packed));
}

#[test]
fn it_is_about_as_long_as_that_of_mksquashfs() {
    let Some(tree) = Tree::with_everything() else { return };
    let theirs = expand(&squash(&tree.root, &["-b", "128K"]), 2).len();
    let ours = read(&lay_out(&tree.root)).len();
    assert!(ours <= theirs + theirs / 50, "{ours} and {theirs}");
}

#[test]
fn equal_files_and_holes_take_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let length = || lay_out(directory.path()).length().unwrap();
    fs::write(at("large"), noise(400_000)).unwrap();
    fs::write(at("small"), noise(30_000)).unwrap();
    let before = length();
    fs::copy(at("large"), at("large-again")).unwrap();
    fs::copy(at("small"), at("small-again")).unwrap();
    fs::File::create(at("hole")).unwrap().set_len(64 << 20).unwrap();
    // Zeros that were written are a hole too.
    fs::write(at("zeros"), vec![0; 1 << 20]).unwrap();
    assert!(length() <= before + 4096, "{} and {before}", length());
}

#[test]
fn the_bytes_follow_from_the_tree_whatever_the_order_in_which_it_was_made() {
    let names: Vec<_> = (0..300).map(|number| format!("{}/file-{number}", number % 7)).collect();
    let tree = |names: &mut dyn Iterator<Item = &String>| {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text(name.len() * 1000)).unwrap();
        }
        directory
    };
    let (one, two) = (tree(&mut names.iter()), tree(&mut names.iter().rev()));
    let bytes = |directory: &Path, threads| read(&TreeImage::of(directory, TIME, threads).unwrap());
    assert!(bytes(one.path(), 1) == bytes(two.path(), 4));
}

#[test]
fn an_empty_tree_and_one_link_are_images_too() {
    let directory = tempfile::tempdir().unwrap();
    let empty = read(&lay_out(directory.path()));
    assert!(expand(&empty, 1) == empty);
    symlink("nowhere", directory.path().join("link")).unwrap();
    let link = read(&lay_out(directory.path()));
    assert!(link != empty && expand(&link, 1) == link);
}

#[test]
fn attributes_of_the_host_and_those_that_the_format_lacks_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    let plain = read(&lay_out(directory.path()));
    if !privileges::root_runs()
        || xattr::set(&file, "security.selinux", b"system_u:object_r:tmp_t:s0\0").is_err()
    {
        return programs::leave_out("attributes of the host", "this user or file system cannot set them");
    }
    assert!(read(&lay_out(directory.path())) == plain);
    xattr::set(&file, "security.other", b"kept").unwrap();
    let kept = read(&lay_out(directory.path()));
    assert!(
        kept.windows(4).any(|bytes| bytes == b"kept") && !kept.windows(8).any(|bytes| bytes == b"object_r")
    );
}

#[test]
fn a_file_that_becomes_shorter_or_goes_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, noise(400_000)).unwrap();
    let image = lay_out(directory.path());
    let written = || Expansion::plan(&image).unwrap().write(2, &mut std::io::sink());
    written().unwrap();
    fs::write(&file, noise(300_000)).unwrap();
    assert!(written().is_err());
    fs::remove_file(&file).unwrap();
    assert!(written().is_err());
    assert!(TreeImage::of(&file, TIME, 1).unwrap_err().to_string().starts_with("reading /"));
}

/// Contents that are often equal, often zeros, and of lengths around those of blocks.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..600_usize, 131_000..131_150_usize, 262_100..262_200_usize, 0..300_000_usize];
    (length, 0..3_u8).prop_map(|(length, kind)| match kind {
        0 => vec![0; length],
        1 => text(length),
        _ => noise(length),
    })
}

/// Paths of files, several in a directory.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c]{1,2}", 1..4).prop_map(|parts| format!("{}/f", parts.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn another_program_unpacks_any_tree_as_it_was(files in prop::collection::btree_map(path(), content(), 0..20)) {
        if programs::find("unsquashfs").is_none() {
            programs::leave_out("unpacking a laid out image", "there is no unsquashfs");
            return Ok(());
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        for (path, content) in &files {
            let path = at("tree").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let image = lay_out(&at("tree"));
        for (name, image) in [("plain", read(&image)), ("compressed", compress(&image, 1))] {
            fs::write(at("image"), image).unwrap();
            run(Command::new("unsquashfs").args(["-quiet", "-no-progress", "-dest"]).args([at(name), at("image")]));
            prop_assert_eq!(&contents_of(&at(name)), &files);
        }
    }
}

fn contents_of(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file());
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    files.map(|entry| (name(entry.path()), fs::read(entry.path()).unwrap())).collect()
}
