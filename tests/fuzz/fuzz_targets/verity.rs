//! The hash tree of an OS image, as a slot and a medium store it: one changed byte is found, and where it is, and a tree of another image
//! is not taken for that of this one.
#![no_main]

use base::digest::Digest;
use formats::verity::{VerityBuilder, VerityParameters, VerityTree, VerityTreeCheck};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 4096;
const HASHES: usize = BLOCK / 32;

fuzz_target!(|bytes: &[u8]| {
    let parameters = VerityParameters::of_image(Digest::of(b"the image"));
    // Of one block, the root hash is all there is; of more, no stored tree has that of another image.
    let other = Digest::of(b"no root");
    assert!(VerityTree::of_stored(bytes, parameters, (BLOCK + 1 + bytes.len()) as u64, other).is_none());

    let [chunk, a, b, c, with, fillings @ ..] = bytes else { return };
    // Three levels begin at 128 blocks.
    let fillings = &fillings[..fillings.len().min(2 * HASHES + 44)];
    let blocks = fillings.len();
    let mut builder = VerityBuilder::new(parameters);
    for filling in fillings {
        builder.update(&[*filling; BLOCK]);
    }
    let tree = builder.finish();
    let (length, root) = ((blocks * BLOCK) as u64, tree.root);
    let mut stored = tree.bytes;
    let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % stored.len();
    stored[at] ^= with;

    let mut check = VerityTreeCheck::new(parameters, length, root);
    let wrong = stored.chunks(usize::from(*chunk) * 40 + 1).find_map(|bytes| check.update(bytes));
    assert_eq!(wrong, (*with != 0).then(|| (at / BLOCK * BLOCK) as u64));

    let leaves = stored.len() - blocks.div_ceil(HASHES) * BLOCK;
    let in_hashes = *with != 0 && blocks > 1 && (leaves..leaves + blocks * 32).contains(&at);
    let found = VerityTree::of_stored(&stored, parameters, length, root);
    assert_eq!(found.is_none(), in_hashes);
    if let Some(found) = found {
        assert!(fillings.iter().zip(0..).all(|(filling, block)| found.has_block(block, &[*filling; BLOCK])));
    }
});
