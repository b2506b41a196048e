//! What a medium is customised with.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../crates/medium/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| exercise::area(bytes));
