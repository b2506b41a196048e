//! One machine in the list of the fleet.

use model::machine::Identity;

use super::html::{HtmlText, ago, bytes, duration, icon, maybe};
use super::stage::{MachineStage, StageGroup, WAY};
use super::view::{ClientRow, InstallProgress, MachineRow};
use crate::machine::OperatorAction;
use crate::moment::Moment;

/// So many cards of a machine are shown in the list.
const CARDS: usize = 1;

/// A machine as an item of the list.
#[must_use]
pub fn card(row: &MachineRow, form: &str, now: Moment) -> String {
    let MachineRow { id, name, group, .. } = row;
    let class = if row.silent { "unknown" } else { group.text() };
    format!(
        r#"<li id="m-{id}" class="machine is-{class}">
<div class="who"><h3><a href="/fleet/machines/{id}"><bdi>{name}</bdi></a></h3>
<p class="marks">{marks}</p></div>
<div class="how">{status}{way}{message}{progress}{failure}{next}{clients}</div>
{actions}
</li>
"#,
        name = HtmlText(name),
        marks = marks(row),
        status = status(row, now),
        progress = maybe(row.progress.as_ref(), |progress| bar(progress, name)),
        way = if *group == StageGroup::Installing { way(row.stage) } else { String::new() },
        message = message(row),
        failure = failure(row),
        next = maybe(row.next.as_ref().filter(|_| *group != StageGroup::Failed), |next| {
            format!("<p class=\"next\">{}</p>", HtmlText(next))
        }),
        clients = clients(row),
        actions = actions(row, form),
    )
}

/// The addresses that asked to boot as this machine, where there is more than one: all but one of them may be others.
#[must_use]
pub fn clients(row: &MachineRow) -> String {
    if row.clients.len() < 2 {
        return String::new();
    }
    let address = |client: &ClientRow| {
        let took = if client.took.is_some() { ", which has the configuration" } else { "" };
        format!("<code>{}</code>{took}", HtmlText(&client.address))
    };
    let addresses: Vec<String> = row.clients.iter().map(address).collect();
    format!("<p class=\"clients\">Asked for from {}</p>", addresses.join(" and "))
}

/// What tells it from others.
fn marks(row: &MachineRow) -> String {
    let Identity { macs, serial, asset_tag, .. } = &row.identity;
    let mark = |text: &str| format!("<code>{}</code>", HtmlText(text));
    let mut marks: Vec<_> = macs.iter().take(CARDS).map(|mac| mark(&mac.to_string())).collect();
    if macs.len() > CARDS {
        marks.push(format!("<span>+ {} more</span>", macs.len() - CARDS));
    }
    let others = serial.iter().chain(asset_tag).filter(|text| **text != row.name);
    marks.extend(others.map(|text| mark(text)));
    marks.join(" ")
}

