//! What the README and the pages in `docs` say is true of the repository: links, commands, messages, screens.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use testing::docs::{self, Fence};

/// Pages that are looked up and not read: references, tables of messages, what every release changed.
const LONG: &[&str] =
    &["docs/reference/", "docs/how-to/troubleshooting", "docs/changelog.md", "docs/dependencies.md"];
/// The most words of any other page, without its fences.
const WORDS_MAX: usize = 1500;
const README_LINES_MAX: usize = 120;
/// The fewest messages on the pages for troubleshooting.
const MESSAGES_MIN: usize = 40;

fn fences() -> Vec<Fence> {
    docs::pages().iter().flat_map(|(name, page)| docs::fences(name, page).0).collect()
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let (_, rest) = docs::fences("", page);
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    rest.lines().filter_map(|line| line.strip_prefix('#')).map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut dead = Vec::new();
    for (name, page) in docs::pages() {
        let (_, rest) = docs::fences(&name, &page);
        for target in rest.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => PathBuf::from(&name),
                path => normal(&Path::new(&name).parent().unwrap().join(path)),
            };
            let file = docs::repository().join(&path);
            let has_anchor = || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor);
            if !file.exists() || !anchor.is_empty() && !has_anchor() {
                dead.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_shell_block_is_a_script() {
    let blocks: Vec<_> = fences().into_iter().filter(|fence| fence.language == "sh").collect();
    assert!(blocks.len() > 30);
    for Fence { place, text, .. } in blocks {
        let mut bash = Command::new("bash");
        let mut bash = bash.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let ended = bash.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.is_empty(), "{place}: {said}");
    }
}

#[test]
fn every_fence_says_its_language_and_every_command_on_lines_of_its_own_stands_in_one() {
    for Fence { place, language, .. } in fences() {
        let known = ["sh", "console", "text", "yaml", "json"];
        assert!(known.contains(&language.as_str()), "{place}: `{language}` is none of {known:?}");
    }
    for (name, page) in docs::pages() {
        let (_, rest) = docs::fences(&name, &page);
        let programs = ["installer ", "iso-builder ", "curl "];
        let is_command = |line: &&str| {
            line.strip_prefix("    ")
                .is_some_and(|line| programs.iter().any(|program| line.starts_with(program)))
        };
        assert_eq!(rest.lines().find(is_command), None, "{name}: a command that is not in a fence");
    }
}

