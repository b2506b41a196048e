//! One machine in the list of the fleet.

use std::cmp::Ordering;

use maud::{Markup, html};
use model::fleet::UpdateReport;
use model::machine::Identity;

use super::elements::{ago, bytes, duration, icon, joined};
use super::stage::{MachineStage, StageGroup, WAY};
use super::view::{InstallProgress, MachineRow};
use crate::machines::machine::OperatorAction;
use crate::moment::Moment;

/// Network cards of a machine that the list shows.
const CARDS: usize = 1;

/// What every form that acts has beside its button.
#[derive(Clone, Copy, Debug)]
pub struct ActionForms<'a> {
    /// The value that only pages of this server contain; empty for a visitor who may only look.
    pub value: &'a str,
    /// The query of the list that the browser returns to.
    pub back: &'a str,
}

impl ActionForms<'_> {
    /// True if the visitor may act.
    #[must_use]
    pub fn are_allowed(&self) -> bool {
        !self.value.is_empty()
    }

    #[must_use]
    pub fn hidden(&self) -> Markup {
        html! {
            input type="hidden" name="form" value=(self.value);
            @if !self.back.is_empty() { input type="hidden" name="back" value=(self.back); }
        }
    }
}

/// A machine as an item of the list, which can be chosen if `choose` says so.
#[must_use]
pub fn card(row: &MachineRow, choose: bool, forms: ActionForms<'_>, now: Moment) -> Markup {
    let MachineRow { id, name, .. } = row;
    html! {
        li id={ "m-" (id) } class={ "machine is-" (colour(row)) } {
            div.who {
                h3 { a href={ "/fleet/machines/" (id) } { bdi { (name) } } }
                p.marks { (marks(row)) }
                (place(row))
                @if choose {
                    label.choose {
                        input type="checkbox" name="machine" value=(id) form="bulk";
                        "Choose" span.unseen { " " (name) }
                    }
                }
            }
            div.how { (details(row, row.message.as_deref(), now)) }
            (actions(row, forms))
        }
    }
}

/// The place of a machine in the list whose content the script has already.
#[must_use]
pub fn same(row: &MachineRow) -> Markup {
    html! { li id={ "m-" (row.id) } data-same {} }
}

/// Rack and cluster.
fn place(row: &MachineRow) -> Markup {
    html! {
        @if row.rack.is_some() || row.cluster.is_some() {
            p.place {
                @if let Some(rack) = &row.rack { span { span.unseen { "Rack " } bdi { (rack) } } }
                @if let Some(cluster) = &row.cluster { span { span.unseen { "Cluster " } bdi { (cluster) } } }
            }
        }
    }
}

/// The group in whose colour a machine is shown.
#[must_use]
pub fn colour(row: &MachineRow) -> &'static str {
    if row.silent { StageGroup::Unknown.name() } else { row.group.name() }
}

/// Where a machine is, how far it has come or why it failed, and what to do next.
#[must_use]
pub fn details(row: &MachineRow, message: Option<&str>, now: Moment) -> Markup {
    html! {
        (status(row, now))
        @if row.group == StageGroup::Installing { (way(row.stage)) }
        @if let Some(message) = message.filter(|message| !message.is_empty()) {
            p.message { bdi { (message) } }
        }
        @if let Some(update) = &row.update {
            p.message { (release(update)) }
            @for warning in &update.warnings { p.message { "Warning: " bdi { (warning) } } }
        }
        @if let Some(progress) = &row.progress { (bar(progress, &row.name)) }
        @if row.group == StageGroup::Failed {
            (failure(row))
        } @else if let Some(next) = &row.next {
            p.next { (next) }
        }
        (clients(row))
    }
}

/// The release that runs, and the one that is to follow it.
fn release(update: &UpdateReport) -> Markup {
    let UpdateReport { state, running, offered, tries_left, trust, warnings, .. } = update;
    let version = update.version().unwrap_or("an unknown release");
    let offered = offered.as_deref().unwrap_or("another release");
    html! {
        bdi { (version) } " runs in slot " (running)
        @match state.as_str() {
            "staged" => { ", " bdi { (offered) } " is in the other slot" }
            "pending" => { ", the next restart tries " bdi { (offered) } }
            "trial" => { " on trial, " (tries_left) " more tries" }
            _ => {}
        }
        @if let Some(trust) = trust.as_ref().filter(|_| warnings.is_empty()) { ", " bdi { (trust) } }
    }
}

/// The addresses that asked to boot as this machine, where there is more than one: all but one of them may be others.
fn clients(row: &MachineRow) -> Markup {
    let addresses: Vec<_> = row
        .clients
        .iter()
        .map(|client| {
            html! {
                code { (client.address) }
                @if client.took.is_some() { ", which has the configuration" }
            }
        })
        .collect();
    html! { @if addresses.len() > 1 { p.clients { "Requested from " (joined(&addresses, " and ")) } } }
}

