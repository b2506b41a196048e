//! The page of one machine: what it is, what it has done, its log.

use base::progress::State;

use super::card;
use super::html::{HtmlText, duration, maybe};
use super::stage::StageGroup;
use super::story::{Story, StoryStep};
use super::view::{ClientRow, MachineRow};
use crate::moment::Moment;

/// What is in `main`.
#[must_use]
pub fn page(row: &MachineRow, story: Option<&Story>, form: &str, now: Moment) -> String {
    let MachineRow { name, group, .. } = row;
    format!(
        "<p class=\"back\"><a href=\"/fleet\">All machines</a></p>\n\
         <article class=\"one is-{group}\"><h1><bdi>{name}</bdi></h1>\n\
         {status}{way}{progress}{failure}{next}{clients}{actions}</article>\n\
         {facts}{steps}{log}",
        group = if row.silent { "unknown" } else { group.text() },
        name = HtmlText(name),
        status = card::status(row, now),
        progress = maybe(row.progress.as_ref(), |progress| card::bar(progress, name)),
        way = if *group == StageGroup::Installing { card::way(row.stage) } else { String::new() },
        failure = card::failure(row),
        next = maybe(row.next.as_ref().filter(|_| *group != StageGroup::Failed), |next| {
            format!("<p class=\"next\">{}</p>", HtmlText(next))
        }),
        clients = card::clients(row),
        actions = card::actions(row, form),
        facts = facts(row),
        steps = maybe(story, |story| steps(story, now)),
        log = maybe(story.filter(|story| !story.log.is_empty()), |story| log(row, story)),
    )
}

fn facts(row: &MachineRow) -> String {
    let identity = &row.identity;
    let code = |text: &str| format!("<dd><code>{}</code></dd>", HtmlText(text));
    let entry = |name: &str, values: Vec<String>| match values.is_empty() {
        true => String::new(),
        false => format!("<div><dt>{name}</dt>{}</div>", values.concat()),
    };
    let one = |name: &str, value: Option<&String>| {
        entry(name, value.map(|value| code(value)).into_iter().collect())
    };
    let macs = identity.macs.iter().map(|mac| code(&mac.to_string())).collect();
    let uuid = identity.uuid.map(|uuid| uuid.to_string());
    let time = |moment: &str| format!("<dd><time datetime=\"{moment}\">{moment}</time></dd>");
    format!(
        "<section aria-labelledby=\"h-facts\"><h2 id=\"h-facts\">Machine</h2><dl class=\"facts\">{}</dl></section>\n",
        [
            entry("Network cards", macs),
            one("Serial number", identity.serial.as_ref()),
            one("Asset tag", identity.asset_tag.as_ref()),
            one("System UUID", uuid.as_ref()),
            one("Configuration", row.configuration.as_ref()),
            one("Product", row.product.as_ref()),
            entry("Asked from", row.clients.iter().map(client).collect()),
            entry("Last seen", vec![time(&row.seen)]),
        ]
        .concat()
    )
}

/// Who asked to boot as this machine, and what they told.
fn client(client: &ClientRow) -> String {
    let ClientRow { address, told, last, times, took, .. } = client;
    let took = maybe(took.as_ref(), |took| {
        format!(", took the configuration <time datetime=\"{took}\">{took}</time>")
    });
    let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!(
        "<dd><code>{}</code> {times}, last <time datetime=\"{last}\">{last}</time>{took}<br><bdi>{}</bdi></dd>",
        HtmlText(address),
        HtmlText(told),
    )
}

fn steps(story: &Story, now: Moment) -> String {
    if story.steps.is_empty() {
        return String::new();
    }
    let row = |step: &StoryStep| {
        let (class, state) = match (step.state, step.until) {
            (State::Failed, _) => ("failed", "failed"),
            (State::Done, _) => ("installed", "done"),
            _ if story.ended.is_some() => ("denied", "not ended"),
            _ => ("installing", "under way"),
        };
        let until = step.until.unwrap_or(if story.ended.is_some() { story.heard } else { now });
        let took = duration(until.0.saturating_sub(step.since.0));
        format!(
            "<tr class=\"is-{class}\"><th scope=\"row\"><bdi>{}</bdi></th><td class=\"state\">{}{state}</td><td>{took}</td></tr>\n",
            HtmlText(&step.message),
            super::html::icon(class),
        )
    };
    let rows: String = story.steps.iter().map(row).collect();
    format!(
        "<section aria-labelledby=\"h-steps\"><h2 id=\"h-steps\">Steps</h2><table class=\"steps\">\
         <thead><tr><th scope=\"col\">Step</th><th scope=\"col\">State</th><th scope=\"col\">Time</th></tr></thead>\n<tbody>\n{rows}</tbody></table></section>\n"
    )
}

fn log(row: &MachineRow, story: &Story) -> String {
    format!(
        "<section id=\"log\" aria-labelledby=\"h-log\"><h2 id=\"h-log\">Log</h2>\
         <p><a href=\"/fleet/machines/{}/log\">The log as text</a></p>\
         <pre tabindex=\"0\" aria-labelledby=\"h-log\">{}</pre></section>\n",
        row.id,
        HtmlText(&story.log)
    )
}
