//! How long it takes to validate a long configuration.

use std::fmt::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use model::config;

use crate::figure::{Figure, RatioLimit};

const LINES: usize = 1000;
/// The limit of the time: no longer than a person notices.
const LIMIT_MS: f64 = 50.0;
/// How often it is measured; the quickest round counts, which other work on the host disturbs least.
const ROUNDS: usize = 20;

/// Validates a document of many lines, all of them valid.
pub(crate) fn measure() -> Result<Figure> {
    let text = document()?;
    let mut quickest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let accepted = config::check(&text, "long.yaml");
        quickest = quickest.min(begin.elapsed().as_secs_f64() * 1000.0);
        ensure!(accepted.is_ok(), "the long configuration is not valid");
    }
    let name = format!("validate a file of {LINES} lines");
    Ok(Figure::new(&name, quickest, "ms", ("limit", LIMIT_MS)).limit(RatioLimit::AtMost(1.0)))
}

/// A document with [`LINES`] lines of files and variables.
fn document() -> Result<String> {
    let mut text = "os:\n  write_files:\n".to_owned();
    for number in 0..200 {
        writeln!(
            text,
            "    - path: /etc/bench/{number}\n      content: some text\n      permissions: \"0644\""
        )?;
    }
    text.push_str("  environment:\n");
    for number in 0..LINES - text.lines().count() {
        writeln!(text, "    VARIABLE_{number}: value")?;
    }
    Ok(text)
}
