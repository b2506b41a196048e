//! What the pages in `docs` show can be pasted: each YAML block is valid as it is, or says in its first line what it is a part of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;

use model::cluster_file;
use model::config::{self, Invalid};

/// The YAML blocks of all pages: the page with the line, and the text.
fn blocks() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for (page, text) in testing::docs::pages() {
        let mut open: Option<(usize, String)> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.trim_start()) {
                (None, "```yaml") => open = Some((number + 1, String::new())),
                (Some((start, block)), "```") => {
                    blocks.push((format!("{page}:{start}"), std::mem::take(block)));
                    open = None;
                }
                (Some((_, block)), _) => block.push_str(&format!("{line}\n")),
                (None, _) => {}
            }
        }
    }
    blocks
}

/// The keys at the top of a block.
fn keys(block: &str) -> Vec<&str> {
    let top = block.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    top.filter_map(|line| line.split_once(':')).map(|(key, _)| key).collect()
}

fn checked(place: &str, block: &str) -> Result<(), Invalid> {
    match keys(block).contains(&"pools") {
        true => cluster_file::check(block, place).map(drop),
        false => config::check(block, place).map(drop),
    }
}

#[test]
fn what_is_shown_as_yaml_can_be_pasted_or_says_what_it_is_a_part_of() {
    let blocks = blocks();
    let (mut whole, mut parts) = (0, 0);
    for (place, block) in &blocks {
        let first = block.lines().next().unwrap_or_default();
        // Pipelines of CI systems have tests of their own.
        if place.starts_with("docs/how-to/ci.md:")
            || keys(block).contains(&"apiVersion")
            // For another program.
            || first.starts_with("# Prometheus:")
            || first.starts_with("# A part of an image definition")
            // The builder has a test of these.
            || first.starts_with("# An image definition")
        {
            continue;
        }
        match (first.starts_with("# A part of a configuration"), checked(place, block)) {
            (false, Ok(())) => whole += 1,
            (false, Err(invalid)) => panic!("{place} is shown as if it were whole\n{invalid}"),
            (true, Ok(())) => panic!("{place} is whole, and says that it is a part"),
            (true, Err(invalid)) => {
                let unknown = invalid.0.iter().any(|told| told.code == "unknown-key");
                assert!(!unknown, "{place}\n{invalid}");
                parts += 1;
            }
        }
    }
    assert!(whole >= 3 && parts >= 3, "{whole} whole and {parts} parts of {}", blocks.len());
}

#[test]
fn example_nodes_pass_and_strictly_but_for_the_token_that_has_to_be_changed() {
    let mut count = 0;
    for node in fs::read_dir(testing::docs::repository().join("configs/nodes")).unwrap() {
        let path = node.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let accepted = config::check(&text, &path.display().to_string());
        let warnings = accepted.unwrap_or_else(|invalid| panic!("{invalid}")).warnings;
        assert!(warnings.iter().all(|warning| warning.code == "weak-token"), "{}", path.display());
        let says = text.contains("--strict");
        assert_eq!(
            says,
            !warnings.is_empty(),
            "{} says that --strict refuses it, or need not",
            path.display()
        );
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn the_answers_of_make_run_are_valid_without_a_warning() {
    let path = testing::docs::repository().join("configs/trial/node.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let accepted = config::check(&text, &path.display().to_string());
    let warnings = accepted.unwrap_or_else(|invalid| panic!("{invalid}")).warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
}