#[test]
fn every_make_target_is_in_the_makefile() {
    let makefile = fs::read_to_string(docs::repository().join("Makefile")).unwrap();
    let targets: BTreeSet<_> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let mut count = 0;
    for (name, page) in docs::pages() {
        let (fences, rest) = docs::fences(&name, &page);
        let spans = docs::code_spans(&rest).into_iter().map(|span| docs::simple_commands(&span));
        let shown = fences.iter().map(docs::shown_commands).chain(spans).flatten();
        for words in shown.filter(|words| words[0] == "make") {
            for target in words[1..].iter().filter(|word| !word.contains('=')) {
                assert!(targets.contains(target.as_str()), "{name}: {}", words.join(" "));
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// The sources of the programs without their tests, each with continued strings in one line.
fn sources() -> Vec<String> {
    let folders = ["installer", "iso-builder", "crates"].map(|name| docs::repository().join(name));
    let files = folders.iter().flat_map(|folder| docs::files(folder, "rs"));
    let is_product = |path: &PathBuf| {
        let below = path.strip_prefix(docs::repository()).unwrap();
        let mut parts = below.components().filter_map(|part| part.as_os_str().to_str());
        !parts.any(|part| matches!(part, "tests" | "tests.rs" | "testing" | "target"))
    };
    let source = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut parts = text.split("\\\n");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.trim_start())
    };
    files.filter(is_product).map(source).collect()
}

#[test]
fn every_message_of_troubleshooting_is_one_of_the_programs() {
    let sources = sources();
    let (mut count, mut unknown) = (0, Vec::new());
    for (name, page) in
        docs::pages().iter().filter(|(name, _)| name.starts_with("docs/how-to/troubleshooting"))
    {
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        for (message, _) in rows {
            count += 1;
            let parts = message.split('…').map(|part| part.trim_matches([' ', ',', ':']));
            let parts: Vec<_> = parts.filter(|part| part.len() > 3).collect();
            let is_in = |source: &String| parts.iter().all(|part| source.contains(part));
            if parts.is_empty() || !sources.iter().any(is_in) {
                unknown.push(format!("{name}: {message}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(count >= MESSAGES_MIN, "{count}");
}

/// The pages that say what a change comes to, with the test that shows it.
const CHANGES: [&str; 2] = ["docs/explanation/changed-releases.md", "docs/explanation/os-image.md"];
/// The fewest rows on them.
const CHANGES_MIN: usize = 30;

/// The names of all functions with `#[test]`.
fn test_names() -> BTreeSet<String> {
    let folders = ["installer", "iso-builder", "crates", "tests"].map(|name| docs::repository().join(name));
    let files = folders.iter().flat_map(|folder| docs::files(folder, "rs"));
    let files = files.filter(|path| !path.components().any(|part| part.as_os_str() == "target"));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        for after in text.split("#[test]").skip(1) {
            let name = after.split_once("fn ").and_then(|(_, rest)| rest.split('(').next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

/// The cells of the rows of each table whose last column is called `Test`, with the number of the column called `Message`.
fn change_rows(page: &str) -> Vec<(Option<usize>, Vec<&str>)> {
    let (mut rows, mut message, mut within) = (Vec::new(), None, false);
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix('|')) else {
            within &= line.starts_with("|--");
            continue;
        };
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        if cells.last() == Some(&"Test") {
            (message, within) = (cells.iter().position(|cell| *cell == "Message"), true);
        } else if within {
            rows.push((message, cells));
        }
    }
    rows
}

#[test]
fn every_change_that_is_found_names_a_test_and_a_message_that_there_are() {
    let (tests, sources) = (test_names(), sources());
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, page) in docs::pages().iter().filter(|(name, _)| CHANGES.contains(&name.as_str())) {
        let mut before = Vec::new();
        for (message, cells) in change_rows(page) {
            count += 1;
            let test = cells.last().copied().unwrap_or_default();
            let named = if test == "the same" { before.clone() } else { docs::code_spans(test) };
            if named.is_empty() || named.iter().any(|name| !tests.contains(name)) {
                wrong.push(format!("{name}: {}: no test {test:?}", cells[0]));
            }
            before = named;
            for quoted in message.map(|column| docs::code_spans(cells[column])).unwrap_or_default() {
                let parts: Vec<_> = quoted.split('…').map(|part| part.trim_matches([' ', ','])).collect();
                let is_in = |source: &String| parts.iter().all(|part| source.contains(part));
                if !sources.iter().any(is_in) {
                    wrong.push(format!("{name}: {}: no message {quoted:?}", cells[0]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= CHANGES_MIN, "{count}");
}

#[test]
fn every_screen_that_is_shown_is_drawn_like_that() {
    let folders = ["installer", "crates"].map(|name| docs::repository().join(name));
    let recorded = folders.iter().flat_map(|folder| docs::files(folder, "txt"));
    let recorded: BTreeSet<_> = recorded.filter_map(|path| fs::read_to_string(path).ok()).collect();
    let shows_all = |place: &str| {
        ["README.md:", "docs/tutorials/first-node.md:"].iter().any(|page| place.starts_with(page))
    };
    let is_screen = |fence: &Fence| {
        fence.text.starts_with(" Install: ") || shows_all(&fence.place) && fence.language == "text"
    };
    let screens: Vec<_> = fences().into_iter().filter(is_screen).collect();
    assert!(screens.len() > 12);
    for Fence { place, text, .. } in screens {
        assert!(recorded.contains(&text), "{place}: no screen looks like this now:\n{text}");
    }
}

#[test]
fn no_page_is_long_but_those_that_are_looked_up() {
    for (name, page) in docs::pages() {
        let (_, rest) = docs::fences(&name, &page);
        let words = rest.split_whitespace().filter(|word| *word != "|").count();
        let may_be_long = LONG.iter().any(|long| name.starts_with(long));
        assert!(may_be_long || words <= WORDS_MAX, "{name} has {words} words");
    }
    let readme = fs::read_to_string(docs::repository().join("README.md")).unwrap();
    assert!(readme.lines().count() <= README_LINES_MAX, "{}", readme.lines().count());
}
