//! The pages that people read, the README and all of `docs`, and the commands that they show.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use crate::prometheus;

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below `folder` whose names end with `.` and `extension`, sorted.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|found| found == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The path of each page below the repository with its text, sorted by path.
pub fn pages() -> Vec<(String, String)> {
    let mut found = files(&repository().join("docs"), "md");
    found.push(repository().join("README.md"));
    let page = |path: PathBuf| {
        let name = path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let mut pages: Vec<_> = found.into_iter().map(page).collect();
    pages.sort();
    pages
}

/// A fenced block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The path of the page and the line of the fence.
    pub place: String,
    /// The word behind the fence: `sh`, `yaml`, `text`.
    pub language: String,
    pub text: String,
}

/// The fenced blocks of a page, and the page without them.
pub fn fences(name: &str, page: &str) -> (Vec<Fence>, String) {
    let (mut fences, mut rest) = (Vec::new(), String::new());
    let mut open: Option<Fence> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let place = format!("{name}:{}", index + 1);
                open = Some(Fence { place, language: language.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => fences.extend(open.take()),
            (Some(fence), None) => fence.text.push_str(&format!("{line}\n")),
            (None, None) => rest.push_str(&format!("{line}\n")),
        }
    }
    assert!(open.is_none(), "{name}: a fence has no end");
    (fences, rest)
}

/// The code spans of a page outside of its fences, with single spaces in place of line ends.
pub fn code_spans(rest: &str) -> Vec<String> {
    let paragraphs = rest.split("\n\n");
    let spans = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The simple commands of a shell script as words, in their order: enough of the language for what pages show.
/// Substitutions and the bodies of here-documents are left out.
pub fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut here: Option<String> = None;
    for line in script.replace("\\\n", " ").lines() {
        if let Some(end) = &here {
            if line == end {
                here = None;
            }
            continue;
        }
        here = line.split_once("<<").map(|(_, end)| end.trim().to_owned());
        let line = line.split_once("<<").map_or(line, |(before, _)| before);
        for character in line.chars().chain(['\n']) {
            match (quote, character) {
                (Some(open), character) if open == character => quote = None,
                (Some(_), character) => word.get_or_insert_default().push(character),
                (None, '\'' | '"') => {
                    word.get_or_insert_default();
                    quote = Some(character);
                }
                (None, '#') if word.is_none() => break,
                (None, ' ' | '\t') => commands.last_mut().unwrap().extend(word.take()),
                (None, '\n' | ';' | '|' | '&' | '(' | ')') => {
                    commands.last_mut().unwrap().extend(word.take());
                    commands.push(Vec::new());
                }
                (None, character) => word.get_or_insert_default().push(character),
            }
        }
        if quote.is_none() {
            commands.last_mut().unwrap().extend(word.take());
            commands.push(Vec::new());
        }
    }
    for command in &mut commands {
        if let Some(redirection) = command.iter().position(|word| word.starts_with('>')) {
            command.truncate(redirection);
        }
        command.retain(|word| !word.starts_with("3>"));
        let prefixes = command.iter().take_while(|word| *word == "sudo" || is_assignment(word)).count();
        command.drain(..prefixes);
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The commands that a fence shows: all of a script, or what stands behind the prompt of a session.
pub fn shown_commands(fence: &Fence) -> Vec<Vec<String>> {
    let prompted = |line: &str| line.strip_prefix("$ ").or(line.strip_prefix("# ")).map(str::to_owned);
    match fence.language.as_str() {
        "sh" => simple_commands(&fence.text),
        "console" => {
            fence.text.lines().filter_map(prompted).flat_map(|line| simple_commands(&line)).collect()
        }
        _ => Vec::new(),
    }
}

/// Fails unless every command of `program` on any page is one of its commands with options that this has. Those in
/// fences have to be complete; a word in capitals or with `…` stands for a value.
pub fn commands_are_those_of(program: &clap::Command) {
    let mut program = program.clone();
    program.build();
    let (mut whole, mut mistakes) = (0, Vec::new());
    for (name, page) in pages().iter().filter(|(name, _)| name != "docs/changelog.md") {
        let (fences, rest) = fences(name, page);
        for fence in &fences {
            for words in shown_commands(fence).iter().filter(|words| is_of(words, &program)) {
                whole += 1;
                let error = program.clone().try_get_matches_from(words).err();
                let excused = |kind| match kind {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                    ErrorKind::ValueValidation => words.iter().any(|word| is_placeholder(word)),
                    _ => false,
                };
                if let Some(error) = error.filter(|error| !excused(error.kind())) {
                    mistakes.push(format!("{}: {}: {error}", fence.place, words.join(" ")));
                }
            }
        }
        for span in code_spans(&rest) {
            let words: Vec<_> = span.split(' ').map(str::to_owned).collect();
            if words.len() > 1 && is_of(&words, &program) {
                mistakes.extend(strange(&words, &program).map(|what| format!("{name}: `{span}`: {what}")));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(whole > 5, "{whole} commands of {} are shown", program.get_name());
}

/// Fails unless Prometheus accepts the text of metrics, and the tables below the heading `part` of the page about metrics name those in
/// it and no others, and its queries use no others.
pub fn metrics_are_those_of(part: &str, text: &str) {
    prometheus::accepts(&format!("metrics of {part}"), text);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let known: BTreeSet<&str> = types.map(|(name, _)| name).collect();
    let page = fs::read_to_string(repository().join("docs/how-to/metrics.md")).unwrap();
    let (_, below) = page.split_once(&format!("\n## {part}\n")).unwrap();
    let below = below.split("\n## ").next().unwrap();
    let is_name = |word: &&str| word.starts_with("nqrust_") || word.starts_with("process_");
    let rows = below.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`'));
    assert_eq!(names.filter(is_name).collect::<BTreeSet<_>>(), known);
    for word in
        below.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_').filter(is_name)
    {
        // A histogram has further series.
        let name = word.strip_suffix("_bucket").unwrap_or(word);
        assert!(known.contains(name), "{word}");
    }
}

fn is_of(words: &[String], program: &clap::Command) -> bool {
    words[0].rsplit('/').next() == Some(program.get_name())
}

fn is_placeholder(word: &str) -> bool {
    word.contains('…') || word.chars().all(|c| c.is_ascii_uppercase() || c == '-' || c == '.')
}

/// What of a command in running text the program does not have.
fn strange(words: &[String], program: &clap::Command) -> Option<String> {
    let (mut command, mut path) = (program, vec![program]);
    let mut words = words[1..].iter().peekable();
    while let Some(below) = words.peek().and_then(|word| command.find_subcommand(word)) {
        command = below;
        path.push(below);
        words.next();
    }
    if command.has_subcommands()
        && words.peek().is_some_and(|word| !word.starts_with('-') && !is_placeholder(word))
    {
        return Some(format!("{} is no command", words.next().unwrap()));
    }
    let has = |long: &str| {
        let names = |command: &clap::Command| {
            command.get_arguments().any(|argument| {
                argument.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long))
                    || argument.get_all_aliases().is_some_and(|names| names.contains(&long))
            })
        };
        path.iter().any(|command| names(command))
    };
    let longs = words.take_while(|word| *word != "--").filter_map(|word| word.strip_prefix("--"));
    let longs = longs
        .map(|word| word.split('=').next().unwrap_or(word).trim_matches(|c: char| !c.is_ascii_lowercase()));
    let unknown = longs.filter(|long| !long.is_empty()).find(|long| !has(long));
    unknown.map(|long| format!("--{long} is no option"))
}
