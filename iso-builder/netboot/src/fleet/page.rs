//! The page of the fleet, and the frame of all pages.

use maud::{DOCTYPE, Markup, html};
use model::config::Role;

use super::card;
use super::elements::{ago, icon, joined, times};
use super::filter::{InvalidFilter, MachineFilter};
use super::history::{FleetChanges, FleetPart};
use super::stage::{MachineStage, StageGroup};
use super::view::{ConflictRow, FleetView, MachineRow};
use crate::moment::Moment;

pub const STYLE: &str = include_str!("fleet.css");
/// The script that keeps a page up to date.
pub const SCRIPT: &str = include_str!("fleet.js");
/// Seconds after which pages reload themselves where scripts do not run.
const REFRESH: u32 = 5;

/// HTML as it is sent. Names and messages come from machines: `maud` escapes them, and this replaces characters that
/// could make one text look like another, which are control characters and those that change the writing direction.
#[must_use]
pub fn sent(markup: &Markup) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
            char::REPLACEMENT_CHARACTER
        }
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    markup.0.chars().map(shown).collect()
}

/// A whole page; `live` is the path from which the script reloads the content of `main`.
#[must_use]
pub fn document(title: &str, live: Option<&str>, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/fleet/style.css";
                @if live.is_some() {
                    noscript { meta http-equiv="refresh" content=(REFRESH); }
                    script src="/fleet/script.js" defer {}
                }
            }
            body {
                a.skip href="#main" { "Skip to the machines" }
                (icons())
                header.bar {
                    p.brand { a href="/fleet" { "NQRust " span { "Fleet" } } }
                    p id="link" role="status" {}
                }
                main id="main" data-live=[live] { (main) }
            }
        }
    }
}

/// The symbols that [`icon`] names.
fn icons() -> Markup {
    html! {
        svg.unseen aria-hidden="true" {
            defs {
                symbol id="i-installing" viewBox="0 0 16 16" { path d="M8 2v8M4.5 7 8 10.5 11.5 7M3 14h10" {} }
                symbol id="i-installed" viewBox="0 0 16 16" { path d="m3 8.5 3.5 3.5L13 4.5" {} }
                symbol id="i-failed" viewBox="0 0 16 16" { path d="m4 4 8 8m0-8-8 8" {} }
                symbol id="i-unknown" viewBox="0 0 16 16" {
                    path d="M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.3 8.6 8 9 8 10M8 13v.1" {}
                }
                symbol id="i-waiting" viewBox="0 0 16 16" {
                    circle cx="8" cy="8" r="6" {}
                    path d="M8 4.5V8l2.5 1.5" {}
                }
                symbol id="i-denied" viewBox="0 0 16 16" {
                    circle cx="8" cy="8" r="6" {}
                    path d="m4 4 8 8" {}
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ShownFleet<'a> {
    pub view: &'a FleetView,
    pub filter: &'a MachineFilter,
    /// The changes since the list that the page has. Unchanged machines are left out.
    pub changes: FleetChanges<'a>,
    /// The hidden value of every form that acts.
    pub form: &'a str,
    pub now: Moment,
}

/// The content of `main` of the page of the fleet, or what the script changes in it.
#[must_use]
pub fn fleet(shown: &ShownFleet<'_>) -> Markup {
    let ShownFleet { view, filter, changes, form, now } = *shown;
    let is_part = changes.since().is_some();
    let left = view.machines.iter().filter(|row| changes.has(row) && !filter.matches(row));
    let removed = changes.removed().chain(left.map(|row| &*row.id)).map(|id| format!("m-{id}"));
    let removed = is_part.then(|| removed.collect::<Vec<_>>().join(" "));
    let is_same = is_part && !changes.has_part(FleetPart::NotHeardOf);
    html! {
        div.head data-removed=[removed] {
            h1 { "Machines" }
            (summary(view))
            p.asof { "As of " time datetime=(now) { (clock(now)) } }
        }
        @for notice in &view.notices { p.notice { (icon("unknown")) "Warning: " bdi { (notice) } } }
        (conflicts(&view.conflicts, form, now))
        @if view.machines.is_empty() { (empty()) } @else { (boxes(filter)) }
        @if !view.machines.is_empty() && !view.machines.iter().any(|row| filter.matches(row)) {
            p #no-match .more { "No machine matches the filter. " a href="/fleet" { "Show all" } }
        }
        @for group in StageGroup::ALL { (section(shown, group)) }
        (not_heard_of(&view.not_heard_of, is_same))
        @if view.more > 0 {
            p.more {
                (view.more) " more machines, which need no attention, are not shown. "
                code { "/v1/fleet" } " lists all."
            }
        }
    }
}

/// The boxes that choose which machines are listed. The script keeps what is in them.
fn boxes(filter: &MachineFilter) -> Markup {
    let (stage, role, group, text) = filter.boxes();
    let stages = MachineStage::ALL.map(|one| (one.name(), one.text(), stage == Some(one)));
    let roles = Role::ALL.map(|one| (one.name(), one.name().to_owned(), role == Some(one)));
    let groups = StageGroup::ALL.map(|one| (one.name(), one.name().to_owned(), group == Some(one)));
    html! {
        form id="filter" class="filter" method="get" action="/fleet" role="search" data-keep {
            (choice("group", "Group", &groups))
            (choice("stage", "Stage", &stages))
            (choice("role", "Role", &roles))
            label { "Text" input type="search" name="text" value=(text) autocomplete="off"; }
            button { "Filter" span.unseen { " the machines" } }
            a href="/fleet" { "Show all" }
        }
    }
}

fn choice(name: &str, label: &str, options: &[(&str, String, bool)]) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "any" }
                @for (value, text, selected) in options { option value=(value) selected[*selected] { (text) } }
            }
        }
    }
}

