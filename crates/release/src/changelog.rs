//! The changelog, in the form of <https://keepachangelog.com/en/1.1.0/>: release notes are entries of it.

use anyhow::{Context, Result, bail, ensure};
use jiff::civil::Date;

/// The heading of what no release has yet.
const UNRELEASED: &str = "Unreleased";

/// The kinds of changes that an entry is divided into.
const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// All entries, the newest first.
#[derive(Debug, PartialEq)]
pub(crate) struct Changelog(Vec<ChangelogEntry>);

#[derive(Debug, PartialEq)]
struct ChangelogEntry {
    /// The version, or [`UNRELEASED`].
    version: String,
    /// When it was released; `None` for what no release has yet.
    date: Option<Date>,
    /// The text below the heading, with a line end.
    text: String,
}

impl Changelog {
    /// Reads a changelog. Refuses headings of other forms, entries without a change, and dates in the wrong order.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for part in text.split("\n## ").skip(1) {
            let (heading, text) = part.split_once('\n').unwrap_or((part, ""));
            let entry = ChangelogEntry::parse(heading, text)
                .with_context(|| format!("reading the entry `## {heading}` of the changelog"))?;
            entries.push(entry);
        }
        ensure!(!entries.is_empty(), "the changelog has no entry: expected `## [VERSION] - YYYY-MM-DD`");
        for pair in entries.windows(2) {
            let later = &pair[0];
            ensure!(
                later.date.is_none() || later.date >= pair[1].date,
                "the changelog has {} before {}, which was released later: put the newest first",
                later.version,
                pair[1].version
            );
        }
        Ok(Self(entries))
    }

    pub(crate) fn notes(&self, version: &str) -> Result<String> {
        let entry = self.0.iter().find(|entry| entry.version == version);
        let entry = entry.with_context(|| {
            format!("the changelog has no entry for {version}: add `## [{version}] - YYYY-MM-DD`")
        })?;
        let released = entry.date.map_or_else(String::new, |date| format!("Released on {date}.\n\n"));
        Ok(format!("# Release {version}\n\n{released}{}", entry.text))
    }
}

impl ChangelogEntry {
    fn parse(heading: &str, text: &str) -> Result<Self> {
        let form = "expected `## [VERSION] - YYYY-MM-DD` or `## [Unreleased]`";
        let (version, rest) =
            heading.strip_prefix('[').and_then(|rest| rest.split_once(']')).context(form)?;
        let date = match rest.trim_end() {
            "" if version == UNRELEASED => None,
            rest => Some(rest.strip_prefix(" - ").context(form)?.parse::<Date>().context(form)?),
        };
        for kind in text.lines().filter_map(|line| line.strip_prefix("### ")) {
            if !KINDS.contains(&kind) {
                bail!("`### {kind}` is not a kind of change: expected one of {}", KINDS.join(", "));
            }
        }
        let changes = text.lines().any(|line| line.starts_with("- "));
        ensure!(changes || date.is_none(), "no change is listed: expected lines that begin with `- `");
        Ok(Self { version: version.to_owned(), date, text: format!("{}\n", text.trim()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2030-02-01\n\n### Added\n\n- one\n- two\n\n\
        ## [0.1.0] - 2030-01-01\n\n### Fixed\n\n- zero\n";

    #[test]
    fn the_notes_of_a_version_are_its_entry_alone() {
        let changelog = Changelog::parse(TEXT).unwrap();
        let notes = changelog.notes("0.2.0").unwrap();
        assert_eq!(notes, "# Release 0.2.0\n\nReleased on 2030-02-01.\n\n### Added\n\n- one\n- two\n");
        let error = changelog.notes("0.3.0").unwrap_err().to_string();
        assert_eq!(error, "the changelog has no entry for 0.3.0: add `## [0.3.0] - YYYY-MM-DD`");
    }

    #[test]
    fn an_entry_of_another_form_is_refused_with_its_heading() {
        for (text, wanted) in [
            ("\n", "has no entry"),
            ("\n## 0.1.0\n- a\n", "`## 0.1.0` of the changelog: expected `## [VERSION]"),
            ("\n## [0.1.0]\n- a\n", "expected `## [VERSION]"),
            ("\n## [0.1.0] - 2030-13-01\n- a\n", "expected `## [VERSION]"),
            ("\n## [0.1.0] - 2030-01-01\nnothing\n", "no change is listed"),
            ("\n## [0.1.0] - 2030-01-01\n### News\n- a\n", "`### News` is not a kind of change"),
            (
                "\n## [0.1.0] - 2030-01-01\n- a\n\n## [0.2.0] - 2031-01-01\n- b\n",
                "0.1.0 before 0.2.0, which was released later",
            ),
        ] {
            let error = format!("{:#}", Changelog::parse(text).unwrap_err());
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_changelog_of_the_repository_has_an_entry_for_its_version() {
        let text = include_str!("../../../docs/changelog.md");
        let notes = Changelog::parse(text).unwrap().notes(crate::VERSION).unwrap();
        assert!(notes.contains("### Added") && notes.contains("### Security"), "{notes}");
    }

    #[test]
    fn the_index_of_the_pages_names_every_page() {
        let pages = testing::docs::pages();
        let (_, index) = pages.iter().find(|(name, _)| name == "docs/README.md").unwrap();
        let names = pages.iter().filter_map(|(name, _)| name.strip_prefix("docs/"));
        let missing: Vec<_> =
            names.filter(|name| *name != "README.md" && !index.contains(&format!("({name})"))).collect();
        assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
    }
}
