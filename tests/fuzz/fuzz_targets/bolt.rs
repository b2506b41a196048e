//! containerd's database: garbage, and a right one with bytes changed.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the builder uses all of it")]
#[path = "../../../iso-builder/src/bolt/mod.rs"]
mod bolt;

static DATABASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut root = bolt::Bucket::default();
    let mut inner = bolt::Bucket { sequence: 7, ..bolt::Bucket::default() };
    for number in 0..200_u32 {
        inner.pairs.insert(number.to_be_bytes().to_vec(), vec![0; number as usize]);
    }
    root.buckets.insert(b"v1".to_vec(), inner);
    root.pairs.insert(b"version".to_vec(), b"4".to_vec());
    bolt::write(&root).expect("a small tree")
});

fuzz_target!(|bytes: &[u8]| {
    let _ = bolt::read(bytes);
    let mut database = DATABASE.clone();
    for change in bytes.chunks_exact(4) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % database.len();
        database[at] ^= change[3];
    }
    if let Ok(root) = bolt::read(&database) {
        // Everything that is read can be written unchanged.
        if let Ok(written) = bolt::write(&root) {
            assert_eq!(bolt::read(&written).expect("our own"), root);
        }
    }
});
