//! The pages of actions on several machines: the question, and what came of it.

use maud::{Markup, html};

use super::bulk::{BulkOutcome, BulkPlan, CONFIRM, InvalidBulk, RefusedMachine, by_reason};
use super::card::ActionForms;
use crate::machines::machine::OperatorAction;

/// A list of more names than these is closed at first.
const OPEN: usize = 200;

/// The question whether the plan is to be carried out; `back` is the URL of the list.
#[must_use]
pub fn question(plan: &BulkPlan<'_>, forms: ActionForms<'_>, back: &str) -> Markup {
    let BulkPlan { action, machines, refused, clusters } = plan;
    let count = machines.len();
    html! {
        p.back { a href=(back) { "Back to the list" } }
        div.ask-all {
            @if machines.is_empty() {
                h1 { (action.text()) " no machine" }
                p { "The state of none of these machines allows it." }
            } @else {
                h1 { (action.text()) " " (number(count)) "?" }
                p { (effect(*action)) }
                @if !clusters.is_empty() {
                    ul.lost {
                        @for cluster in clusters {
                            li {
                                "Cluster " strong { bdi { (cluster.cluster) } } ": "
                                @if cluster.machines == cluster.of {
                                    @if cluster.of == 1 { "its only machine" } @else { "all " (cluster.of) " machines" }
                                    ". The cluster is lost."
                                } @else {
                                    (cluster.machines) " of " (cluster.of) " machines"
                                }
                            }
                        }
                    }
                }
                form method="post" action=(CONFIRM) {
                    (forms.hidden())
                    input type="hidden" name="action" value=(action.name());
                    input type="hidden" name="seen" value=(plan.seen());
                    @if plan.asks_for_count() {
                        label {
                            "Number of machines that are erased"
                            input name="count" inputmode="numeric" pattern=(count) required autocomplete="off" title={ "Write " (count) };
                        }
                    }
                    @match action {
                        OperatorAction::Redeploy => button.danger { "Erase and install " (number(count)) " again" }
                        _ => button.main { (action.text()) " " (number(count)) }
                    }
                    a href=(back) { "Cancel" }
                }
            }
        }
        @if count > 0 {
            section aria-labelledby="h-machines" {
                h2 id="h-machines" { "Machines " span { (count) } }
                details open[count <= OPEN] {
                    summary { "Names of " (number(count)) }
                    ul.names {
                        @for row in machines { li { bdi { (row.name) } " " span { (row.stage.text().to_lowercase()) } } }
                    }
                }
            }
        }
        (left_out(refused, "Left out"))
    }
}

/// What came of an action.
#[must_use]
pub fn outcome(outcome: &BulkOutcome, back: &str) -> Markup {
    let BulkOutcome { action, done, refused } = outcome;
    html! {
        p.back { a href=(back) { "Back to the list" } }
        div.ask-all {
            h1 { (action.text()) ": " (done.len()) " of " (number(done.len() + refused.len())) " done" }
            @if refused.is_empty() { p { "All that was confirmed was done." } }
        }
        (left_out(refused, "Not done"))
        @if !done.is_empty() {
            section aria-labelledby="h-done" {
                h2 id="h-done" { "Done " span { (done.len()) } }
                details open[done.len() <= OPEN] {
                    summary { "Names of " (number(done.len())) }
                    ul.names {
                        @for machine in done {
                            li { bdi { (machine.name) } @if machine.result == "removed" { " " span { "removed" } } }
                        }
                    }
                }
            }
        }
    }
}

/// The page after a form that asks for nothing that can be done.
#[must_use]
pub fn invalid(why: &InvalidBulk, back: &str) -> Markup {
    html! {
        div.empty {
            h1 { "Nothing was done" }
            p { bdi { (sentence(&why.to_string())) } " " a href=(back) { "Back to the list" } }
        }
    }
}

fn left_out(refused: &[RefusedMachine], title: &str) -> Markup {
    html! {
        @if !refused.is_empty() {
            section aria-labelledby="h-refused" {
                h2 id="h-refused" { (title) " " span { (refused.len()) } }
                @for (reason, machines) in by_reason(refused) {
                    details open[machines.len() <= OPEN] {
                        summary { bdi { (sentence(reason)) } " " span { (machines.len()) } }
                        ul.names { @for machine in machines { li { bdi { (machine.name) } } } }
                    }
                }
            }
        }
    }
}

fn number(count: usize) -> String {
    if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") }
}

/// With a capital letter and a full stop.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn effect(action: OperatorAction) -> &'static str {
    match action {
        OperatorAction::Allow => "They install with the fallback configuration, or a denial is taken back.",
        OperatorAction::Deny => "They do not install until they are allowed.",
        OperatorAction::Redeploy => {
            "Their next boot installs them again. All data on their disks is lost: the system, its settings, and the \
             volumes and databases that Kubernetes keeps there. An entry whose configuration was removed is only removed."
        }
        OperatorAction::Forget => "Their entries are removed until they ask again.",
    }
}
