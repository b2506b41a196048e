//! The page of the fleet, and the frame of all pages.

use std::collections::{BTreeSet, HashSet};

use base::percent;
use maud::{DOCTYPE, Markup, html};
use model::config::Role;

use super::bulk::PLAN;
use super::card::{self, ActionForms};
use super::elements::{ago, icon, joined, times};
use super::filter::{InvalidQuery, NONE};
use super::history::{FleetChanges, FleetPart};
use super::listing::{self, FleetListing, FleetSection, SectionKey};
use super::query::{MOST_SIZE, MachineGrouping, MachineOrder, PageQuery, SIZE, encoded};
use super::stage::{MachineStage, StageGroup};
use super::view::{ConflictRow, FleetView};
use crate::machines::machine::OperatorAction;
use crate::moment::Moment;

pub const STYLE: &str = include_str!("fleet.css");
/// The script that keeps a page up to date.
pub const SCRIPT: &str = include_str!("fleet.js");
/// Seconds after which pages reload themselves where scripts do not run.
const REFRESH: u32 = 5;
/// The most clusters or racks that a box lists. Where there are more, their name is written into it.
const MOST_OPTIONS: usize = 300;
/// The most hostnames of machines that never asked to boot which the page names.
const MOST_UNHEARD: usize = 100;

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

/// How a page is kept up to date.
#[derive(Clone, Copy, Debug)]
pub struct LivePage<'a> {
    /// The path from which the script reloads the content of `main`.
    pub path: &'a str,
    /// Whether the page reloads itself where scripts do not run. What is chosen on a page would be lost.
    pub reloads: bool,
}

/// A whole page; `live` is none for one that does not change.
#[must_use]
pub fn document(title: &str, live: Option<LivePage<'_>>, main: &Markup) -> Markup {
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
                @if let Some(live) = live {
                    @if live.reloads { noscript { meta http-equiv="refresh" content=(REFRESH); } }
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
                main id="main" data-live=[live.map(|live| live.path)] { (main) }
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
    pub query: &'a PageQuery,
    /// The changes since the list that the script has. Of machines that have not changed only the place is sent.
    pub changes: FleetChanges<'a>,
    /// The version of the list, for the script.
    pub version: &'a str,
    /// The hidden value of every form that acts; empty for a visitor who may only look.
    pub form: &'a str,
    pub now: Moment,
}

/// The content of `main` of the page of the fleet, or what the script changes in it.
#[must_use]
pub fn fleet(shown: &ShownFleet<'_>) -> Markup {
    let ShownFleet { view, query, changes, version, form, now } = *shown;
    let is_part = changes.since().is_some();
    let is_same = is_part && !changes.has_part(FleetPart::NotHeardOf);
    let listing = FleetListing::new(&view.machines, query);
    let forms = ActionForms { value: form, back: &query.text() };
    html! {
        div.head data-version=(version) {
            h1 { "Machines" }
            (summary(view, query))
            p.asof { "As of " time datetime=(now) { (clock(now)) } }
        }
        @for notice in &view.notices { p.notice { (icon("unknown")) "Warning: " bdi { (notice) } } }
        (conflicts(&view.conflicts, forms, now))
        @if view.machines.is_empty() {
            (empty())
        } @else {
            @if is_part { form id="filter" data-same {} } @else { (boxes(view, query)) }
            @if listing.matching == 0 {
                p #no-match .more { "No machine matches the filter. " a href="/fleet" { "Show all" } }
            } @else {
                (extent(&listing, query, forms.are_allowed()))
                @if query.choose { (bulk(query, forms)) }
            }
        }
        @for section in &listing.sections { (section_of(section, shown, forms)) }
        (pages(&listing, query))
        (not_heard_of(&view.not_heard_of, is_same))
    }
}

/// Which of the matching machines the page shows, and a link for a visitor who may choose some to act on.
fn extent(listing: &FleetListing<'_>, query: &PageQuery, can_choose: bool) -> Markup {
    let FleetListing { matching, page, pages, before, .. } = *listing;
    let (first, last) = (before + 1, before + listing.shown());
    html! {
        div #extent .extent {
            p {
                @if pages > 1 { (first) "–" (last) " of " }
                (matching) @if matching == 1 { " machine" } @else { " machines" }
                @if !query.filter.is_empty() { @if matching == 1 { " matches" } @else { " match" } }
            }
            @if page > 1 { a href=(query.url_of_page(page - 1)) rel="prev" { "Previous page" } }
            @if page < pages { a href=(query.url_of_page(page + 1)) rel="next" { "Next page" } }
            @if !query.filter.is_empty() { a href="/fleet" { "Show all" } }
            @if can_choose && !query.choose { a href=(query.url_choosing(true)) { "Choose machines…" } }
        }
    }
}

