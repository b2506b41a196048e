//! Replies to requests for the fleet: reports of machines, the page, its JSON, its forms. Without sockets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use base::digest::Digest;
use base::failure::causes;
use base::percent;
use maud::Markup;
use model::config::Secret;
use model::fleet::{CreatorStatus, ReportLine, StreamHeader};
use serde::Serialize;

use super::access::{FleetAccess, FleetVisitor};
use super::answers::{ActionAnswer, ErrorAnswer, OutcomeAnswer, PlanAnswer};
use super::audit::{self, AuditDocument};
use super::bulk::{self, BulkConfirmation, BulkOutcome, BulkPlan, BulkRequest, InvalidBulk};
use super::card::ActionForms;
use super::document::FleetDocument;
use super::history::FleetHistory;
use super::install_run::{self, InstallRun, RunOutcome};
use super::install_runs::{self, ReceivedReport};
use super::page::{LivePage, ShownFleet};
use super::query::{ListQuery, PAGE, PageQuery};
use super::rows::{FleetRows, FleetSnapshot};
use super::stage::MachineStage;
use super::view::{self, FleetView, MachineRow};
use super::wait::{self, AwaitedCreator};
use super::{bulk_page, entries, machine_page, openapi, page};
use crate::journal::JournalEntry;
use crate::machines::audit::Actor;
use crate::machines::configurations::Configurations;
use crate::machines::id::MachineId;
use crate::machines::machine::DeploymentEvent;
use crate::machines::machine::{DeploymentState, Machine, OperatorAction};
use crate::machines::registry::{ActedMachine, ActionResult, ActionTarget, MachineRegistry, MachineReporter};
use crate::metrics::FleetCounts;
use crate::moment::Moment;
use crate::protocol::REPORT;

pub const JSON: &str = "/v1/fleet";
/// The audit log, as JSON.
pub const AUDIT: &str = "/v1/fleet/audit";
/// The longest report, in bytes.
const BODY: usize = model::fleet::BODY;
/// The longest form, in bytes.
const FORM: usize = 4096;

/// The Content-Security-Policy: pages load nothing but what this server sends.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const TEXT: &str = "text/plain; charset=utf-8";

#[derive(Clone, Copy, Debug, Default)]
pub struct FleetRequest<'a> {
    /// The client's address; none in tests.
    pub peer: Option<IpAddr>,
    /// `GET`, `HEAD` or `POST`; others are refused.
    pub method: &'a str,
    /// As it was sent.
    pub path: &'a str,
    /// The text after the `?`, as it was sent.
    pub query: &'a str,
    pub authorization: Option<&'a str>,
    pub cookie: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
    /// The kinds of content that the client takes.
    pub accept: Option<&'a str>,
    /// The body of a `POST`, no longer than [`Fleet::body_limit`] says.
    pub body: &'a [u8],
}

