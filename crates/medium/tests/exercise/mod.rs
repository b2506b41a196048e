//! Properties that hold for every text from outside. The fuzzers of `tests/fuzz` and the short run of
//! `fuzz_seeds.rs` call the same functions.

use base::digest::Digest;
use medium::customization::area;
use model::cluster_file;
use model::config;
use model::config::sources::{Document, combine, print};
use model::machine::{Nodes, Selector};

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

/// A customization is read or refused, as a whole and as an archive with the right header before it; one
/// that is read is written and read again the same.
pub(crate) fn area(bytes: &[u8]) {
    // The header as the module's documentation has it.
    let mut header = b"NQRUST-CUSTOM\0\0\0\x01\0\0\0\x01\0\0\0".to_vec();
    header.extend((bytes.len() as u64).to_le_bytes());
    header.extend(Digest::of(bytes).as_bytes());
    header.resize(area::HEADER, 0);
    for area in [bytes, &[&header, bytes].concat()] {
        let content = match area::read(area) {
            Ok(content) => content.unwrap_or_default(),
            Err(damage) => {
                assert!(!damage.to_string().is_empty());
                continue;
            }
        };
        match area::bytes(&content) {
            // No content is a header of zeros, which a medium has behind what is written.
            Ok(written) if written.is_empty() => assert!(content.is_empty()),
            Ok(written) => match area::read(&*written) {
                Ok(again) => assert!(again.is_some_and(|again| again == content), "{content:?}"),
                Err(damage) => panic!("what is written is refused: {damage}\n{content:?}"),
            },
            // Long paths take more room than they did.
            Err(unfit) => assert!(!unfit.to_string().is_empty()),
        }
    }
}

/// The names of a configuration volume's files, one a line, say which machine each is for or are refused; each machine's
/// name is written and read again the same.
pub(crate) fn names(text: &str) {
    let names = || text.lines().map(str::to_owned);
    let Ok(nodes) = Nodes::of("fuzz", names()) else { return };
    for chosen in nodes.iter() {
        assert!(names().any(|name| name == chosen.file), "{chosen}");
        if let Some(selector) = chosen.selector {
            let stem = selector.stem();
            let again = Selector::from_stem(&stem).ok();
            assert_eq!(again.as_ref(), Some(selector), "{stem}");
        }
    }
}
