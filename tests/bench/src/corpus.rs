//! How long it takes to validate, and to convert, every document that the tests have.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use model::config::{self, convert};
use testing::cases;

use crate::figure::{Figure, RatioLimit};

/// The limit of the time for one document, on average: nobody notices it, and a server checks a thousand in seconds.
const LIMIT_MS: f64 = 5.0;
/// How often it is measured; the quickest round counts, which other work on the host disturbs least.
const ROUNDS: usize = 5;
/// The directories of documents, below the tests of the model.
const DOCUMENTS: [&str; 4] = ["corpus/valid", "corpus/warned", "corpus/broken", "harvester/documents"];

/// Validates all documents, then converts all.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let texts = texts();
    let converted = texts.iter().filter(|text| convert::document(text, "f").is_ok()).count();
    ensure!(converted * 3 > texts.len(), "only {converted} of {} documents are converted", texts.len());
    let validate = quickest(&texts, |text| drop(config::check(text, "f")));
    let convert = quickest(&texts, |text| drop(convert::document(text, "f")));
    let figure = |what: &str, milliseconds: f64| {
        let name = format!("{what} one of {} documents", texts.len());
        Figure::new(&name, milliseconds, "ms", ("limit", LIMIT_MS)).limit(RatioLimit::AtMost(1.0))
    };
    Ok(vec![figure("validate", validate), figure("convert", convert)])
}

/// The average time for a document in the quickest round, in milliseconds.
fn quickest(texts: &[String], work: impl Fn(&str)) -> f64 {
    let round = || {
        let begin = Instant::now();
        texts.iter().for_each(|text| work(text));
        begin.elapsed().as_secs_f64() * 1000.0 / texts.len() as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn texts() -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/model/tests");
    let tables = DOCUMENTS.iter().flat_map(|directory| cases::tables(&tests.join(directory)));
    tables.flat_map(|table| table.cases).map(|case| case.document).collect()
}
