//! Watches the node until it is ready, and records the stages: for `installer status` in [`SEEN`], for the consoles beside
//! `/etc/issue`, and once the node is ready, permanently in [`READY`].

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::observed_node::ObservedNode;
use super::stage::{Stage, all_done, current, mark};
use base::command::Runner;
use base::files::{self, Attributes, Root};
use machine::console_text::{escaped, for_console, show_again, wrapped};
use machine::paths::below;

/// The last stages since the machine started.
pub const SEEN: &str = "/run/nqrust/stages.json";
/// When the node was ready, kept over restarts.
pub const READY: &str = "/var/lib/nqrust/ready.json";
/// What agetty(8) shows behind `/etc/issue`: the OS image has a link to it in `/etc/issue.d`. agetty does not read `/run/issue.d`
/// if there is an `/etc/issue`.
pub const ISSUE: &str = "/run/nqrust/issue";
/// Between two observations, at first and when the node takes long.
const OBSERVATION_PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];
/// The number of observations with the shorter pause.
const FREQUENT_OBSERVATIONS: u32 = 120;

/// When a node was ready in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyRecord {
    pub name: String,
    /// The cluster's address, if the document gives one.
    pub cluster: Option<String>,
    pub distribution: String,
    /// When it was ready first, in RFC 3339.
    pub first: String,
    /// When it was ready after the last start of the machine, in RFC 3339.
    pub last: String,
}

impl ReadyRecord {
    pub fn read(root: &Path) -> Result<Option<Self>> {
        let path = below(root, READY);
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(&path)?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display())).map(Some)
    }

    /// Records that the node is ready now. Another name or cluster begins another record.
    fn write(root: &Path, subject: &ObservedNode, now: &str) -> Result<()> {
        let member = &subject.member;
        let ready = Self {
            name: subject.name.clone().unwrap_or_default(),
            cluster: member.host.clone(),
            distribution: member.distribution.name().to_owned(),
            first: now.to_owned(),
            last: now.to_owned(),
        };
        // An unreadable record is replaced.
        let before = Self::read(root).ok().flatten().filter(|before| {
            (&before.name, &before.cluster, &before.distribution)
                == (&ready.name, &ready.cluster, &ready.distribution)
        });
        let first = before.map_or(ready.first, |before| before.first);
        let text = serde_json::to_string_pretty(&Self { first, ..ready })? + "\n";
        keep(root, READY, &text)
    }
}

/// The stages that the watching unit recorded last; empty if it has not run since the machine started.
#[must_use]
pub fn recorded_stages(root: &Path) -> Vec<Stage> {
    let text = files::read_text(&below(root, SEEN)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The stages, each with the time of its last change: as before, or `now`.
#[must_use]
pub fn with_times(before: &[Stage], mut stages: Vec<Stage>, now: &str) -> Vec<Stage> {
    for stage in &mut stages {
        let same = before.iter().find(|other| other.name == stage.name && other.state == stage.state);
        stage.since = same.and_then(|same| same.since.clone()).or_else(|| Some(now.to_owned()));
    }
    stages
}

#[derive(Debug)]
pub struct ReadinessWatch<'a> {
    pub root: &'a Path,
    pub subject: &'a ObservedNode,
    /// Whether to record the stages, for `status` and the consoles.
    pub record: bool,
}

impl ReadinessWatch<'_> {
    /// Observes until everything is done or `limit` has passed; calls `tell` with each result, and whether it is new. Returns the
    /// last result.
    pub fn run(
        &self,
        runner: &dyn Runner,
        limit: Option<Duration>,
        tell: &mut dyn FnMut(&[Stage], bool) -> Result<()>,
    ) -> Result<Vec<Stage>> {
        let begin = Instant::now();
        let mut last = recorded_stages(self.root);
        for look in 0_u32.. {
            let now = time();
            let stages = with_times(&last, self.subject.look(self.root, runner), &now);
            let news = look == 0 || stages != last;
            tell(&stages, news)?;
            if self.record {
                self.subject.show_missing_cards(self.root, runner)?;
            }
            if news && self.record {
                self.keep(runner, &stages, &now)?;
            }
            last = stages;
            let pause = OBSERVATION_PAUSES[usize::from(look >= FREQUENT_OBSERVATIONS)];
            if all_done(&last) || limit.is_some_and(|limit| begin.elapsed() + pause > limit) {
                break;
            }
            thread::sleep(pause);
        }
        Ok(last)
    }

    fn keep(&self, runner: &dyn Runner, stages: &[Stage], now: &str) -> Result<()> {
        let text = serde_json::to_string_pretty(stages)? + "\n";
        keep(self.root, SEEN, &text)?;
        if all_done(stages) {
            ReadyRecord::write(self.root, self.subject, now)?;
        }
        let issue = issue(self.subject, stages, now);
        keep(self.root, ISSUE, &issue)?;
        show_again(runner);
        Ok(())
    }
}

/// Writes a world-readable file below `root`.
fn keep(root: &Path, path: &str, text: &str) -> Result<()> {
    Root::open(root)?.write(path, text.as_bytes(), Attributes { mode: 0o644, owner: None }).map(drop)
}

/// In RFC 3339 with whole seconds.
#[must_use]
pub fn time() -> String {
    format!("{:.0}", Timestamp::now())
}

/// The text above the login of a console: the node, a mark for each stage, then the current stage.
fn issue(subject: &ObservedNode, stages: &[Stage], now: &str) -> String {
    let (lines, device) = subject.describe();
    let mut issue = for_console(&lines);
    if let Some(device) = device {
        // agetty(8) inserts the address, and updates it when it changes.
        issue.push_str(&format!("Address: \\4{{{device}}} ({device})\n"));
    }
    issue + &escaped(&stage_lines(stages, now))
}

