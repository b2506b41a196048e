//! The page of one machine: its identity, steps and log.

use std::fmt::Display;

use base::progress::StepState;
use maud::{Markup, html};
use model::fleet::SlotReport;

use super::card::{self, ActionForms};
use super::elements::{duration, icon, time, times};
use super::install_run::{InstallRun, InstallStep};
use super::view::{ClientRow, MachineRow};
use crate::moment::Moment;

/// The content of `main`; `log` is that of the run.
#[must_use]
pub fn page(
    row: &MachineRow,
    run: Option<&InstallRun>,
    log: Option<&str>,
    form: &str,
    now: Moment,
) -> Markup {
    html! {
        p.back { a href="/fleet" { "All machines" } }
        article class={ "one is-" (card::colour(row)) } {
            h1 { bdi { (row.name) } }
            (card::details(row, None, now))
            (card::actions(row, ActionForms { value: form, back: "" }))
        }
        (facts(row))
        @if let Some(run) = run {
            @if !run.steps.is_empty() { (steps(run, now)) }
            @if let Some(text) = log { (log_section(row, text)) }
        }
    }
}

fn facts(row: &MachineRow) -> Markup {
    let identity = &row.identity;
    html! {
        section aria-labelledby="h-facts" {
            h2 id="h-facts" { "Machine" }
            dl.facts {
                (fact("Network cards", &identity.macs))
                (fact("Serial number", &identity.serial))
                (fact("Asset tag", &identity.asset_tag))
                (fact("System UUID", identity.uuid))
                (fact("Configuration", &row.configuration))
                (fact("Product", &row.product))
                @if let Some(update) = &row.update {
                    div { dt { "Slots" } @for slot in &update.slots { dd { (slot_line(slot)) } } }
                }
                @if !row.clients.is_empty() {
                    div { dt { "Asked from" } @for client in &row.clients { (asked_from(client)) } }
                }
                div { dt { "Last seen" } dd { (time(&row.seen)) } }
            }
        }
    }
}

fn slot_line(slot: &SlotReport) -> Markup {
    html! {
        code { (slot.slot) } " "
        @match &slot.version { Some(version) => bdi { (version) }, None => "nothing" }
        @if let Some(state) = &slot.state { ", " bdi { (state) } }
    }
}

/// Empty where there is no value.
fn fact(name: &str, values: impl IntoIterator<Item = impl Display>) -> Markup {
    let mut values = values.into_iter().peekable();
    html! {
        @if values.peek().is_some() {
            div { dt { (name) } @for value in values { dd { code { (maud::display(value)) } } } }
        }
    }
}

/// A client that asked to boot as this machine, and the identifiers that it sent.
fn asked_from(client: &ClientRow) -> Markup {
    let ClientRow { address, told, last, times: count, took, .. } = client;
    html! {
        dd {
            code { (address) } " " (times(*count)) ", last " (time(last))
            @if let Some(took) = took { ", took the configuration " (time(took)) }
            br;
            bdi { (told) }
        }
    }
}

fn steps(run: &InstallRun, now: Moment) -> Markup {
    html! {
        section aria-labelledby="h-steps" {
            h2 id="h-steps" { "Steps" }
            table.steps {
                thead { tr { th scope="col" { "Step" } th scope="col" { "State" } th scope="col" { "Time" } } }
                tbody { @for step in &run.steps { (step_row(step, run, now)) } }
            }
        }
    }
}

fn step_row(step: &InstallStep, run: &InstallRun, now: Moment) -> Markup {
    let (class, state) = match step.state {
        StepState::Failed => ("failed", "failed"),
        StepState::Done => ("installed", "done"),
        _ if run.ended.is_some() => ("denied", "unfinished"),
        _ => ("installing", "under way"),
    };
    let until = step.until.unwrap_or(if run.ended.is_some() { run.last_report } else { now });
    html! {
        tr class={ "is-" (class) } {
            th scope="row" { bdi { (step.message) } }
            td.state { (icon(class)) (state) }
            td { (duration(until.0.saturating_sub(step.since.0))) }
        }
    }
}

fn log_section(row: &MachineRow, text: &str) -> Markup {
    html! {
        section id="log" aria-labelledby="h-log" {
            h2 id="h-log" { "Log" }
            p { a href={ "/fleet/machines/" (row.id) "/log" } { "The log as text" } }
            pre tabindex="0" aria-labelledby="h-log" { (text) }
        }
    }
}
