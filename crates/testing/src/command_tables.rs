//! The tables of commands in the reference.

use std::fs;
use std::path::Path;

/// Fails unless each of `commands` begins a text in code at the start of a row of the page's tables.
pub fn have_rows_for(commands: &[String]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let page = fs::read_to_string(page).unwrap();
    let shown = |command: &str| {
        let begins = |row: &str| {
            let mut words = row.split('`').skip(1).step_by(2);
            words.any(|words| words == command || words.starts_with(&format!("{command} ")))
        };
        page.lines().filter(|line| line.starts_with("| `")).any(begins)
    };
    let missing: Vec<_> = commands.iter().filter(|command| !shown(command)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