/// The machines that a configuration names and that have never asked to boot; empty if they are those that the page has.
fn not_heard_of(hostnames: &[String], is_same: bool) -> Markup {
    html! {
        @if !hostnames.is_empty() && is_same {
            section id="not-heard-of" data-same {}
        } @else if !hostnames.is_empty() {
            section id="not-heard-of" aria-labelledby="h-not-heard-of" {
                h2 id="h-not-heard-of" { "Not heard of " span { (hostnames.len()) } }
                p.message {
                    @for (index, hostname) in hostnames.iter().enumerate() {
                        @if index > 0 { ", " }
                        bdi { (hostname) }
                    }
                }
                p.next { "Switch them on, and let them boot from the network." }
            }
        }
    }
}

/// Requests that were refused because they carried identifiers of several machines.
fn conflicts(conflicts: &[ConflictRow], form: &str, now: Moment) -> Markup {
    html! {
        @if !conflicts.is_empty() {
            section id="conflicts" aria-labelledby="h-conflicts" {
                h2 id="h-conflicts" { "Conflicts " span { (conflicts.len()) } }
                ul.fleet { @for conflict in conflicts { (dispute(conflict, form, now)) } }
            }
        }
    }
}

fn dispute(conflict: &ConflictRow, form: &str, now: Moment) -> Markup {
    let ConflictRow { id, address, told, between, times: count, seen, .. } = conflict;
    let names: Vec<_> = between.iter().map(|name| html! { strong { bdi { (name) } } }).collect();
    html! {
        li id={ "c-" (id) } class="machine is-failed" {
            div.who { h3 { (address) } p.marks { bdi { (told) } } }
            div.how {
                p.status {
                    span.stage { (icon("failed")) "Conflict" }
                    " " span.since { (ago(*seen, now, "", " ago")) ", " (times(*count)) }
                }
                p.message { "Its identifiers belong to " (joined(&names, " and ")) ", so it boots from its disk." }
                p.next {
                    "If it is one machine, keep only one of its configurations, or forget or redeploy the other entry. "
                    "If not, find out which machine has this address."
                }
            }
            div.actions {
                form method="post" action={ "/fleet/conflicts/" (id) "/dismiss" } {
                    input type="hidden" name="form" value=(form);
                    button id={ "dismiss-" (id) } { "Dismiss" span.unseen { " " (address) } }
                }
            }
        }
    }
}

/// The time of day, UTC.
fn clock(now: Moment) -> String {
    let text = now.to_string();
    let time = text.split_once('T').map(|(_, time)| time.trim_end_matches('Z'));
    time.map_or_else(|| text.clone(), |time| format!("{time} UTC"))
}

/// How many machines are in each group.
fn summary(view: &FleetView) -> Markup {
    html! {
        ul id="summary" class="summary" aria-label="Summary" aria-live="polite" aria-atomic="true" {
            @for count in &view.summary {
                @let text = count.group.name();
                li class={ "is-" (text) } {
                    a href={ "#" (text) } { (icon(text)) strong { (count.count) } " " (text) }
                }
            }
        }
    }
}

