//! What must hold for every text from outside, whoever made it. The fuzzers of `tests/fuzz` and the short run of
//! `fuzz_seeds.rs` call the same functions.

use installer::cluster_file;
use installer::config;
use installer::config::sources::{Document, combine, print};

/// An install configuration is read or refused; one that is read is written and read again the same.
pub(crate) fn document(text: &str) {
    match config::check(text, "fuzz") {
        Ok(read) => {
            let written = read.config.to_yaml();
            match config::check(&written, "again") {
                Ok(again) => {
                    assert!(again.config == read.config, "what is written means something else:\n{written}")
                }
                Err(invalid) => panic!("what is written is refused: {invalid}\n{written}"),
            }
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
}

/// A cluster file is read or refused; from one that is read each node gets a document that is accepted.
pub(crate) fn cluster(text: &str) {
    match cluster_file::check(text, "fuzz") {
        Ok(read) => {
            for document in read.documents {
                if let Err(invalid) = config::check(&document.text, "rendered") {
                    panic!("what is rendered is refused: {invalid}\n{}", document.text);
                }
            }
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
}

/// Kernel parameters are read or refused; those that are read are printed and read again the same.
pub(crate) fn command_line(line: &str) {
    let shape = config::shape::install_config();
    let read = |line: &str| combine(&[Document::command_line(line, shape)]);
    match read(line) {
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
        Ok(combined) => {
            let value = serde_json::to_value(&combined.config).unwrap_or_default();
            let Ok(printed) = print::parameters(&value, shape) else { return };
            let printed = printed.join(" ");
            match read(&printed) {
                Ok(again) => assert!(again.config == combined.config, "{printed}"),
                Err(invalid) => panic!("what is printed is refused: {invalid}\n{printed}"),
            }
        }
    }
}
