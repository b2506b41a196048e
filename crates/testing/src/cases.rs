//! Tables of documents with what is expected of each, as plain text, so that a document keeps its bytes:
//!
//! ```text
//! === name-of-the-case
//! the lines of the document
//! --- expected
//! the lines that are expected
//!
//! === next-case
//! a document of which nothing is expected
//! ```
//!
//! An empty line separates cases. A document ends with a line feed, and has no line that begins with `===` or with `---`
//! and a space.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What separates a document from its expectation.
const EXPECTED: &str = "--- expected\n";

/// One document of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// Where its first line is in the table, counted from 1.
    pub line: usize,
    pub document: String,
    pub expected: Option<String>,
}

/// The cases of one file.
#[derive(Clone, Debug)]
pub struct Table {
    pub path: PathBuf,
    pub cases: Vec<Case>,
}

impl Table {
    /// Where a case is: file, line and name.
    pub fn place(&self, case: &Case) -> String {
        format!("{}:{}: {}", self.path.display(), case.line, case.name)
    }
}

/// The tables of a directory, the files whose names end in `.txt`, in the order of their names.
///
/// # Panics
///
/// A file is no table, a name stands in two of them, or there is no table at all.
pub fn tables(directory: &Path) -> Vec<Table> {
    let mut names = BTreeSet::new();
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let tables: Vec<_> = paths.into_iter().map(table).collect();
    assert!(!tables.is_empty(), "{} has no tables", directory.display());
    for table in &tables {
        for case in &table.cases {
            assert!(names.insert(case.name.clone()), "{} has been used before", table.place(case));
        }
    }
    tables
}

fn table(path: PathBuf) -> Table {
    assert!(path.extension().is_some_and(|extension| extension == "txt"), "{} is no table", path.display());
    let text = fs::read_to_string(&path).unwrap();
    let cases = parse(&text).unwrap_or_else(|(line, why)| panic!("{}:{line}: {why}", path.display()));
    Table { path, cases }
}

/// Reads a table.
///
/// # Errors
///
/// The line that is wrong, counted from 1, and why.
pub fn parse(text: &str) -> Result<Vec<Case>, (usize, &'static str)> {
    let mut cases: Vec<Case> = Vec::new();
    let mut names = BTreeSet::new();
    let mut end = 0;
    for (line, content) in (1..).zip(text.split_inclusive('\n')) {
        end = line;
        if content.starts_with("===") {
            if let Some(before) = cases.last_mut() {
                let lines = before.expected.as_mut().unwrap_or(&mut before.document);
                if !(lines.ends_with("\n\n") || lines == "\n") {
                    return Err((line, "an empty line goes before a case"));
                }
                lines.pop();
                complete(before).map_err(|why| (line - 1, why))?;
            }
            let name = content.strip_prefix("=== ").and_then(|name| name.strip_suffix('\n'));
            let name = name.filter(|name| is_name(name)).ok_or((line, "this is no name of a case"))?;
            if !names.insert(name) {
                return Err((line, "another case has this name"));
            }
            let name = name.to_owned();
            cases.push(Case { name, line, document: String::new(), expected: None });
            continue;
        }
        let case = cases.last_mut().ok_or((line, "a table begins with the name of a case"))?;
        match (content.starts_with("--- "), &mut case.expected) {
            (true, expected @ None) if content == EXPECTED => *expected = Some(String::new()),
            (true, _) => return Err((line, "a case has a document and one expectation only")),
            (false, Some(expected)) => expected.push_str(content),
            (false, None) => case.document.push_str(content),
        }
    }
    let last = cases.last().ok_or((1, "the table is empty"))?;
    complete(last).map_err(|why| (end, why))?;
    match last.expected.as_ref().unwrap_or(&last.document) {
        lines if !lines.ends_with('\n') => Err((end, "the last line has no end")),
        lines if lines.ends_with("\n\n") => Err((end, "an empty line at the end")),
        _ => Ok(cases),
    }
}

fn complete(case: &Case) -> Result<(), &'static str> {
    match case {
        Case { document, .. } if document.is_empty() => Err("the case has no document"),
        Case { expected: Some(expected), .. } if expected.is_empty() => Err("the expectation is empty"),
        _ => Ok(()),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The text of a table, as [`parse`] reads it.
pub fn text(cases: &[Case]) -> String {
    let mut text = String::new();
    for (index, Case { name, document, expected, .. }) in cases.iter().enumerate() {
        let before = if index == 0 { "" } else { "\n" };
        write!(text, "{before}=== {name}\n{document}").unwrap();
        if let Some(expected) = expected {
            write!(text, "{EXPECTED}{expected}").unwrap();
        }
    }
    text
}
