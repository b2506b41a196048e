//! Documents with a mistake on every line: what is told of them stays readable, and the time grows with their size and not
//! with its square. Such documents come from other programs, from a damaged file, or from somebody who wants to keep an
//! install busy.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

use std::fmt::Write as _;
use std::time::Duration;

use model::cluster_file;
use model::config::{self, Invalid};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// How many mistakes and warnings are listed of one document, by the documentation.
const LISTED: usize = 100;

/// A kind of document: its head, the line of a number, its end, and whether it is a cluster file.
struct LargeDocument {
    name: &'static str,
    head: &'static str,
    line: fn(usize) -> String,
    end: &'static str,
    cluster: bool,
}

const fn sort(name: &'static str, head: &'static str, line: fn(usize) -> String) -> LargeDocument {
    LargeDocument { name, head, line, end: "", cluster: false }
}

/// Every way that is known to have a mistake on each line, or to let each line be compared with all others.
const SORTS: [LargeDocument; 14] = [
    sort("unknown keys", "", |n| format!("a{n}: b\n")),
    sort("unknown keys with comments", "", |n| format!("a{n}: b # why {n}\n")),
    LargeDocument { end: "}\n", ..sort("one long line", "{", |n| format!("a{n}: b, ")) },
    sort("the same key", "os:\n", |_| "  hostname: a\n".into()),
    sort("secrets in wrong places", "system_settings:\n", |n| format!("  k{n}: s3cret\n")),
    sort("wrong elements", "os:\n  dns_nameservers:\n", |_| "    - 300.1.1.1\n".into()),
    sort("equal elements", "os:\n  dns_nameservers:\n", |_| "    - 192.0.2.1\n".into()),
    sort("wrong words", "os:\n  write_files:\n", |n| {
        format!("    - {{path: /etc/f{n}, content: a, encoding: bsae64}}\n")
    }),
    sort("equal files", "os:\n  write_files:\n", |_| "    - {path: /etc/f, content: a}\n".into()),
    sort("different files", "os:\n  write_files:\n", |n| format!("    - {{path: /x/f{n}, content: a}}\n")),
    sort("directories in a directory", "os:\n  persistent_state_paths:\n    - /x\n", |n| {
        format!("    - /x/f{n}\n")
    }),
    sort("equal names", "os:\n  users:\n", |_| "    - {name: a}\n".into()),
    sort("equal calls", "install:\n  webhooks:\n", |_| {
        "    - {event: STARTED, method: GET, url: 'https://a.example.org/'}\n".into()
    }),
    LargeDocument {
        cluster: true,
        ..sort(
            "machines of one name",
            "cluster: {name: a}\npools:\n  - name: p\n    role: worker\n    machines:\n",
            |_| "      - {hostname: a, macs: ['52:54:00:00:00:01']}\n".into(),
        )
    },
];

impl LargeDocument {
    fn document(&self, lines: usize) -> String {
        let mut text = self.head.to_owned();
        (0..lines).for_each(|number| write!(text, "{}", (self.line)(number)).unwrap());
        text + self.end
    }

    fn told(&self, text: &str) -> Invalid {
        match self.cluster {
            true => match cluster_file::check(text, "large.yaml") {
                Ok(checked) => Invalid(checked.warnings),
                Err(invalid) => invalid,
            },
            false => match config::check(text, "large.yaml") {
                Ok(accepted) => Invalid(accepted.warnings),
                Err(invalid) => invalid,
            },
        }
    }

    /// The processor time of some runs together. What else the machine does counts little in it, and several runs are
    /// long enough for kernels that count it in ticks of 4 ms.
    fn time(&self, lines: usize, runs: usize) -> Duration {
        let text = self.document(lines);
        let once = || {
            let begun = processor_time();
            let told = self.told(&text);
            assert!(!told.0.is_empty(), "{}", self.name);
            processor_time().checked_sub(begun).unwrap()
        };
        (0..runs).map(|_| once()).sum()
    }
}

/// The processor time of this thread, see getrusage(2).
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let spent = usage.user_time() + usage.system_time();
    Duration::from_micros(spent.num_microseconds().try_into().unwrap())
}

#[test]
fn of_a_document_with_a_mistake_on_every_line_a_hundred_are_told_and_the_rest_is_counted() {
    for sort in SORTS {
        let lines = if sort.cluster { 200 } else { 1000 };
        let told = sort.told(&sort.document(lines));
        let counted = told.errors() + told.warnings();
        assert!(counted >= lines - 1 || told.errors() == 1, "{}: {counted}", sort.name);
        // One entry more for the mistakes that are not listed, and one for the warnings.
        assert!(told.0.len() <= 2 * (LISTED + 1), "{}: {}", sort.name, told.0.len());
        assert!(told.0.iter().filter(|said| said.line > 0).count() <= 2 * LISTED, "{}", sort.name);
        let text = told.to_string();
        assert!(text.len() < 100_000 && !text.contains("s3cret"), "{}: {}", sort.name, text.len());
        assert!(serde_json::to_string(&told.0).unwrap().len() < 100_000, "{}", sort.name);
        if told.errors() > LISTED {
            let rest = told.errors() - LISTED;
            assert!(
                text.contains(&format!("large.yaml: and {rest} more mistakes [more-mistakes]")),
                "{text}"
            );
        }
    }
}

#[test]
fn ten_times_the_mistakes_take_no_more_than_twenty_times_the_time() {
    for sort in SORTS {
        let lines = if sort.cluster { 40 } else { 300 };
        let (small, large) = (sort.time(lines, 40), sort.time(10 * lines, 4));
        // As many lines in both; with the square the long documents would take ten times as much as the short ones.
        assert!(
            large < small * 2,
            "{}: {small:?}, and {large:?} in documents of ten times the length",
            sort.name
        );
    }
}

/// The promise of the documentation; `cargo test --release` holds it against a clock.
#[test]
#[cfg_attr(debug_assertions, ignore = "measures the release build")]
fn a_document_of_900_kb_with_a_mistake_on_every_line_is_told_within_two_seconds() {
    for sort in SORTS.iter().filter(|sort| !sort.cluster) {
        let lines = 900_000 / (sort.line)(10_000).len();
        let time = sort.time(lines, 1);
        println!("{}: {lines} lines in {time:?}", sort.name);
        assert!(time < Duration::from_secs(2), "{}: {time:?}", sort.name);
    }
}
