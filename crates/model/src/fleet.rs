//! Reports to the server of a fleet: the body of a request is a few JSON objects, one a line, each with one key
//! that says what it is. The first is a [`ReportLine::Hello`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::machine::Identity;
use base::progress::Event;

pub const VERSION: u32 = 1;
/// The media type of a body.
pub const CONTENT_TYPE: &str = "application/x-ndjson";
/// The longest body that is sent, in bytes, log included.
pub const BODY: usize = 1 << 20;
/// The longest log that is sent, in bytes.
pub const LOG: usize = 200 << 10;
/// The longest message of an event, and the longest error, in bytes.
pub const MESSAGE: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReportLine {
    /// Who speaks; the first line of every request, and no other.
    Hello(StreamHeader),
    Event(Event),
    /// Why the run failed; after its last event.
    Failure(RunFailure),
    /// The log of a failure; the latest counts.
    Log(String),
    /// How far the installed node has come into its cluster; the latest counts.
    Node(NodeReport),
    /// How the updates of the installed node stand; the latest counts.
    Update(UpdateReport),
    /// The install waits until the cluster that it joins is up. The server answers with a [`CreatorStatus`]. Servers of earlier
    /// versions skip the line and answer without one.
    Wait {},
}

/// The server's answer to an install that waits for its cluster: the progress of the machine that creates the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatorStatus {
    pub v: u32,
    /// Whole sentences: its hostname, how far it is or why it failed, and what to do next. At most [`MESSAGE`] bytes.
    pub text: String,
}

/// The first line of a stream: the machine that reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamHeader {
    pub v: u32,
    /// Drawn anew for every run, so that a second install of a machine is not taken for the first going on.
    #[schemars(with = "String")]
    pub run: Uuid,
    pub machine: Identity,
    /// The name that the node will have, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The product to install, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunFailure {
    /// The failure and its causes, outermost first.
    pub causes: Vec<String>,
    /// The next steps, each a sentence.
    pub hints: Vec<String>,
    pub exit_code: u8,
}

/// How far an installed node has come into its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// The cluster says that it is ready.
    pub ready: bool,
    /// It does not become ready without intervention.
    pub failed: bool,
    /// The stage that it is in, as `installer status` calls it; the last one where it is ready.
    pub stage: String,
    /// The observation of that stage, or the last error in words.
    pub detail: String,
    /// The next step for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How the updates of an installed node stand, in the words of `installer update status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateReport {
    /// `idle`, `staged`, `pending`, `trial` or `rolled-back`.
    pub state: String,
    pub running: String,
    pub slots: Vec<SlotReport>,
    /// The release that is staged or on trial, or was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<String>,
    pub tries_left: u8,
    /// Why it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who has signed the release that runs, a clause. Nodes of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// What a person has to know of the origin of the node's releases and of damage to its OS image, each a clause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotReport {
    pub slot: String,
    /// None for the recovery system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The version of its release; none where it has no whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl UpdateReport {
    /// True if the last update was taken back, and no other has been begun.
    #[must_use]
    pub fn is_rolled_back(&self) -> bool {
        self.state == "rolled-back"
    }

    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.slots.iter().find(|slot| slot.slot == self.running)?.version.as_deref()
    }
}

/// `text`, or as much of its beginning as `limit` bytes hold, with a mark that there was more.
#[must_use]
pub fn beginning(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mark = "…";
    let most = limit.saturating_sub(mark.len());
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{mark}", &text[..end])
}

/// `text`, or as much of its end as `limit` bytes hold, from the beginning of a line on where there is one.
#[must_use]
pub fn end(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let begin = (text.len() - limit..).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let tail = &text[begin..];
    tail.find('\n').map_or(tail, |at| &tail[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_loses_its_end_and_a_log_its_beginning() {
        assert_eq!(beginning("äöü", 6), "äöü");
        assert_eq!(beginning("äöüx", 6), "ä…");
        assert_eq!(beginning("äöü", 0), "…");
        assert_eq!(end("one\ntwo\nthree", 13), "one\ntwo\nthree");
        assert_eq!(end("one\ntwo\nthree", 8), "three");
        assert_eq!(end("äöü", 3), "ü");
    }
}