/// Links to the pages: the first, the last, and those around this one.
fn pages(listing: &FleetListing<'_>, query: &PageQuery) -> Markup {
    let FleetListing { page, pages, .. } = *listing;
    let near = |number: &usize| *number == 1 || *number == pages || number.abs_diff(page) <= 1;
    let numbers: Vec<_> = (1..=pages).filter(near).collect();
    html! {
        @if pages > 1 {
            nav #pages .pages aria-label="Pages" {
                @for (place, number) in numbers.iter().copied().enumerate() {
                    @if place > 0 && numbers.get(place - 1) != Some(&(number - 1)) { span { "…" } }
                    a href=(query.url_of_page(number)) aria-current=[(number == page).then_some("page")] {
                        span.unseen { "Page " } (number)
                    }
                }
            }
        }
    }
}

/// The form to which the boxes of machines belong, with the action that is to be confirmed.
fn bulk(query: &PageQuery, forms: ActionForms<'_>) -> Markup {
    let filter = encoded(query.filter.pairs().into_iter());
    html! {
        form id="bulk" class="bulk" method="post" action=(PLAN) aria-label="Act on several machines" {
            (forms.hidden())
            input type="hidden" name="query" value=(filter);
            label {
                "Action"
                select name="action" {
                    @for action in OperatorAction::ALL { option value=(action.name()) { (action.text()) } }
                }
            }
            button.main name="of" value="chosen" { "Continue with the chosen" }
            button name="of" value="matching" { "Continue with all that match" }
            button type="button" id="choose-all" hidden data-keep { "Choose all of this page" }
            output id="chosen" data-keep {}
            a href=(query.url_choosing(false)) { "Cancel" }
            p { "Nothing is done before you confirm it on the next page." }
        }
    }
}

/// The boxes that choose which machines are listed, and how. The script keeps what is in them.
fn boxes(view: &FleetView, query: &PageQuery) -> Markup {
    let boxes = query.filter.boxes();
    let stages = MachineStage::ALL.map(|one| (one.name(), one.text(), boxes.stage == Some(one)));
    let roles = Role::ALL.map(|one| (one.name(), one.name().to_owned(), boxes.role == Some(one)));
    let groups = StageGroup::ALL.map(|one| (one.name(), one.name().to_owned(), boxes.group == Some(one)));
    // What is the default has no value, so that it is not in the URL.
    let value = |name, is_default| if is_default { "" } else { name };
    let by = MachineGrouping::ALL.map(|one| {
        (value(one.name(), one == MachineGrouping::default()), one.name().to_owned(), query.by == one)
    });
    let sort = MachineOrder::ALL.map(|one| {
        (value(one.name(), one == MachineOrder::default()), order_text(one).to_owned(), query.sort == one)
    });
    let sizes: BTreeSet<_> = [25, 50, SIZE, 200, MOST_SIZE, query.size].into();
    let sizes: Vec<_> = sizes.into_iter().map(|size| (size.to_string(), size)).collect();
    let sizes: Vec<_> = sizes
        .iter()
        .map(|(text, size)| (value(text, *size == SIZE), text.clone(), *size == query.size))
        .collect();
    let clusters = places(view.machines.iter().map(|row| row.cluster.as_deref()));
    let racks = places(view.machines.iter().map(|row| row.rack.as_deref()));
    html! {
        form id="filter" class="filter" method="get" action="/fleet" role="search" data-keep {
            @if query.choose { input type="hidden" name="choose" value="yes"; }
            label.text { "Text" input type="search" name="text" value=(boxes.text) autocomplete="off"; }
            (choice("group", "Group", Some("any"), &groups))
            (choice("stage", "Stage", Some("any"), &stages))
            (choice("role", "Role", Some("any"), &roles))
            (place_choice("cluster", "Cluster", &clusters, boxes.cluster))
            (place_choice("rack", "Rack", &racks, boxes.rack))
            (choice("by", "Sections by", None, &by))
            (choice("sort", "Sort by", None, &sort))
            (choice("size", "On a page", None, &sizes))
            button { "Filter" span.unseen { " the machines" } }
        }
    }
}

