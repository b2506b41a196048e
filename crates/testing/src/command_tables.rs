//! The tables of commands in the reference, and man pages.

use std::fs;
use std::path::Path;

use clap::Command;

/// Fails unless each command that the help of `program` shows begins a text in code at the start of a row of the page's tables,
/// and has a man page.
pub fn describe(program: &Command) {
    let commands = base::completions::commands(program);
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
    let pages = base::manual::pages(program).unwrap();
    let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for command in commands {
        let page = format!("{}-{}.1", program.get_name(), command.replace(' ', "-"));
        assert!(names.contains(&page.as_str()), "{page} in {names:?}");
    }
}
