//! The audit log as JSON, and its entries in the journal.

use schemars::JsonSchema;
use serde::Serialize;

use super::view::VERSION;
use crate::journal::JournalEntry;
use crate::machines::audit::{AuditEntry, AuditQuery, AuditRecord, AuditResult};

/// The most entries of one answer, and how many without `limit`.
const MOST: usize = 1000;
const USUAL: usize = 100;

/// The JSON of `/v1/fleet/audit`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditDocument {
    v: u32,
    /// The latest first.
    entries: Vec<AuditRow>,
    /// The `before` of the next page; null where there is none.
    next: Option<u64>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditRow {
    /// Counts up from 1.
    number: u64,
    /// RFC 3339.
    time: String,
    #[serde(flatten)]
    record: AuditRecord,
}

impl From<AuditEntry> for AuditRow {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { number, time, record } = entry;
        Self { number, time: time.to_string(), record }
    }
}

impl AuditDocument {
    /// `entries` are those of [`one_more`].
    #[must_use]
    pub fn new(mut entries: Vec<AuditEntry>, query: AuditQuery) -> Self {
        let more = entries.len() > query.limit;
        entries.truncate(query.limit);
        let next = entries.last().map(|entry| entry.number).filter(|_| more);
        Self { v: VERSION, entries: entries.into_iter().map(AuditRow::from).collect(), next }
    }
}

/// The query for a page and one entry more, which says whether there is another page.
#[must_use]
pub fn one_more(query: AuditQuery) -> AuditQuery {
    AuditQuery { limit: query.limit + 1, ..query }
}

/// Reads the query of a request as it was sent; the error says what is wrong with it.
pub fn read(query: &str) -> Result<AuditQuery, String> {
    let mut wanted = AuditQuery { before: None, machine: None, limit: USUAL };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "before" => {
                let number = value.parse().map_err(|_| format!("{value} is not the number of an entry"))?;
                wanted.before = Some(number);
            }
            "machine" => {
                let id = value.parse().map_err(|_| format!("{value} is not the id of a machine"))?;
                wanted.machine = Some(id);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                wanted.limit = limit.ok_or_else(|| format!("{value} is not a number from 1 to {MOST}"))?;
            }
            _ => {
                return Err(format!(
                    "{key} is not a parameter of the audit log; there are before, machine and limit"
                ));
            }
        }
    }
    Ok(wanted)
}

/// The journal's entry about an action.
#[must_use]
pub fn journal(entry: &AuditEntry) -> JournalEntry {
    let AuditRecord { actor, action, subject, result } = &entry.record;
    let refused = if *result == AuditResult::Refused { ", refused" } else { "" };
    let text = format!("{actor}: {} {subject}{refused}", action.name());
    JournalEntry::audit(text, &AuditRow::from(entry.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::access_token::TokenRole;
    use crate::machines::audit::{Actor, AuditAction, AuditSubject};
    use crate::machines::id::MachineId;
    use crate::moment::Moment;

    fn entry(number: u64) -> AuditEntry {
        let actor = Actor::token("alice", TokenRole::Operate, Some([192, 0, 2, 7].into()));
        let subject = AuditSubject::machine(MachineId::random(), "serial-CZ12.yaml".into());
        let (action, result) = (AuditAction::Redeploy, AuditResult::Done);
        let record = AuditRecord { actor, action, subject, result };
        AuditEntry { number, time: Moment(1_700_000_000), record }
    }

    #[test]
    fn a_query_asks_for_a_page_of_the_log() {
        let id = MachineId::random();
        let usual = AuditQuery { before: None, machine: None, limit: 100 };
        for (query, expected) in [
            ("", Ok(usual)),
            ("limit=1000&before=7", Ok(AuditQuery { before: Some(7), limit: 1000, ..usual })),
            (&*format!("machine={id}"), Ok(AuditQuery { machine: Some(id), ..usual })),
            ("limit=0", Err("0 is not a number from 1 to 1000")),
            ("limit=1001", Err("1001 is not a number from 1 to 1000")),
            ("before=x", Err("x is not the number of an entry")),
            ("machine=x", Err("x is not the id of a machine")),
            ("x", Err("x is not a parameter of the audit log; there are before, machine and limit")),
        ] {
            assert_eq!(read(query), expected.map_err(str::to_owned), "{query}");
        }
    }

    #[test]
    fn a_page_names_the_next_one_where_there_is_one() {
        let query = AuditQuery { before: None, machine: None, limit: 2 };
        assert_eq!(one_more(query).limit, 3);
        let next = |count: u64| AuditDocument::new((1..=count).rev().map(entry).collect(), query).next;
        assert_eq!((next(0), next(2), next(3)), (None, None, Some(2)));
    }

    #[test]
    fn an_entry_says_who_did_what_to_which_machine() {
        let entry = entry(7);
        let AuditSubject::Machine { id, .. } = &entry.record.subject else { panic!("{entry:?}") };
        let expected = serde_json::json!({
            "number": 7,
            "time": "2023-11-14T22:13:20Z",
            "actor": { "kind": "token", "name": "alice", "role": "operate", "address": "192.0.2.7" },
            "action": "redeploy",
            "machine": { "id": id.to_string(), "name": "serial-CZ12.yaml" },
            "result": "done",
        });
        assert_eq!(serde_json::to_value(AuditRow::from(entry.clone())).unwrap(), expected);
        let stored = serde_json::to_string(&entry.record).unwrap();
        assert_eq!(serde_json::from_str::<AuditRecord>(&stored).unwrap(), entry.record);
    }
}