fn order_text(order: MachineOrder) -> &'static str {
    match order {
        MachineOrder::Attention => "attention",
        MachineOrder::Name => "name",
        MachineOrder::Stage => "stage",
        MachineOrder::LatestSeen => "last seen, latest first",
        MachineOrder::EarliestSeen => "last seen, earliest first",
    }
}

/// The names of all clusters or racks, in order; none where there is none.
fn places<'a>(all: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<&'a str>> {
    let distinct: HashSet<_> = all.collect();
    let mut places: Vec<_> = distinct.into_iter().collect();
    places.sort_by(|one, other| listing::compare_places(*one, *other));
    if places == [None] { Vec::new() } else { places }
}

/// A box for a cluster or a rack; none where no machine has one.
fn place_choice(name: &str, label: &str, places: &[Option<&str>], chosen: Option<&str>) -> Markup {
    let options: Vec<_> = places
        .iter()
        .map(|place| place.map_or((NONE, "none".to_owned()), |place| (place, place.to_owned())))
        .map(|(value, text)| (value, text, chosen == Some(value)))
        .collect();
    html! {
        @if options.len() > MOST_OPTIONS {
            label { (label) input type="search" name=(name) value=(chosen.unwrap_or_default()) autocomplete="off"; }
        } @else if !options.is_empty() || chosen.is_some() {
            (choice(name, label, Some("any"), &options))
        }
    }
}

/// A box with these options, each as its value, its text and whether it is chosen, and with `any` before them.
fn choice(name: &str, label: &str, any: Option<&str>, options: &[(&str, String, bool)]) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                @if let Some(any) = any { option value="" { (any) } }
                @for (value, text, selected) in options { option value=(value) selected[*selected] { (text) } }
            }
        }
    }
}

/// The machines that a configuration names and that have never asked to boot; empty if they are those that the page has.
fn not_heard_of(hostnames: &[String], is_same: bool) -> Markup {
    let others = hostnames.len().saturating_sub(MOST_UNHEARD);
    html! {
        @if !hostnames.is_empty() && is_same {
            section id="not-heard-of" data-same {}
        } @else if !hostnames.is_empty() {
            section id="not-heard-of" aria-labelledby="h-not-heard-of" {
                h2 id="h-not-heard-of" { "Not heard of " span { (hostnames.len()) } }
                p.message {
                    @for (index, hostname) in hostnames.iter().take(MOST_UNHEARD).enumerate() {
                        @if index > 0 { ", " }
                        bdi { (hostname) }
                    }
                    @if others > 0 { " and " (others) " more, which " code { "/v1/fleet" } " lists" }
                }
                p.next { "Switch them on, and let them boot from the network." }
            }
        }
    }
}

/// Requests that were refused because they carried identifiers of several machines.
fn conflicts(conflicts: &[ConflictRow], forms: ActionForms<'_>, now: Moment) -> Markup {
    html! {
        @if !conflicts.is_empty() {
            section id="conflicts" aria-labelledby="h-conflicts" {
                h2 id="h-conflicts" { "Conflicts " span { (conflicts.len()) } }
                ul.fleet { @for conflict in conflicts { (dispute(conflict, forms, now)) } }
            }
        }
    }
}

