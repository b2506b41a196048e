//! Images with bytes that are not as `mksquashfs` left them: whatever comes of it, it is a value or an error.

use std::io::{self, Write};

use proptest::prelude::*;

use super::images::{Tree, compress, expand, squash};
use crate::squashfs::Expansion;

/// More than any of these images should become.
const MOST: u64 = 64 << 20;

/// Takes bytes up to a limit.
struct Limited(u64);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn attempt(image: &Vec<u8>) {
    let Ok(expansion) = Expansion::plan(image) else { return };
    let length = expansion.length().get();
    let mut out = Limited(MOST);
    if expansion.write(2, &mut out).is_ok() {
        assert_eq!(MOST - out.0, length, "the length is that of the plan");
        // What can be expanded can be compressed, and is the same then.
        let compressed = compress(image, 1);
        assert!(Expansion::plan(&compressed).unwrap().is_like(&expansion));
    }
}

#[test]
fn images_with_changed_bytes_end_with_a_value_or_an_error() {
    let Some(tree) = Tree::small() else { return };
    let compressed = squash(&tree.root, &["-b", "4K"]);
    // In the expanded form a changed byte is one of a table, where in the other it spoils a whole block.
    let expanded = expand(&compressed, 1);
    let sources = [compressed, expanded];
    let value = prop_oneof![Just(0_u8), Just(0xff), Just(0x80), any::<u8>()];
    let change = (any::<prop::sample::Index>(), 0..8_usize, value, any::<bool>());
    let changes =
        (0..2_usize, prop::collection::vec(change, 1..6), any::<bool>(), any::<prop::sample::Index>());
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((which, changes, cut, end) in changes)| {
        let mut image = sources[which].clone();
        let used = usize::try_from(u64::from_le_bytes(image[40..48].try_into().unwrap())).unwrap();
        for (at, width, value, late) in changes {
            // Metadata is at the end and a small part of the image, but most of what can go wrong.
            let from = if late { used - 1500 } else { 0 };
            let at = from + at.index(used - from);
            let end = (at + width + 1).min(used);
            image[at..end].fill(value);
        }
        if cut {
            image.truncate(end.index(used));
        }
        attempt(&image);
    });
}

#[test]
fn every_field_of_the_superblock_may_be_anything() {
    let Some(tree) = Tree::small() else { return };
    let image = expand(&squash(&tree.root, &["-b", "4K"]), 1);
    let interesting =
        [0_u64, 1, 3, 95, 96, 97, 4096, 1 << 16, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
    for field in (0..96).step_by(2) {
        for value in interesting.iter().copied().chain((0..40).map(|part| image.len() as u64 * part / 40)) {
            for width in [2, 4, 8] {
                let mut image = image.clone();
                let end = (field + width).min(96);
                image[field..end].copy_from_slice(&value.to_le_bytes()[..end - field]);
                attempt(&image);
            }
        }
    }
}
