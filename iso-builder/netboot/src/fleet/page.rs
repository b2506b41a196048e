//! The page of the fleet, and what all pages have.

use super::card;
use super::html::{HtmlText, ago, icon};
use super::stage::StageGroup;
use super::view::{ConflictRow, FleetView, MachineRow};
use crate::moment::Moment;

/// The style sheet.
pub const STYLE: &str = include_str!("fleet.css");
/// The script that keeps a page up to date.
pub const SCRIPT: &str = include_str!("fleet.js");
/// Pages without the script are loaded again after so many seconds.
const REFRESH: u32 = 5;

/// The pictures that pages use by name.
const ICONS: &str = r#"<svg class="unseen" aria-hidden="true"><defs>
<symbol id="i-installing" viewBox="0 0 16 16"><path d="M8 2v8M4.5 7 8 10.5 11.5 7M3 14h10"/></symbol>
<symbol id="i-installed" viewBox="0 0 16 16"><path d="m3 8.5 3.5 3.5L13 4.5"/></symbol>
<symbol id="i-failed" viewBox="0 0 16 16"><path d="m4 4 8 8m0-8-8 8"/></symbol>
<symbol id="i-unknown" viewBox="0 0 16 16"><path d="M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.3 8.6 8 9 8 10M8 13v.1"/></symbol>
<symbol id="i-waiting" viewBox="0 0 16 16"><circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/></symbol>
<symbol id="i-denied" viewBox="0 0 16 16"><circle cx="8" cy="8" r="6"/><path d="m4 4 8 8"/></symbol>
</defs></svg>"#;

/// A whole page; `live` is where the script finds what is in `main` later.
#[must_use]
pub fn document(title: &str, live: Option<&str>, main: &str) -> String {
    let refresh = match live {
        Some(_) => format!("<noscript><meta http-equiv=\"refresh\" content=\"{REFRESH}\"></noscript>\n"),
        None => String::new(),
    };
    let script = if live.is_some() { "<script src=\"/fleet/script.js\" defer></script>\n" } else { "" };
    let live = live.map(|live| format!(" data-live=\"{live}\"")).unwrap_or_default();
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/fleet/style.css">
{refresh}{script}</head>
<body>
<a class="skip" href="#main">Skip to the machines</a>
{ICONS}
<header class="bar"><p class="brand"><a href="/fleet">NQRust <span>Fleet</span></a></p><p id="link" role="status"></p></header>
<main id="main"{live}>
{main}</main>
</body>
</html>
"##
    )
}

/// What is in `main` of the page of the fleet.
#[must_use]
pub fn fleet(view: &FleetView, form: &str, now: Moment) -> String {
    let sections: String = StageGroup::ALL.iter().map(|group| section(view, *group, form, now)).collect();
    let sections = if view.machines.is_empty() { EMPTY.to_owned() } else { sections };
    let more = match view.more {
        0 => String::new(),
        more => format!(
            "<p class=\"more\">{more} more machines are not shown, of those that need no attention. <code>/v1/fleet</code> has all.</p>\n"
        ),
    };
    format!(
        "<div class=\"head\"><h1>Machines</h1>\n{}\n<p class=\"asof\">As of <time datetime=\"{now}\">{}</time></p></div>\n{}{sections}{more}",
        summary(view),
        clock(now),
        conflicts(&view.conflicts, form, now),
    )
}

/// Requests that were refused because they told marks of several machines.
fn conflicts(conflicts: &[ConflictRow], form: &str, now: Moment) -> String {
    if conflicts.is_empty() {
        return String::new();
    }
    let items: String = conflicts.iter().map(|conflict| dispute(conflict, form, now)).collect();
    format!(
        "<section id=\"conflicts\" aria-labelledby=\"h-conflicts\"><h2 id=\"h-conflicts\">Conflicts <span>{}</span></h2>\n<ul class=\"fleet\">\n{items}</ul></section>\n",
        conflicts.len()
    )
}