/// Where it is, in words and with a picture, and since when.
#[must_use]
pub fn status(row: &MachineRow, now: Moment) -> String {
    let MachineRow { stage, group, moments, .. } = row;
    let place = maybe(row.failed_in, |stage| format!(" in stage {}", stage.text().to_lowercase()));
    let silent = if row.silent {
        let seen = ago(moments.seen, now, "for ", "");
        format!(r#"<span class="silent">{} silent {seen}</span>"#, icon("waiting"))
    } else {
        String::new()
    };
    let since = match group {
        StageGroup::Installing => ago(moments.since, now, "for ", ""),
        StageGroup::Waiting | StageGroup::Unknown | StageGroup::Denied => {
            ago(moments.seen, now, "seen ", " ago")
        }
        StageGroup::Failed | StageGroup::Installed => ago(moments.since, now, "", " ago"),
    };
    format!(
        r#"<p class="status"><span class="stage">{}{}{place}</span> <span class="since">{since}</span>{silent}</p>"#,
        icon(group.text()),
        stage.text(),
    )
}

/// How much of the present step is done.
#[must_use]
pub fn bar(progress: &InstallProgress, name: &str) -> String {
    let InstallProgress { percent, bytes: done, total, rate, seconds_left } = progress;
    let rate = maybe(*rate, |rate| format!("<span>{}/s</span>", bytes(rate)));
    let left = maybe(seconds_left.filter(|seconds| *seconds > 0), |seconds| {
        format!("<span>{} left</span>", duration(seconds))
    });
    format!(
        r#"<div class="progress"><progress max="100" value="{percent}" aria-label="Progress of {name}">{percent} %</progress>
<p class="figures"><strong>{percent} %</strong><span>{} of {}</span>{rate}{left}</p></div>"#,
        bytes(*done),
        bytes(*total),
        name = HtmlText(name),
    )
}

/// The way of an install, with what is behind it and where it is.
#[must_use]
pub fn way(stage: MachineStage) -> String {
    let Some(place) = stage.way() else { return String::new() };
    let point = |(index, point): (usize, &MachineStage)| {
        let (class, said) = match index.cmp(&place) {
            std::cmp::Ordering::Less => (" class=\"past\"", "<span class=\"unseen\">, done</span>"),
            std::cmp::Ordering::Equal => (" aria-current=\"step\"", ""),
            std::cmp::Ordering::Greater => ("", ""),
        };
        format!("<li{class}>{}{said}</li>", point.text())
    };
    let points: String = WAY.iter().enumerate().map(point).collect();
    format!("<ol class=\"way\">{points}</ol>")
}

fn message(row: &MachineRow) -> String {
    let message = row.message.as_deref().filter(|message| !message.is_empty());
    maybe(message, |message| format!("<p class=\"message\"><bdi>{}</bdi></p>", HtmlText(message)))
}

/// Why it failed and what to do, with the log one click away.
#[must_use]
pub fn failure(row: &MachineRow) -> String {
    if row.group != StageGroup::Failed {
        return String::new();
    }
    let because = |(index, cause): (usize, &String)| {
        let word = if index == 0 { "" } else { "because: " };
        format!("<p>{word}<bdi>{}</bdi></p>", HtmlText(cause))
    };
    let error = row.error.as_ref();
    let causes: String = error.iter().flat_map(|error| &error.causes).enumerate().map(because).collect();
    let hints = error.iter().flat_map(|error| &error.hints).chain(&row.next);
    let hints: String = hints.map(|hint| format!("<li><bdi>{}</bdi></li>", HtmlText(hint))).collect();
    let hints = if hints.is_empty() { hints } else { format!("<ul class=\"hints\">{hints}</ul>") };
    let id = &row.id;
    let log = match row.log {
        true => format!(
            r#"<p><a class="log" href="/fleet/machines/{id}#log">Read the log<span class="unseen"> of {}</span></a></p>"#,
            HtmlText(&row.name)
        ),
        false => String::new(),
    };
    format!("<div class=\"failure\">{causes}</div>{hints}{log}")
}

/// What can be asked for, as forms.
#[must_use]
pub fn actions(row: &MachineRow, form: &str) -> String {
    let buttons: String = row.actions.iter().map(|action| button(*action, row, form)).collect();
    if buttons.is_empty() { buttons } else { format!("<div class=\"actions\">{buttons}</div>") }
}

fn button(action: OperatorAction, row: &MachineRow, form: &str) -> String {
    let MachineRow { id, name, .. } = row;
    let (name, verb) = (HtmlText(name), action.name());
    let form = |class: &str, label: &str| {
        format!(
            "<form method=\"post\" action=\"/fleet/machines/{id}/{verb}\"><input type=\"hidden\" name=\"form\" value=\"{form}\">\
             <button id=\"{verb}-{id}\" class=\"{class}\">{label}<span class=\"unseen\"> {name}</span></button></form>"
        )
    };
    match action {
        OperatorAction::Allow => form("main", "Allow"),
        OperatorAction::Deny => form("", "Deny"),
        OperatorAction::Forget => form("", "Forget"),
        // No machine is erased by one slip of the finger.
        OperatorAction::Redeploy => format!(
            "<details id=\"ask-{id}\"><summary>Redeploy…<span class=\"unseen\"> {name}</span></summary>\
             <div class=\"ask\"><p>It installs again when it boots next. What is on its disks is lost.</p>{}</div></details>",
            form("danger", "Erase and install again")
        ),
    }
}
