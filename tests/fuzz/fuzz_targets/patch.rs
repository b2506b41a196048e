//! Patches between OS images: garbage, and a right one with bytes changed.
#![no_main]

use std::io::sink;
use std::sync::LazyLock;

use formats::delta::{Patch, make::make};
use libfuzzer_sys::fuzz_target;

static OLD: LazyLock<Vec<u8>> = LazyLock::new(|| (0..20_000_u32).map(|at| (at * at >> 7) as u8).collect());
static NEW: LazyLock<Vec<u8>> = LazyLock::new(|| [&OLD[..9_000], b"something of its own", &OLD[9_500..]].concat());
static PATCH: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut patch = Vec::new();
    make(&*OLD, &*NEW, 1, &mut patch).expect("images in memory");
    patch
});

fuzz_target!(|bytes: &[u8]| {
    let _ = Patch::open(bytes).and_then(|patch| patch.apply(&*OLD, &mut sink()));
    // Places, and what is changed there.
    let mut patch = PATCH.clone();
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % patch.len();
        patch[at] ^= change[2];
    }
    let mut made = Vec::new();
    if Patch::open(&patch[..]).and_then(|patch| patch.apply(&*OLD, &mut made)).is_ok() {
        // Only a new digest that fits another image would be accepted, and no fuzzer finds one.
        assert!(made == *NEW);
    }
});