fn dispute(conflict: &ConflictRow, forms: ActionForms<'_>, now: Moment) -> Markup {
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
            @if forms.are_allowed() {
                div.actions {
                    form method="post" action={ "/fleet/conflicts/" (id) "/dismiss" } {
                        (forms.hidden())
                        button id={ "dismiss-" (id) } { "Dismiss" span.unseen { " " (address) } }
                    }
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

/// How many machines of the whole fleet are in each group; each leads to its machines, and the chosen one back to all.
fn summary(view: &FleetView, query: &PageQuery) -> Markup {
    let chosen = query.filter.boxes().group;
    html! {
        ul id="summary" class="summary" aria-label="Summary" aria-live="polite" aria-atomic="true" {
            @for count in &view.summary {
                @let text = count.group.name();
                @let is_chosen = chosen == Some(count.group);
                @let group = Some(count.group).filter(|_| !is_chosen);
                li class={ "is-" (text) } {
                    a href=(query.url_with(query.filter.clone().with_group(group))) aria-current=[is_chosen.then_some("true")] {
                        (icon(text)) strong { (count.count) } " " (text)
                    }
                }
            }
        }
    }
}

fn section_of(section: &FleetSection<'_>, shown: &ShownFleet<'_>, forms: ActionForms<'_>) -> Markup {
    let FleetSection { key, count, groups, rows } = section;
    let ShownFleet { query, changes, now, .. } = *shown;
    let id = section_id(*key);
    let is_same = |row| changes.since().is_some() && !changes.has(row);
    html! {
        section id=(id) aria-labelledby={ "h-" (id) } {
            h2 id={ "h-" (id) } {
                (section_name(*key, query)) " "
                span { (count) @if rows.len() < *count { ", " (rows.len()) " on this page" } }
            }
            @if !matches!(key, SectionKey::Group(_)) {
                p.parts { @for count in groups { span class={ "is-" (count.group.name()) } { (icon(count.group.name())) (count.count) " " (count.group.name()) } } }
            }
            ul.fleet {
                @for row in rows {
                    @if is_same(row) { (card::same(row)) } @else { (card::card(row, query.choose, forms, now)) }
                }
            }
        }
    }
}

/// An id for the script, which finds a section again by it.
fn section_id(key: SectionKey<'_>) -> String {
    match key {
        SectionKey::Group(group) => group.name().to_owned(),
        SectionKey::Cluster(place) | SectionKey::Rack(place) => {
            place.map_or_else(|| "s".to_owned(), |place| format!("s-{}", percent::encode(place)))
        }
    }
}

/// The heading of a section; that of a cluster or a rack leads to its machines alone.
fn section_name(key: SectionKey<'_>, query: &PageQuery) -> Markup {
    let filter = || query.filter.clone();
    let named = |word: &str, place: &str, filter| {
        html! { (word) " " a href=(query.url_with(filter)) { bdi { (place) } } }
    };
    match key {
        SectionKey::Group(group) => {
            let (first, rest) = group.name().split_at(1);
            html! { (first.to_uppercase()) (rest) }
        }
        SectionKey::Cluster(Some(place)) => named("Cluster", place, filter().with_cluster(place)),
        SectionKey::Rack(Some(place)) => named("Rack", place, filter().with_rack(place)),
        SectionKey::Cluster(None) => html! { "Without a cluster" },
        SectionKey::Rack(None) => html! { "Without a rack" },
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
                code { "/fleet?token=" } " and the token. Every start of the server makes a new token. "
                "A token of " code { "iso-builder tokens new" } " opens the page in the same way until it ends or is revoked."
            }
        }
    }
}

/// The page for a query that asks for nothing that there is.
#[must_use]
pub fn invalid(why: &InvalidQuery) -> Markup {
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

/// The page after an action of a visitor who may only look.
#[must_use]
pub fn read_only(name: &str) -> Markup {
    html! {
        div.empty {
            h1 { "Nothing was done" }
            p {
                "The token " strong { bdi { (name) } } " has the role read. Actions need a token with the role operate. "
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