/// The machine's identity, without what its name already says.
fn marks(row: &MachineRow) -> Markup {
    let Identity { macs, serial, asset_tag, .. } = &row.identity;
    let mut marks: Vec<_> = macs.iter().take(CARDS).map(|mac| html! { code { (mac) } }).collect();
    if macs.len() > CARDS {
        marks.push(html! { span { "+ " (macs.len() - CARDS) " more" } });
    }
    let others = serial.iter().chain(asset_tag).filter(|text| **text != row.name);
    marks.extend(others.map(|text| html! { code { (text) } }));
    joined(&marks, " ")
}

fn status(row: &MachineRow, now: Moment) -> Markup {
    let MachineRow { stage, group, moments, .. } = row;
    let since = match group {
        StageGroup::Installing => ago(moments.since, now, "for ", ""),
        StageGroup::Waiting | StageGroup::Unknown | StageGroup::Denied => {
            ago(moments.seen, now, "seen ", " ago")
        }
        StageGroup::Failed | StageGroup::Installed => ago(moments.since, now, "", " ago"),
    };
    html! {
        p.status {
            span.stage {
                (icon(group.name())) (stage.text())
                @if let Some(stage) = row.failed_in { " in stage " (stage.text().to_lowercase()) }
            }
            " " span.since { (since) }
            @if row.silent { span.silent { (icon("waiting")) " silent " (ago(moments.seen, now, "for ", "")) } }
        }
    }
}

fn bar(progress: &InstallProgress, name: &str) -> Markup {
    let InstallProgress { percent, bytes: done, total, rate, seconds_left } = progress;
    html! {
        div.progress {
            progress max="100" value=(percent) aria-label={ "Progress of " (name) } { (percent) " %" }
            p.figures {
                strong { (percent) " %" }
                span { (bytes(*done)) " of " (bytes(*total)) }
                @if let Some(rate) = *rate { span { (bytes(rate)) "/s" } }
                @if let Some(seconds) = seconds_left.filter(|seconds| *seconds > 0) {
                    span { (duration(seconds)) " left" }
                }
            }
        }
    }
}

/// The stages of an install, with those that are done and the present one.
fn way(stage: MachineStage) -> Markup {
    let Some(place) = stage.way() else { return Markup::default() };
    html! {
        ol.way {
            @for (index, point) in WAY.iter().enumerate() {
                @match index.cmp(&place) {
                    Ordering::Less => { li.past { (point.text()) span.unseen { ", done" } } }
                    Ordering::Equal => { li aria-current="step" { (point.text()) } }
                    Ordering::Greater => { li { (point.text()) } }
                }
            }
        }
    }
}

/// Causes, hints and a link to the log.
fn failure(row: &MachineRow) -> Markup {
    let error = row.error.as_ref();
    let causes = error.map(|error| error.causes.as_slice()).unwrap_or_default();
    let mut hints = error.iter().flat_map(|error| &error.hints).chain(&row.next).peekable();
    html! {
        div.failure {
            @for (index, cause) in causes.iter().enumerate() {
                p { @if index > 0 { "because: " } bdi { (cause) } }
            }
        }
        @if hints.peek().is_some() {
            ul.hints { @for hint in hints { li { bdi { (hint) } } } }
        }
        @if row.log {
            p {
                a.log href={ "/fleet/machines/" (row.id) "#log" } {
                    "Read the log" span.unseen { " of " (row.name) }
                }
            }
        }
    }
}

/// A form for each action.
#[must_use]
pub fn actions(row: &MachineRow, forms: ActionForms<'_>) -> Markup {
    html! {
        @if forms.are_allowed() && !row.actions.is_empty() {
            div.actions { @for action in &row.actions { (button(*action, row, forms)) } }
        }
    }
}

fn button(action: OperatorAction, row: &MachineRow, forms: ActionForms<'_>) -> Markup {
    let MachineRow { id, name, .. } = row;
    let verb = action.name();
    let button = |class: &str, label: &str| {
        html! {
            form method="post" action={ "/fleet/machines/" (id) "/" (verb) } {
                (forms.hidden())
                button id={ (verb) "-" (id) } class=(class) { (label) span.unseen { " " (name) } }
            }
        }
    };
    match action {
        OperatorAction::Allow => button("main", "Allow"),
        OperatorAction::Deny => button("", "Deny"),
        OperatorAction::Forget => button("", "Forget"),
        // No machine is erased by a single wrong click.
        OperatorAction::Redeploy => html! {
            details id={ "ask-" (id) } {
                summary { "Redeploy…" span.unseen { " " (name) } }
                div.ask {
                    p { "Its next boot installs it again. All data on its disks is lost." }
                    (button("danger", "Erase and install again"))
                }
            }
        },
    }
}