impl FleetRequest<'_> {
    /// True if the client is a program that reads JSON; browsers accept HTML and anything.
    fn wants_json(&self) -> bool {
        let mut kinds = self.accept.unwrap_or_default().split(',').filter_map(|kind| kind.split(';').next());
        self.path == JSON
            || self.path == AUDIT
            || kinds.any(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    }

    /// True if the client has what this tag belongs to.
    fn has(&self, tag: &str) -> bool {
        self.if_none_match.is_some_and(|known| known == tag)
    }

    /// The reply to an action that was performed: a program gets `answer`, a browser goes to `place`.
    fn done(&self, answer: &ActionAnswer, place: &str) -> FleetReply {
        if self.wants_json() { FleetReply::json(200, answer) } else { FleetReply::to(place) }
    }

    /// The page that refuses, or `why` as JSON.
    fn refused(&self, page: FleetReply, why: &str) -> FleetReply {
        if self.wants_json() { FleetReply::error(page.status, why) } else { page }
    }

    /// The refusal of a form for several machines.
    fn invalid(&self, why: &InvalidBulk, back: &PageQuery) -> FleetReply {
        let page = FleetReply::page(400, "Nothing was done", &bulk_page::invalid(why, &back.url()));
        self.refused(page, &format!("nothing was done: {why}"))
    }

    fn absent(&self) -> FleetReply {
        let page = FleetReply::page(404, "Not found", &page::absent());
        self.refused(page, "unknown machine, conflict or action; GET /v1/fleet lists them")
    }

    /// The refusal of an action of a visitor who may only look.
    fn read_only(&self, visitor: &FleetVisitor) -> FleetReply {
        let page = FleetReply::page(403, "Nothing was done", &page::read_only(&visitor.name));
        let why = format!(
            "nothing was done: the token {} has the role read; actions need a token with the role operate",
            visitor.name
        );
        self.refused(page, &why)
    }

    fn closed(&self) -> FleetReply {
        let page = FleetReply::page(401, "Token needed", &page::closed());
        let reply = self.refused(page, "the token of the fleet is required");
        reply.with("WWW-Authenticate", "Bearer realm=\"fleet\"".into())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReply {
    pub status: u16,
    /// Without `Content-Length`.
    pub headers: Vec<(&'static str, String)>,
    /// The body, which is not sent for `HEAD`.
    pub body: Vec<u8>,
}

impl FleetReply {
    fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = [
            ("Content-Type", kind),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).into();
        Self { status, headers, body: body.into() }
    }

    fn html(status: u16, markup: &Markup) -> Self {
        Self::new(status, "text/html; charset=utf-8", page::sent(markup))
    }

    fn json(status: u16, value: &impl Serialize) -> Self {
        Self::new(status, "application/json", [base::encode::json_line(value), b"\n".to_vec()].concat())
    }

    fn error(status: u16, why: impl Into<String>) -> Self {
        Self::json(status, &ErrorAnswer { error: why.into() })
    }

    fn page(status: u16, title: &str, main: &Markup) -> Self {
        Self::html(status, &page::document(title, None, main))
    }

    fn to(place: &str) -> Self {
        Self::new(303, TEXT, "").with("Location", place.to_owned())
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }
}

/// The server's knowledge of its machines besides their reports.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct FleetSources<'a> {
    pub store: &'a MachineRegistry,
    pub configurations: &'a Configurations,
    /// Prints a message for the operator.
    pub note: &'a dyn Fn(JournalEntry),
}

#[derive(Debug)]
pub struct Fleet {
    access: FleetAccess,
    history: Mutex<FleetHistory>,
    /// Locked after `history`.
    rows: Mutex<FleetRows>,
    tls: bool,
    /// Warnings about the server itself.
    notices: Vec<String>,
}

impl Fleet {
    /// `token` gives access; `tls` says whether browsers use HTTPS.
    #[must_use]
    pub fn new(token: &Secret, tls: bool) -> Self {
        let access = FleetAccess::new(token);
        let (history, rows) = (Mutex::default(), Mutex::default());
        Self { access, history, rows, tls, notices: Vec::new() }
    }

    /// With warnings about the server itself, which the page shows.
    #[must_use]
    pub fn with_notices(mut self, notices: Vec<String>) -> Self {
        self.notices = notices;
        self
    }

    /// True if a path belongs to the fleet.
    #[must_use]
    pub fn has(path: &str) -> bool {
        let below =
            |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below(PAGE) || below(JSON) || path == openapi::PATH || path.starts_with(REPORT)
    }

    /// Answers a request. An error is the server's own: a change could not be stored.
    pub fn answer(
        &self,
        request: &FleetRequest<'_>,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<FleetReply> {
        match request.method {
            "POST" => self.post(request, known, now),
            "GET" | "HEAD" => self.get(request, known, now),
            _ => Ok(FleetReply::new(405, TEXT, "").with("Allow", "GET, HEAD, POST".into())),
        }
    }

    /// Held while the fleet is looked at, so that what is seen last is what is remembered.
    fn history(&self) -> MutexGuard<'_, FleetHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether these header fields are those of somebody who may see the fleet.
    pub fn may_look(
        &self,
        authorization: Option<&str>,
        cookies: Option<&str>,
        store: &MachineRegistry,
        now: Moment,
    ) -> Result<bool> {
        Ok(self.access.visitor(authorization, cookies, store, now)?.is_some())
    }

    /// The machines by their stages, and what else metrics tell of the fleet.
    pub fn counts(&self, known: FleetSources<'_>, now: Moment) -> Result<FleetCounts> {
        let view = self.view(known, now)?;
        let mut stages = BTreeMap::from(MachineStage::ALL.map(|stage| (stage, 0)));
        for row in &view.machines {
            *stages.entry(row.stage).or_default() += 1;
        }
        let stages = stages.into_iter().map(|(stage, count)| (stage.name(), stage.group().name(), count));
        Ok(FleetCounts {
            stages: stages.collect(),
            silent: view.machines.iter().filter(|row| row.silent).count(),
            conflicts: view.conflicts.len(),
            not_heard_of: view.not_heard_of.len(),
            configurations: known.configurations.count(),
        })
    }

    fn visitor(
        &self,
        request: &FleetRequest<'_>,
        store: &MachineRegistry,
        now: Moment,
    ) -> Result<Option<FleetVisitor>> {
        self.access.visitor(request.authorization, request.cookie, store, now)
    }

    fn get(&self, request: &FleetRequest<'_>, known: FleetSources<'_>, now: Moment) -> Result<FleetReply> {
        match request.path {
            // They are static and need no token.
            "/fleet/style.css" => {
                return Ok(unchanged(request, FleetReply::new(200, "text/css; charset=utf-8", page::STYLE)));
            }
            openapi::PATH => {
                return Ok(unchanged(request, FleetReply::new(200, "application/json", openapi::text())));
            }
            "/fleet/script.js" => {
                let script = FleetReply::new(200, "text/javascript; charset=utf-8", page::SCRIPT);
                return Ok(unchanged(request, script));
            }
            _ => {}
        }
        if (request.path == PAGE || of_machine(request.path).is_some())
            && let Some(token) = parameter(request.query, "token")
            && let Some(holder) = self.access.holder(&token, known.store, now)?
        {
            // Redirect to the URL without the token, which must not stay in browsers' histories.
            return Ok(FleetReply::to(request.path).with("Set-Cookie", holder.set_cookie(self.tls)));
        }
        let Some(visitor) = self.visitor(request, known.store, now)? else { return Ok(request.closed()) };
        Ok(match request.path {
            PAGE | "/fleet/live" => match PageQuery::of(request.query) {
                Ok(query) => self.list(request, &query, &visitor, known, now)?,
                Err(why) => FleetReply::page(400, "Fleet", &page::invalid(&why)),
            },
            JSON => self.json(request, &visitor, known, now)?,
            AUDIT => match audit::read(request.query) {
                Ok(query) => {
                    let entries = known.store.audit(audit::one_more(query))?;
                    FleetReply::json(200, &AuditDocument::new(entries, query))
                }
                Err(why) => FleetReply::error(400, why),
            },
            path => self.one(request, path, &visitor, known, now)?.unwrap_or_else(|| request.absent()),
        })
    }

    /// The fleet as JSON, with the machines that the query of the request asks for. The time alone is no change.
    fn json(
        &self,
        request: &FleetRequest<'_>,
        visitor: &FleetVisitor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<FleetReply> {
        let query = match ListQuery::of(request.query) {
            Ok(query) => query,
            Err(why) => return Ok(FleetReply::error(400, why.to_string())),
        };
        let mut history = self.history();
        let view = self.view(known, now)?;
        history.observe(&view)?;
        let (version, changes) = (history.version(), history.changes(query.since.as_deref()));
        // Weak: the times of an unchanged fleet differ (RFC 9110, section 8.8.1).
        let tag = format!("W/\"{version}-{}-{}\"", visitor.role, Digest::of(request.query.as_bytes()));
        if request.has(&tag) {
            return Ok(tagged(request, tag, FleetReply::new(200, "application/json", "")));
        }
        let document = FleetDocument::new(&view, &query, visitor.role, version, &changes);
        let reply = FleetReply::new(200, "application/json", serde_json::to_vec_pretty(&document)?);
        Ok(tagged(request, tag, reply))
    }

    /// All machines as they are now.
    fn view(&self, known: FleetSources<'_>, now: Moment) -> Result<FleetView> {
        let mut kept = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let FleetSnapshot { rows, conflicts, not_heard_of } =
            kept.snapshot(known.store, known.configurations, now)?;
        drop(kept);
        let mut view = FleetView::new(rows, now);
        wait::explain(&mut view, known.configurations);
        view.not_heard_of = not_heard_of;
        view.notices.clone_from(&self.notices);
        view.conflicts = conflicts.iter().map(view::ConflictRow::from).collect();
        Ok(view)
    }

    /// The answer to a machine that waits for its cluster, about the one that creates it; none if it does not wait.
    fn wait(waiting: &MachineRow, known: FleetSources<'_>, now: Moment) -> Result<Option<String>> {
        let Some(awaited) = AwaitedCreator::of(waiting, known.configurations) else { return Ok(None) };
        let creator = match awaited {
            AwaitedCreator::Configuration(name) => known.store.with_configuration(name)?,
            AwaitedCreator::Elsewhere => None,
        };
        let creator = creator.map(|machine| stored_row(&machine, known, now)).transpose()?;
        Ok(Some(awaited.explained(creator.as_ref(), known.configurations)))
    }

    /// The page of the fleet, or what has changed in it.
    fn list(
        &self,
        request: &FleetRequest<'_>,
        query: &PageQuery,
        visitor: &FleetVisitor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<FleetReply> {
        let is_page = request.path == PAGE;
        let mut history = self.history();
        let view = self.view(known, now)?;
        history.observe(&view)?;
        let version = history.version();
        // The script asks for the changes since this version.
        let tag = format!("W/\"{version}\"");
        if !is_page && request.has(&tag) {
            return Ok(tagged(request, tag, FleetReply::html(200, &Markup::default())));
        }
        let changes = history.changes(query.since.as_deref().filter(|_| !is_page));
        let form = form_value(visitor);
        let query = &PageQuery { choose: query.choose && visitor.role.may_act(), ..query.clone() };
        let list = page::fleet(&ShownFleet { view: &view, query, changes, version: &version, form, now });
        Ok(if is_page {
            let live = LivePage { path: "/fleet/live", reloads: !query.choose };
            FleetReply::html(200, &page::document("Fleet", Some(live), &list))
        } else {
            tagged(request, tag, FleetReply::html(200, &list))
        })
    }

    fn one(
        &self,
        request: &FleetRequest<'_>,
        path: &str,
        visitor: &FleetVisitor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<Option<FleetReply>> {
        let Some((id, what)) = of_machine(path) else { return Ok(None) };
        let log = known.store.log(id)?;
        if what == "log" {
            return Ok(log.map(|log| FleetReply::new(200, TEXT, log)));
        }
        let Some(machine) = known.store.get(id)? else { return Ok(None) };
        let run = stored_run(id, known)?;
        let mut row = row(&machine, run.as_ref(), known, now);
        Self::wait(&row, known, now)?.into_iter().for_each(|wait| row.explain_wait(wait));
        let main = machine_page::page(&row, run.as_ref(), log.as_deref(), form_value(visitor), now);
        Ok(match what {
            "" => {
                let title = format!("{} · Fleet", row.name);
                let live = format!("{path}/live");
                let live = LivePage { path: &live, reloads: true };
                Some(FleetReply::html(200, &page::document(&title, Some(live), &main)))
            }
            "live" => Some(unchanged(request, FleetReply::html(200, &main))),
            _ => None,
        })
    }

    /// The most bytes that the body of a `POST` may have, or the answer where no body is read. The head alone decides:
    /// anybody can send a request, but only who sends a token that allows it has a body read. An error is the server's own.
    pub fn body_limit(
        &self,
        request: &FleetRequest<'_>,
        store: &MachineRegistry,
        now: Moment,
    ) -> Result<Result<usize, FleetReply>> {
        if let Some(token) = request.path.strip_prefix(REPORT) {
            return Ok(store.reporter(token)?.map(|_| BODY).ok_or_else(unknown_reporter));
        }
        let limit = if matches!(request.path, bulk::PLAN | bulk::CONFIRM) { bulk::BODY } else { FORM };
        Ok(self.operator(request, store, now)?.map(|_| limit))
    }

    /// Who sends a request to act, or its refusal.
    fn operator(
        &self,
        request: &FleetRequest<'_>,
        store: &MachineRegistry,
        now: Moment,
    ) -> Result<Result<FleetVisitor, FleetReply>> {
        let Some(visitor) = self.visitor(request, store, now)? else { return Ok(Err(request.closed())) };
        let is_bulk = matches!(request.path, bulk::PLAN | bulk::CONFIRM);
        if !is_bulk && action(request.path).is_none() && of_conflict(request.path).is_none() {
            return Ok(Err(request.absent()));
        }
        Ok(if visitor.role.may_act() { Ok(visitor) } else { Err(request.read_only(&visitor)) })
    }

    fn post(&self, request: &FleetRequest<'_>, known: FleetSources<'_>, now: Moment) -> Result<FleetReply> {
        if let Some(token) = request.path.strip_prefix(REPORT) {
            return Self::report(token, request.body, known, now);
        }
        let visitor = match self.operator(request, known.store, now)? {
            Ok(visitor) => visitor,
            Err(refusal) => return Ok(refusal),
        };
        // Another site can make a browser send a form, but not a bearer token.
        let form = String::from_utf8_lossy(request.body);
        let ours = parameter(&form, "form").is_some_and(|value| visitor.is_form_value(&value));
        if !ours && !visitor.is_bearer {
            let page = FleetReply::page(403, "Nothing was done", &page::stale());
            return Ok(request
                .refused(page, "nothing was done: the form is from another server or an earlier start; send the bearer token"));
        }
        // The list from which the form was sent.
        let back = parameter(&form, "back").and_then(|back| percent::decode(&back.replace('+', " ")));
        let back = back.and_then(|back| PageQuery::of(&back).ok()).unwrap_or_default();
        let actor = Actor::token(&visitor.name, visitor.role, request.peer);
        match request.path {
            bulk::PLAN => return self.plan(request, &form, &back, &visitor, known, now),
            bulk::CONFIRM => return self.confirm(request, &form, &back, &actor, known, now),
            _ => {}
        }
        let back = back.url();
        if let Some(conflict) = of_conflict(request.path)
            && let Some(entry) = known.store.dismiss(conflict, &actor, now)?
        {
            (known.note)(audit::journal(&entry));
            return Ok(request.done(&ActionAnswer::dismissed(conflict), &back));
        }
        let Some((id, action)) = action(request.path) else { return Ok(request.absent()) };
        let acted = Self::act(&[id.into()], action, &actor, known, now)?;
        let acted = acted.first().map_or(ActionResult::Absent, |acted| acted.result);
        let answer = ActionAnswer::on_machine(action, id.to_string(), acted.into());
        Ok(match acted {
            ActionResult::Done => request.done(&answer, &format!("{back}#m-{id}")),
            ActionResult::Removed => request.done(&answer, &back),
            ActionResult::Refused => {
                let page = FleetReply::page(409, "Nothing was done", &page::held());
                let why = "nothing was done: the machine has taken its configuration, or it is denied; redeploy or allow it first";
                request.refused(page, why)
            }
            ActionResult::Absent | ActionResult::Changed => request.absent(),
        })
    }

    /// Carries out an operator's action and tells the journal; nothing else does.
    fn act(
        targets: &[ActionTarget],
        action: OperatorAction,
        actor: &Actor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<Vec<ActedMachine>> {
        let acted = known.store.act(targets, action, actor, known.configurations, now)?;
        acted
            .iter()
            .filter_map(|acted| acted.entry.as_ref())
            .for_each(|entry| (known.note)(audit::journal(entry)));
        Ok(acted)
    }

    /// What an action on several machines would do. Nothing is done.
    fn plan(
        &self,
        request: &FleetRequest<'_>,
        form: &str,
        back: &PageQuery,
        visitor: &FleetVisitor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<FleetReply> {
        let asked = match BulkRequest::of(form) {
            Ok(asked) => asked,
            Err(why) => return Ok(request.invalid(&why, back)),
        };
        let view = self.view(known, now)?;
        let plan = match BulkPlan::new(&asked, &view) {
            Ok(plan) => plan,
            Err(why) => return Ok(request.invalid(&why, back)),
        };
        if request.wants_json() {
            return Ok(FleetReply::json(200, &PlanAnswer::from(&plan)));
        }
        let forms = ActionForms { value: visitor.form_value(), back: &back.text() };
        let title = format!("{} · Fleet", plan.action.text());
        Ok(FleetReply::page(200, &title, &bulk_page::question(&plan, forms, &back.url())))
    }

    /// Carries out a plan that was confirmed, as far as its machines are as they were shown.
    fn confirm(
        &self,
        request: &FleetRequest<'_>,
        form: &str,
        back: &PageQuery,
        actor: &Actor,
        known: FleetSources<'_>,
        now: Moment,
    ) -> Result<FleetReply> {
        let confirmed = match BulkConfirmation::of(form) {
            Ok(confirmed) => confirmed,
            Err(why) => return Ok(request.invalid(&why, back)),
        };
        let (machines, refused) = confirmed.judge(&self.view(known, now)?);
        let mut outcome = BulkOutcome::new(confirmed.action, refused);
        for batch in machines.chunks(bulk::BATCH) {
            let targets: Vec<_> = batch.iter().map(|machine| machine.target).collect();
            match Self::act(&targets, confirmed.action, actor, known, now) {
                Ok(acted) => outcome.add(batch, Some(acted)),
                // What was done before is told, so that nobody has to guess how far it came.
                Err(error) if !outcome.done.is_empty() => {
                    (known.note)(JournalEntry::note(format!("error: {}", causes(&error).join(": "))));
                    outcome.add(batch, None);
                }
                Err(error) => return Err(error),
            }
        }
        if request.wants_json() {
            return Ok(FleetReply::json(200, &OutcomeAnswer::from(outcome)));
        }
        let title = format!("{} · Fleet", outcome.action.text());
        Ok(FleetReply::page(200, &title, &bulk_page::outcome(&outcome, &back.url())))
    }

    /// Logs what a report has changed: the stage of the machine, and the state of its deployment.
    fn tell_change(
        (state, before): (DeploymentState, &MachineRow),
        (machine, row): (&Machine, &MachineRow),
        known: FleetSources<'_>,
    ) {
        let ends = match machine.state {
            DeploymentState::Installed => Some(MachineStage::Installed),
            DeploymentState::Joined => Some(MachineStage::Joined),
            _ => None,
        };
        let entry = match (row.stage, ends) {
            (MachineStage::Failed | MachineStage::NotJoined | MachineStage::UpdateRolledBack, _)
                if before.stage != row.stage || before.error != row.error =>
            {
                entries::failed(row)
            }
            (_, Some(stage)) if state != machine.state => entries::finished(row, stage),
            _ if before.stage == row.stage => return,
            (MachineStage::WaitingForCluster, _) => entries::waiting(row),
            _ => entries::stage(row),
        };
        (known.note)(entry);
    }

    /// Applies a report. Its token identifies the machine, whatever the report says.
    fn report(token: &str, body: &[u8], known: FleetSources<'_>, now: Moment) -> Result<FleetReply> {
        let Some(reporter) = known.store.reporter(token)? else { return Ok(unknown_reporter()) };
        let (hello, lines) = match install_run::read(body) {
            Ok(told) => told,
            Err(absurd) => return Ok(FleetReply::new(400, TEXT, format!("{absurd}\n"))),
        };
        let MachineReporter { id, has_taken } = reporter;
        let Some(machine) = known.store.get(id)? else { return Ok(unknown_reporter()) };
        let ReceivedReport { before, run, is_first } =
            install_runs::receive(known.store, id, has_taken, (&hello, &lines), now)?;
        if has_taken {
            let before = row(&machine, before.as_ref(), known, now);
            let event =
                run.outcome().map(DeploymentEvent::from).or_else(|| wait_event(machine.state, run.stage));
            conclude(id, event, is_first, &hello, known, now)?;
            if let Some(after) = known.store.get(id)? {
                let changed = row(&after, Some(&run), known, now);
                Self::tell_change((machine.state, &before), (&after, &changed), known);
            }
        }
        let waits = has_taken && lines.contains(&(ReportLine::Wait {}));
        let Some(machine) = known.store.get(id)?.filter(|_| waits) else {
            return Ok(FleetReply::new(204, TEXT, ""));
        };
        let text = Self::wait(&row(&machine, Some(&run), known, now), known, now)?.unwrap_or_default();
        Ok(FleetReply::json(200, &CreatorStatus { v: model::fleet::VERSION, text }))
    }
}

/// The hidden value of the forms of a page for this visitor; empty where it has none.
fn form_value(visitor: &FleetVisitor) -> &str {
    if visitor.role.may_act() { visitor.form_value() } else { "" }
}

fn stored_run(id: MachineId, known: FleetSources<'_>) -> Result<Option<InstallRun>> {
    known.store.run(id)?.as_ref().map(install_runs::read).transpose()
}

fn stored_row(machine: &Machine, known: FleetSources<'_>, now: Moment) -> Result<MachineRow> {
    Ok(row(machine, stored_run(machine.id, known)?.as_ref(), known, now))
}

fn row(machine: &Machine, run: Option<&InstallRun>, known: FleetSources<'_>, now: Moment) -> MachineRow {
    let row = view::row(machine, run, known.configurations.fit(machine), now);
    row.described_by(known.configurations, machine, run)
}

impl From<RunOutcome> for DeploymentEvent {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Installed => Self::Finished,
            RunOutcome::Joined => Self::Joined,
            RunOutcome::Failed => Self::Failed,
        }
    }
}

/// The event that a run is in this stage, where it begins or ends a wait for the cluster.
fn wait_event(state: DeploymentState, stage: MachineStage) -> Option<DeploymentEvent> {
    match (state, stage) {
        (DeploymentState::Installing, MachineStage::WaitingForCluster) => Some(DeploymentEvent::Waits),
        (DeploymentState::WaitingForCluster, stage) if stage.writes() => Some(DeploymentEvent::Proceeds),
        _ => None,
    }
}

/// Stores what a report says of the deployment, and the cards of its machine.
fn conclude(
    id: MachineId,
    event: Option<DeploymentEvent>,
    first: bool,
    hello: &StreamHeader,
    known: FleetSources<'_>,
    now: Moment,
) -> Result<()> {
    // All reports of a run have the same cards.
    if event.is_none() && !first {
        return Ok(());
    }
    for (mac, owner) in known.store.report(id, event, &hello.machine, known.configurations, now)? {
        let name = known.store.get(id)?.map(|machine| machine.name()).unwrap_or_default();
        let text = format!("{name} reports the card {mac}, which belongs to {owner}");
        (known.note)(JournalEntry::note(text));
    }
    Ok(())
}

/// `/fleet/conflicts/ID/dismiss`.
fn of_conflict(path: &str) -> Option<&str> {
    path.strip_prefix("/fleet/conflicts/")?.strip_suffix("/dismiss")
}

fn unknown_reporter() -> FleetReply {
    FleetReply::new(403, TEXT, "this report token is not valid\n")
}

/// The machine and the action that a path names.
fn action(path: &str) -> Option<(MachineId, OperatorAction)> {
    of_machine(path).and_then(|(id, verb)| Some((id, OperatorAction::of_name(verb)?)))
}

/// `/fleet/machines/ID` or `/fleet/machines/ID/WORD`.
fn of_machine(path: &str) -> Option<(MachineId, &str)> {
    let rest = path.strip_prefix("/fleet/machines/")?;
    let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
    Some((id.parse().ok()?, what))
}

/// The reply, or 304 without a body where the browser has it already.
fn unchanged(request: &FleetRequest<'_>, reply: FleetReply) -> FleetReply {
    let tag = format!("\"{}\"", Digest::of(&reply.body));
    tagged(request, tag, reply)
}

fn tagged(request: &FleetRequest<'_>, tag: String, reply: FleetReply) -> FleetReply {
    let known = request.has(&tag);
    let reply = reply.with("ETag", tag).with("Cache-Control", "no-cache".into());
    if known { FleetReply { status: 304, body: Vec::new(), ..reply } } else { reply }
}

/// A value of a query or a form. It is not decoded: no value of these forms is encoded.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod bulk_tests;
#[cfg(test)]
mod tests;