fn dispute(conflict: &ConflictRow, form: &str, now: Moment) -> String {
    let ConflictRow { id, address, told, between, times, seen, .. } = conflict;
    let names: Vec<String> =
        between.iter().map(|name| format!("<strong><bdi>{}</bdi></strong>", HtmlText(name))).collect();
    let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
    let address = HtmlText(address).to_string();
    format!(
        "<li id=\"c-{id}\" class=\"machine is-failed\">\n\
         <div class=\"who\"><h3>{address}</h3>\n<p class=\"marks\"><bdi>{told}</bdi></p></div>\n\
         <div class=\"how\"><p class=\"status\"><span class=\"stage\">{icon}Conflict</span> <span class=\"since\">{ago}, {times}</span></p>\
         <p class=\"message\">It told marks of {names}, and boots from its disk.</p>\
         <p class=\"next\">If it is one machine, keep one of its configurations, or forget or redeploy the other entry. If not, find out who asks from this address.</p></div>\n\
         <div class=\"actions\"><form method=\"post\" action=\"/fleet/conflicts/{id}/dismiss\"><input type=\"hidden\" name=\"form\" value=\"{form}\">\
         <button id=\"dismiss-{id}\">Dismiss<span class=\"unseen\"> {address}</span></button></form></div>\n</li>\n",
        told = HtmlText(told),
        icon = icon("failed"),
        ago = ago(*seen, now, "", " ago"),
        names = names.join(" and "),
    )
}

/// The time of day, UTC.
fn clock(now: Moment) -> String {
    let text = now.to_string();
    let time = text.split_once('T').map(|(_, time)| time.trim_end_matches('Z'));
    time.map_or_else(|| text.clone(), |time| format!("{time} UTC"))
}

/// How many machines are where, in one line.
fn summary(view: &FleetView) -> String {
    let count = |count: &super::view::StageCount| {
        let (text, count) = (count.group.text(), count.count);
        format!(
            "<li class=\"is-{text}\"><a href=\"#{text}\">{}<strong>{count}</strong> {text}</a></li>",
            icon(text)
        )
    };
    let counts: String = view.summary.iter().map(count).collect();
    format!(
        "<ul id=\"summary\" class=\"summary\" aria-label=\"Summary\" aria-live=\"polite\" aria-atomic=\"true\">{counts}</ul>"
    )
}

fn section(view: &FleetView, group: StageGroup, form: &str, now: Moment) -> String {
    let rows: Vec<&MachineRow> = view.machines.iter().filter(|row| row.group == group).collect();
    if rows.is_empty() {
        return String::new();
    }
    let text = group.text();
    let (first, rest) = text.split_at(1);
    let cards: String = rows.iter().map(|row| card::card(row, form, now)).collect();
    format!(
        "<section id=\"{text}\" aria-labelledby=\"h-{text}\"><h2 id=\"h-{text}\">{}{rest} <span>{}</span></h2>\n<ul class=\"fleet\">\n{cards}</ul></section>\n",
        first.to_uppercase(),
        rows.len(),
    )
}

const EMPTY: &str = r#"<div class="empty">
<h2>No machine has asked yet</h2>
<ol>
<li>Give each machine a configuration, in a file such as <code>mac-52-54-00-12-34-56.yaml</code> in the directory that <code>--nodes</code> names.</li>
<li>Let the machine boot from the network. It asks this server what to boot.</li>
<li>It shows up here, and its install can be followed to its end.</li>
</ol>
<p>A machine that does not show up does not reach this server: see whether DHCP names it as the place to boot from.</p>
</div>
"#;

/// For those who do not have the token.
pub const CLOSED: &str = r#"<div class="empty">
<h1>This page needs its token</h1>
<p>Open the address that <code>iso-builder serve</code> printed when it started: it ends with <code>/fleet?token=</code> and the token. After a restart of the server there is a new one.</p>
</div>
"#;

/// For what is not there.
pub const ABSENT: &str = r#"<div class="empty">
<h1>There is no such page</h1>
<p>The machine may have been forgotten since. <a href="/fleet">All machines</a></p>
</div>
"#;

/// For an action that a machine's state does not allow.
pub const HELD: &str = r#"<div class="empty">
<h1>Nothing was done</h1>
<p>The machine has its configuration or is denied. Redeploy or allow it first. <a href="/fleet">All machines</a></p>
</div>
"#;

/// For a form that did not come from a page of this server as it runs now.
pub const STALE: &str = r#"<div class="empty">
<h1>Nothing was done</h1>
<p>The form was not from a page of this server, or the server has started again since. <a href="/fleet">Load the page again</a>, then repeat what you wanted to do.</p>
</div>
"#;
