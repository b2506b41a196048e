//! Install configurations.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target calls one of the functions")]
#[path = "../../../crates/medium/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|text: &str| exercise::document(text));
