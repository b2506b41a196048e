//! An install configuration of any bytes is read or refused; one that is read is written and read again the same.
#![no_main]

use installer::config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match config::check(text, "fuzz") {
        Ok(read) => {
            let again = config::check(&read.to_yaml(), "again").expect("what is written can be read");
            assert!(again == read, "what is written means the same");
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
});