fn stage_lines(stages: &[Stage], now: &str) -> String {
    let mut text = stages.iter().map(mark).collect::<Vec<_>>().join("  ") + "\n";
    match current(stages) {
        None => text.push_str(&wrapped(&format!("Ready in its cluster at {now}."))),
        Some(stage) => {
            text.push_str(&wrapped(&stage.to_string().split_whitespace().collect::<Vec<_>>().join(" ")));
            text.extend(stage.next.iter().map(|next| wrapped(next)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::observed_node::tests::joining;
    use crate::stages::{StageName, StageState};
    use machine::console_text::WIDTH;
    use testing::node::node_programs;

    fn stage(name: StageName, state: StageState, detail: &str) -> Stage {
        Stage { name, state, since: None, detail: detail.into(), next: None }
    }

    #[test]
    fn a_stage_keeps_its_time_until_it_changes() {
        let first = with_times(&[], vec![stage(StageName::Network, StageState::Waiting, "a")], "1");
        let second = with_times(&first, vec![stage(StageName::Network, StageState::Waiting, "b")], "2");
        let third = with_times(&second, vec![stage(StageName::Network, StageState::Done, "c")], "3");
        let since = [&first, &second, &third].map(|stages| stages[0].since.clone().unwrap());
        assert_eq!(since, ["1", "1", "3"]);
    }

    #[test]
    fn a_console_shows_the_stage_that_the_node_is_in() {
        let mut stages = vec![
            stage(StageName::Network, StageState::Done, "mgmt-br has 192.0.2.11/24"),
            stage(
                StageName::Server,
                StageState::Waiting,
                "https://192.0.2.10:9345 does not answer: \u{1b}[2J C:\\x",
            ),
        ];
        stages[1].next = Some("Check it.".into());
        assert_eq!(
            escaped(&stage_lines(&stages, "now")),
            "[x] network  [ ] server\n\
             server waiting https://192.0.2.10:9345 does not answer:  [2J C:\\\\x\n\
             Check it.\n"
        );
        stages[1].state = StageState::Done;
        assert!(stage_lines(&stages, "now").contains("Ready in its cluster at now.\n"));
        let long = vec![stage(StageName::Server, StageState::Failed, &"word ".repeat(60))];
        assert!(stage_lines(&long, "now").lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn a_console_shows_what_the_node_is_and_where_its_cluster() {
        let root = joining();
        let document = "token: a-long-and-random-shared-text\nos: {hostname: node-1}\n\
                        install: {mode: create, vip: 192.0.2.10, vip_mode: static, management_interface: \
                        {method: dhcp, interfaces: [{name: ens3}]}}\nkubernetes: {distribution: k3s}\n";
        std::fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        let subject = ObservedNode::read(root.path()).unwrap().unwrap();
        let issue = issue(&subject, &[], "now");
        let lines: Vec<_> = issue.lines().collect();
        assert!(lines[0].ends_with(": management (asked: default, mode create)"), "{issue}");
        assert_eq!(lines[1], "Cluster: k3s at https://192.0.2.10:6443, VIP 192.0.2.10");
        assert_eq!(lines[2], "Address: \\4{mgmt-br} (mgmt-br)");
    }

    #[test]
    fn what_is_seen_is_kept_for_status_and_the_consoles_and_told_once() {
        let root = joining();
        let programs = node_programs("activating", "");
        let subject = ObservedNode::read(root.path()).unwrap().unwrap();
        let mut told = 0;
        for record in [false, true] {
            let watch = ReadinessWatch { root: root.path(), subject: &subject, record };
            let mut tell = |_: &[Stage], news: bool| {
                assert!(news);
                told += 1;
                Ok(())
            };
            let stages = watch.run(&programs, Some(Duration::ZERO), &mut tell).unwrap();
            assert_eq!(below(root.path(), ISSUE).exists(), record);
            assert_eq!(recorded_stages(root.path()), if record { stages } else { Vec::new() });
        }
        assert_eq!(told, 2);
        assert_eq!(ReadyRecord::read(root.path()).unwrap(), None);
        assert_eq!(programs.commands().last().unwrap(), "agetty --reload");
    }

    #[test]
    fn the_first_time_is_kept_over_restarts_and_not_for_another_cluster() {
        let root = joining();
        let done = [stage(StageName::Ready, StageState::Done, "")];
        let subject = || ObservedNode::read(root.path()).unwrap().unwrap();
        let ready = |now: &str| {
            let subject = subject();
            let watch = ReadinessWatch { root: root.path(), subject: &subject, record: true };
            watch.keep(&node_programs("", ""), &done, now).unwrap();
            let ready = ReadyRecord::read(root.path()).unwrap().unwrap();
            (ready.first, ready.last)
        };
        let times = |first: &str, last: &str| (first.to_owned(), last.to_owned());
        assert_eq!(ready("1"), times("1", "1"));
        assert_eq!(ready("2"), times("1", "2"));
        std::fs::write(below(root.path(), READY), "damaged").unwrap();
        assert_eq!(ready("3"), times("3", "3"));
        let document = root.path().join("oem/node.yaml");
        let text = std::fs::read_to_string(&document).unwrap().replace("127.0.0.2", "127.0.0.3");
        std::fs::write(&document, text).unwrap();
        assert_eq!(ready("4"), times("4", "4"));
    }

    #[test]
    fn times_are_whole_seconds() {
        let time = time();
        assert_eq!((time.len(), time.ends_with('Z')), (20, true), "{time}");
    }
}