fn section(shown: &ShownFleet<'_>, group: StageGroup) -> Markup {
    let ShownFleet { view, filter, changes, form, now } = *shown;
    let is_shown = |row: &&MachineRow| row.group == group && filter.matches(row);
    let rows: Vec<&MachineRow> = view.machines.iter().filter(is_shown).collect();
    let befores = std::iter::once(None).chain(rows.iter().map(|row| Some(&*row.id)));
    let is_part = changes.since().is_some();
    let changed: Vec<_> = rows.iter().zip(befores).filter(|(row, _)| changes.has(row)).collect();
    let text = group.name();
    let (first, rest) = text.split_at(1);
    html! {
        @if !rows.is_empty() {
            section id=(text) aria-labelledby={ "h-" (text) } {
                h2 id={ "h-" (text) } { (first.to_uppercase()) (rest) " " span { (rows.len()) } }
                ul.fleet data-part[is_part] {
                    @for (row, before) in changed { (card::card(row, before.filter(|_| is_part), form, now)) }
                }
            }
        }
    }
}

/// The page of a fleet without machines.
fn empty() -> Markup {
    html! {
        div.empty {
            h2 { "No machine has contacted this server yet" }
            ol {
                li {
                    "Give each machine a configuration, in a file such as " code { "mac-52-54-00-12-34-56.yaml" }
                    " in the directory that " code { "--configs" } " names."
                }
                li { "Let the machine boot from the network. It asks this server what to boot." }
                li { "It appears here, and you can follow its install to the end." }
            }
            p {
                "A machine that does not appear does not reach this server: check that DHCP tells machines to boot from it."
            }
        }
    }
}

/// The page for clients without the token.
#[must_use]
pub fn closed() -> Markup {
    html! {
        div.empty {
            h1 { "This page needs a token" }
            p {
                "Open the URL that " code { "iso-builder serve" } " printed when it started; it ends with "
                code { "/fleet?token=" } " and the token. Every start of the server makes a new token."
            }
        }
    }
}

/// The page for a query that asks for nothing that there is.
#[must_use]
pub fn invalid(why: &InvalidFilter) -> Markup {
    html! {
        div.empty {
            h1 { "This filter is not valid" }
            p { bdi { (why) } ". " a href="/fleet" { "Show all machines" } }
        }
    }
}

/// The page for an unknown path or machine.
#[must_use]
pub fn absent() -> Markup {
    html! {
        div.empty {
            h1 { "This page does not exist" }
            p { "An operator may have removed the machine. " a href="/fleet" { "All machines" } }
        }
    }
}

/// The page after an action that the machine's state does not allow.
#[must_use]
pub fn held() -> Markup {
    html! {
        div.empty {
            h1 { "Nothing was done" }
            p {
                "The machine has taken its configuration, or it is denied. Redeploy or allow it first. "
                a href="/fleet" { "All machines" }
            }
        }
    }
}

/// The page after a form that did not come from a page of this server since it started.
#[must_use]
pub fn stale() -> Markup {
    html! {
        div.empty {
            h1 { "Nothing was done" }
            p {
                "The form did not come from a page of this server, or the server was restarted since. "
                a href="/fleet" { "Load the page again" } ", then repeat the action."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` in an element and in an attribute, as it is sent in each; both are the same.
    fn shown(text: &str) -> String {
        let html = sent(&html! { p title=(text) { (text) } });
        let inner = html.strip_prefix("<p title=\"").and_then(|html| html.strip_suffix("</p>")).unwrap();
        let (attribute, content) = inner.split_once("\">").unwrap();
        assert_eq!(attribute, content);
        content.to_owned()
    }

    #[test]
    fn text_cannot_leave_its_place() {
        let hostile = "<script>&\"'\u{202e}\u{0}a\nb\u{200f}";
        assert_eq!(shown(hostile), "&lt;script&gt;&amp;&quot;'\u{fffd}\u{fffd}a\nb\u{fffd}");
    }

    proptest::proptest! {
        // Attributes are all in double quotes, so that a single one ends nothing.
        #[test]
        fn no_text_brings_markup(text in "\\PC{0,40}|.{0,40}") {
            proptest::prop_assert!(!shown(&text).contains(['<', '>', '"']));
        }
    }
}
