//! Changes of machines' records, each as one transaction: machines ask, take their configuration and report, and operators
//! decide.
//!
//! Called by [`crate::server::router`] for machines and by [`crate::fleet`] for operators.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use model::config::Secret;
use model::machine::{Identity, Mac};

use super::access_token::{self, AccessToken, TokenName, TokenRole};
use super::audit::{Actor, AuditAction, AuditEntry, AuditQuery, AuditRecord, AuditResult, AuditSubject};
use super::choose::{RecordChoice, RequestIdentity, answer_unnamed, choose};
use super::configurations::Configurations;
use super::id::MachineId;
use super::identity_keys;
use super::machine::OperatorAction;
use super::machine::{
    BootAnswer, ConfigurationFit, DeploymentEvent, DeploymentState, DiskBootReason, InstallPermission,
    Machine, MachineVersion, TokenRefusal,
};
use super::store::location::StateLocation;
use super::store::postgres::StoreNotice;
use super::store::{
    ChangeMark, Durability, IdentityConflict, MachineRecords, MachineStore, MeteredStore, RunRecord,
    StoredMachine,
};
use super::stranger_rate::{StrangerRate, StrangerVerdict};
use super::token::{self, DeploymentTicket, TokenPurpose, TokenSigner};
use crate::metrics::ServerMetrics;
use crate::moment::Moment;

/// The most machines that are read one by one: to read all of them is faster than to find more.
const MOST_READ_ALONE: usize = 2000;

#[derive(Debug)]
pub struct MachineRegistry {
    store: Box<dyn MachineStore>,
    signer: TokenSigner,
    strangers: StrangerRate,
    metrics: Arc<ServerMetrics>,
}

#[derive(Debug)]
pub struct BootDecision {
    pub answer: BootAnswer,
    pub machine: Option<MachineId>,
    /// The tokens for an install: that for the configuration, and that for reports.
    pub tokens: Option<(Secret, Secret)>,
    /// The word of the deployment that the tokens are of; empty without them.
    pub deployment: String,
    pub fit: ConfigurationFit,
    /// Where this client is new, the addresses of those that asked as the same machine before.
    pub others: Vec<IpAddr>,
    /// The names of the machines and configurations that are in conflict.
    pub conflict: Vec<String>,
    /// Of a request that no configuration can be given for, whether it was recorded.
    pub stranger: Option<StrangerVerdict>,
    /// The entry of the audit log, where a token let the machine install by this request.
    pub enrolled: Option<AuditEntry>,
}

#[derive(Debug)]
pub struct ConfigurationHandout {
    pub machine: Machine,
    pub name: String,
    pub text: Secret,
}

/// What the fleet shows, as it is stored.
#[derive(Debug)]
pub struct StoredFleet {
    pub machines: Vec<StoredMachine>,
    /// Those of `machines`.
    pub runs: HashMap<MachineId, RunRecord>,
    /// The ids that were asked for; those without a machine are gone. None if `machines` are all.
    pub asked: Option<BTreeSet<MachineId>>,
    /// How many machines there are.
    pub count: usize,
    /// For the next read.
    pub mark: ChangeMark,
    pub conflicts: Vec<IdentityConflict>,
}

/// The machine that a report token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineReporter {
    pub id: MachineId,
    /// True if it has taken the configuration, so that its reports count. Another client that asked may report that it
    /// failed before; that is shown and changes nothing.
    pub has_taken: bool,
}

/// Cards of a report that were not added, because they belong to another machine: its name.
pub type RefusedCards = Vec<(Mac, String)>;

/// The result of an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionResult {
    Done,
    Removed,
    Absent,
    /// The state of the record does not allow it.
    Refused,
    /// The record is not the one that the operator has seen.
    Changed,
}

/// A machine on which an operator acts, and the version of its record that the operator has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionTarget {
    pub id: MachineId,
    /// None if the operator acts on the machine as it is.
    pub seen: Option<MachineVersion>,
}

/// The result of an action on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActedMachine {
    pub result: ActionResult,
    /// The entry of the audit log; none if there is no such machine.
    pub entry: Option<AuditEntry>,
}

impl From<MachineId> for ActionTarget {
    fn from(id: MachineId) -> Self {
        Self { id, seen: None }
    }
}

/// A token that was made.
#[derive(Debug)]
pub struct NewAccessToken {
    pub token: AccessToken,
    /// The token itself, which is not stored.
    pub text: Secret,
    pub entry: AuditEntry,
}

impl MachineRegistry {
    /// Opens the state; errors are those of [`StateLocation::open`]. `notice` gets messages for the operator.
    pub fn open(state: &StateLocation, notice: StoreNotice) -> Result<Self> {
        Ok(Self::new(state.open(notice)?))
    }

    #[must_use]
    pub fn new(store: Box<dyn MachineStore>) -> Self {
        let (signer, metrics) = (TokenSigner::new(&store.key()), Arc::default());
        let store = Box::new(MeteredStore::new(store, &metrics));
        Self { store, signer, strangers: StrangerRate::default(), metrics }
    }

    /// The metrics of the server whose state this is.
    #[must_use]
    pub fn metrics(&self) -> &Arc<ServerMetrics> {
        &self.metrics
    }

    /// Whether the state can be read and changed now.
    pub fn check(&self) -> Result<()> {
        self.store.check()
    }

    /// Decides what the client at `peer`, which claims to be this machine, boots.
    pub fn boot(
        &self,
        identity: &Identity,
        peer: IpAddr,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<BootDecision> {
        self.boot_with(None, identity, peer, configurations, now)
    }

    /// The same for a client that has sent the text of a token.
    pub fn boot_with(
        &self,
        token: Option<&str>,
        identity: &Identity,
        peer: IpAddr,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<BootDecision> {
        let told = RequestIdentity::new(identity);
        let token = token.map(|token| self.access_token(token, now)).transpose()?.flatten();
        let token =
            token.filter(|token| token.role == TokenRole::Enroll && token.uses.is_some_and(|uses| uses > 0));
        let stranger = match token {
            // The uses of the token limit how many are recorded.
            Some(_) => None,
            None => self.judge_stranger(&told, peer, configurations, now)?,
        };
        if let Some(StrangerVerdict::Dropped { .. }) = stranger {
            return Ok(BootDecision::dropped(&told, configurations, stranger));
        }
        // A machine asks again for what is lost in a power cut; a use of a token is not counted twice.
        let durability = if token.is_some() { Durability::Full } else { Durability::Process };
        let decision = self.store.change(durability, |records| {
            let mut found = records.with_any(&told.marks)?;
            for name in configurations.naming(&told.marks) {
                let assigned = records.assigned(name)?;
                found.extend(assigned.filter(|one| !found.iter().any(|known| known.id == one.id)));
            }
            let chosen = match choose(&told, found, configurations, now) {
                RecordChoice::Record(chosen) => *chosen,
                RecordChoice::Conflict(between) => {
                    let told = identity.to_string();
                    records.add_conflict(&IdentityConflict::new(peer, told, between.clone(), now))?;
                    return Ok(BootDecision { stranger, ..BootDecision::conflict(between) });
                }
            };
            let (mut machine, mut answer, mut enrolled) = (chosen.machine, chosen.answer, None);
            let is_unsaid = answer == BootAnswer::Disk(DiskBootReason::Unknown);
            if let Some(token) = token.filter(|_| is_unsaid && chosen.fit == ConfigurationFit::Fallback) {
                enrolled = enroll(records, &token.id, &mut machine, peer, now)?;
                answer = answer_unnamed(&told, &machine, chosen.fit);
            }
            chosen.absorbed.into_iter().try_for_each(|id| records.remove(id))?;
            if machine.is_stranger() && records.get(machine.id)?.is_none() {
                records.make_room_for_a_stranger()?;
            }
            let before: Vec<_> = machine.clients.iter().map(|client| client.address).collect();
            let others = if machine.asked(peer, identity, now) { before } else { Vec::new() };
            let (mut tokens, mut deployment) = (None, String::new());
            if answer == BootAnswer::Install {
                machine.apply(DeploymentEvent::Booted, now);
                let name = machine.assigned.as_deref().or(configurations.fallback());
                machine.configuration = name.map(str::to_owned);
                let mut ticket = DeploymentTicket::new(machine.id, machine.generation, now)?;
                if machine.state == DeploymentState::WaitingForCluster {
                    ticket.nonce = machine.taken.map_or(ticket.nonce, |taken| taken.nonce);
                }
                deployment = ticket.word();
                let token = |purpose| self.signer.token(purpose, ticket);
                tokens = Some((token(TokenPurpose::Configuration), token(TokenPurpose::Report)));
            }
            records.put(&machine)?;
            Ok(BootDecision {
                answer,
                machine: Some(machine.id),
                tokens,
                deployment,
                fit: chosen.fit,
                others,
                conflict: Vec::new(),
                stranger,
                enrolled,
            })
        })?;
        decision.enrolled.iter().for_each(|entry| self.count(entry));
        Ok(decision)
    }

    /// Counts a request that no configuration can be given for, unless a record that is more than one of a stranger has its identifiers.
    fn judge_stranger(
        &self,
        told: &RequestIdentity<'_>,
        peer: IpAddr,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<Option<StrangerVerdict>> {
        if configurations.naming(&told.marks).len() == 1 {
            return Ok(None);
        }
        let verdict = self.strangers.count(peer, now);
        // Readers do not wait for the writer.
        let dropped = matches!(verdict, StrangerVerdict::Dropped { .. });
        if dropped
            && self.store.read(|records| records.with_any(&told.marks))?.iter().any(|one| !one.is_stranger())
        {
            return Ok(None);
        }
        Ok(Some(verdict))
    }

    /// Hands out the configuration of `token` to the client at `peer`, once. This is on disk before it returns. Tokens
    /// are valid for `validity` seconds.
    pub fn take(
        &self,
        token: &str,
        peer: IpAddr,
        configurations: &Configurations,
        validity: u64,
        now: Moment,
    ) -> Result<Result<ConfigurationHandout, TokenRefusal>> {
        let Some(ticket) = self.signer.ticket(TokenPurpose::Configuration, token) else {
            return Ok(Err(TokenRefusal::Unknown));
        };
        let handed = self.store.change(Durability::Full, |records| {
            let Some(mut machine) = records.get(ticket.machine)? else {
                return Ok(Err(TokenRefusal::Unknown));
            };
            let fallback =
                || configurations.fallback().filter(|_| machine.permission == InstallPermission::Allowed);
            let name = machine.assigned.as_deref().or_else(fallback).map(str::to_owned);
            let valid = ticket.generation == machine.generation && now <= ticket.issued.plus(validity);
            let text = name.as_deref().and_then(|name| configurations.text(name));
            let (Some(name), Some(text), true) = (name, text, valid && !machine.is_held()) else {
                return Ok(Err(TokenRefusal::Gone));
            };
            machine.apply(DeploymentEvent::Took, now);
            machine.revoke();
            (machine.taken, machine.configuration) = (Some(ticket.into()), Some(name.clone()));
            machine.took(peer, now);
            records.put(&machine)?;
            Ok(Ok(ConfigurationHandout { machine, name, text: text.clone() }))
        });
        if let Ok(Ok(_)) = &handed {
            self.metrics.configuration_handed_out();
        }
        handed
    }

    /// The machine that waits for its cluster with a configuration that it has, and the moment at which `token` was made to
    /// give it the configuration again; none for any other token.
    pub fn waiting(&self, token: &str) -> Result<Option<(Machine, Moment)>> {
        let Some(ticket) = self.signer.ticket(TokenPurpose::Configuration, token) else { return Ok(None) };
        let machine = self.get(ticket.machine)?;
        let waits = machine.filter(|machine| machine.state == DeploymentState::WaitingForCluster);
        Ok(waits.map(|machine| (machine, ticket.issued)))
    }

    /// The machine that reports with `token`; none if it was not made here or has become void.
    pub fn reporter(&self, token: &str) -> Result<Option<MachineReporter>> {
        let Some(ticket) = self.signer.ticket(TokenPurpose::Report, token) else { return Ok(None) };
        let Some(machine) = self.get(ticket.machine)? else { return Ok(None) };
        let has_taken = machine.taken == Some(ticket.into());
        let may_take = ticket.generation == machine.generation && !machine.is_held();
        Ok((has_taken || may_take).then_some(MachineReporter { id: machine.id, has_taken }))
    }

    /// Applies the outcome of an install and the cards of its machine. Only for a reporter that has taken the
    /// configuration.
    pub fn report(
        &self,
        id: MachineId,
        event: Option<DeploymentEvent>,
        reported: &Identity,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<RefusedCards> {
        let is_news = |machine: &Machine| {
            let new = |mac: &Mac| !machine.identity.macs.contains(mac);
            event.is_some_and(|event| machine.state.after(event) != machine.state)
                || reported.macs.iter().any(new)
        };
        // Every machine reports every second; few reports need a write.
        if !self.get(id)?.is_some_and(|machine| is_news(&machine)) {
            return Ok(Vec::new());
        }
        let (refusals, state) = self.store.change(Durability::Full, |records| {
            let Some(mut machine) = records.get(id)? else { return Ok((Vec::new(), None)) };
            let mut refusals = Vec::new();
            // A report without any identifier of this machine is of another one.
            let is_it = !identity_keys::of(&machine.identity).is_disjoint(&identity_keys::of(reported));
            for mac in reported.macs.iter().filter(|_| is_it) {
                let mark = identity_keys::of(&Identity { macs: vec![*mac], ..Identity::default() });
                let named = configurations.naming(&mark);
                let owner = named.into_iter().find(|name| Some(*name) != machine.assigned.as_deref());
                let mut known = records.with_any(&mark)?;
                known.retain(|other| other.id != machine.id);
                let held = known.iter().find(|other| !other.is_stranger()).map(Machine::name);
                if let Some(owner) = owner.map(str::to_owned).or(held) {
                    refusals.push((*mac, owner));
                } else if machine.learn(*mac) {
                    known.into_iter().try_for_each(|stranger| records.remove(stranger.id))?;
                }
            }
            let before = machine.state;
            if let Some(event) = event {
                machine.apply(event, now);
            }
            records.put(&machine)?;
            Ok((refusals, Some(machine.state).filter(|state| *state != before)))
        })?;
        // Only what is stored is counted, and only by the server that has stored it.
        match state {
            Some(DeploymentState::Installed) => self.metrics.install_ended(true),
            Some(DeploymentState::Failed) => self.metrics.install_ended(false),
            Some(DeploymentState::Joined) => self.metrics.node_joined(),
            _ => {}
        }
        Ok(refusals)
    }

    /// Performs an operator's action on machines, with an entry of the audit log for each, in one transaction: if it fails, on none.
    /// The results are in their order.
    pub fn act(
        &self,
        targets: &[ActionTarget],
        action: OperatorAction,
        actor: &Actor,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<Vec<ActedMachine>> {
        let act = |records: &mut MachineRecords<'_>, target: &ActionTarget| {
            let Some(machine) = records.get(target.id)? else {
                return Ok(ActedMachine { result: ActionResult::Absent, entry: None });
            };
            let subject = AuditSubject::machine(target.id, machine.name());
            let result = match target.seen.is_none_or(|seen| seen == machine.version()) {
                true => Self::act_on(records, machine, action, configurations, now)?,
                false => ActionResult::Changed,
            };
            let record =
                AuditRecord { actor: actor.clone(), action: action.into(), subject, result: result.into() };
            Ok(ActedMachine { result, entry: Some(records.add_audit(record, now)?) })
        };
        let all =
            |records: &mut MachineRecords<'_>| targets.iter().map(|target| act(records, target)).collect();
        let acted: Vec<ActedMachine> = self.store.change(Durability::Full, all)?;
        acted.iter().filter_map(|acted| acted.entry.as_ref()).for_each(|entry| self.count(entry));
        Ok(acted)
    }

    /// Counts what was stored.
    fn count(&self, entry: &AuditEntry) {
        let AuditRecord { action, result, .. } = &entry.record;
        self.metrics.operator_acted(action.name(), result.name());
    }

    fn act_on(
        records: &mut MachineRecords<'_>,
        mut machine: Machine,
        action: OperatorAction,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<ActionResult> {
        let id = machine.id;
        let selectors = machine.assigned.as_deref().map(|name| configurations.selectors(name));
        match action {
            OperatorAction::Allow => machine.permission = InstallPermission::Allowed,
            OperatorAction::Deny => {
                machine.permission = InstallPermission::Denied;
                machine.revoke();
            }
            // The assigned configuration is gone; the machine may get another one.
            OperatorAction::Redeploy
                if selectors == Some(None) && machine.permission != InstallPermission::Denied =>
            {
                records.remove(id)?;
                return Ok(ActionResult::Removed);
            }
            OperatorAction::Redeploy => {
                machine.apply(DeploymentEvent::Redeploy, now);
                if let Some(Some(selectors)) = selectors
                    && machine.permission != InstallPermission::Denied
                {
                    // Its cards are learned again from its next reports.
                    machine.identity = Identity::default();
                    machine.select(selectors);
                }
            }
            OperatorAction::Forget if machine.is_held() => return Ok(ActionResult::Refused),
            OperatorAction::Forget => {
                records.remove(id)?;
                return Ok(ActionResult::Removed);
            }
        }
        records.put(&machine)?;
        Ok(ActionResult::Done)
    }

    /// Removes a conflict that an operator has seen. Returns its entry of the audit log; none if it was not there.
    pub fn dismiss(&self, conflict: &str, actor: &Actor, now: Moment) -> Result<Option<AuditEntry>> {
        let dismissed = self.store.change(Durability::Full, |records| {
            let Some(conflict) = records.remove_conflict(conflict)? else { return Ok(None) };
            let subject = AuditSubject::Conflict { id: conflict.id, address: Some(conflict.address) };
            let (action, result) = (AuditAction::Dismiss, AuditResult::Done);
            records.add_audit(AuditRecord { actor: actor.clone(), action, subject, result }, now).map(Some)
        });
        if let Ok(Some(entry)) = &dismissed {
            self.count(entry);
        }
        dismissed
    }

    /// The entries of the audit log, the latest first.
    pub fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.store.read(|records| records.audit(query))
    }

    /// Makes a token. Returns none if there is one of this name.
    pub fn make_token(
        &self,
        name: TokenName,
        role: TokenRole,
        expires: Option<Moment>,
        uses: Option<u32>,
        actor: &Actor,
        now: Moment,
    ) -> Result<Option<NewAccessToken>> {
        let (token, text) = AccessToken::new(name, role, expires, uses, now)?;
        self.store.change(Durability::Full, |records| {
            if !records.add_access_token(&token)? {
                return Ok(None);
            }
            let entry = record_token(records, AuditAction::MakeToken, &token, actor, now)?;
            Ok(Some(NewAccessToken { token, text, entry }))
        })
    }

    /// Removes the token of this name: no server accepts it from then on. Returns its entry of the audit log; none if there is
    /// no such token.
    pub fn revoke_token(&self, name: &TokenName, actor: &Actor, now: Moment) -> Result<Option<AuditEntry>> {
        self.store.change(Durability::Full, |records| {
            let Some(token) = records.remove_access_token(name)? else { return Ok(None) };
            record_token(records, AuditAction::RevokeToken, &token, actor, now).map(Some)
        })
    }

    /// All tokens by their names, those that have ended too.
    pub fn access_tokens(&self) -> Result<Vec<AccessToken>> {
        self.store.read(|records| records.access_tokens())
    }

    /// The token that is `text`, if it is valid now.
    pub fn access_token(&self, text: &str, now: Moment) -> Result<Option<AccessToken>> {
        let Some(id) = access_token::id_of(text) else { return Ok(None) };
        let token = self.store.read(|records| records.access_token(id))?;
        Ok(token.filter(|token| token.is_opened_by(text, now)))
    }

    /// The token with this ID, if it is valid now. Who sends the ID has to prove that it was given the token.
    pub fn access_token_with_id(&self, id: &str, now: Moment) -> Result<Option<AccessToken>> {
        if !access_token::is_id(id) {
            return Ok(None);
        }
        let token = self.store.read(|records| records.access_token(id))?;
        Ok(token.filter(|token| token.is_valid(now)))
    }

    /// A secret of this server's state for a token and a purpose: 128 bits as 32 hexadecimal digits.
    #[must_use]
    pub fn derived(&self, purpose: &str, token: &AccessToken) -> String {
        self.signer.derived(purpose, &token.digest)
    }

    pub fn get(&self, id: MachineId) -> Result<Option<Machine>> {
        self.store.read(|records| records.get(id))
    }

    /// The record with this configuration: its assignment, or else a machine that it was offered to as the fallback.
    pub fn with_configuration(&self, name: &str) -> Result<Option<Machine>> {
        self.store.read(|records| {
            records.assigned(name)?.map_or_else(|| records.offered(name), |machine| Ok(Some(machine)))
        })
    }

    /// The token of the fleet page: random for each start of a server, and the same for all servers that share the state.
    pub fn fleet_token(&self) -> Result<Secret> {
        if self.store.is_shared() { Ok(self.signer.fleet_token()) } else { token::password() }
    }

    /// The reports of a machine's latest run.
    pub fn run(&self, id: MachineId) -> Result<Option<RunRecord>> {
        self.store.read(|records| records.run(id))
    }

    /// The log of a machine's latest run.
    pub fn log(&self, id: MachineId) -> Result<Option<String>> {
        self.store.read(|records| records.log(id))
    }

    /// Replaces the run of a machine by what `change` makes of it; `log` is the whole log, where it has changed. Reports of one
    /// machine are applied one after the other, whichever server gets them.
    pub fn change_run<T>(
        &self,
        id: MachineId,
        log: Option<&str>,
        now: Moment,
        change: impl FnOnce(Option<RunRecord>) -> Result<(RunRecord, T)>,
    ) -> Result<T> {
        self.store.change_run(id, |records| {
            let before = records.run(id)?;
            let had_log = before.as_ref().is_some_and(|run| run.has_log);
            let (run, result) = change(before)?;
            records.put_run(id, &run)?;
            match log {
                Some(log) if run.has_log => records.put_log(id, log, now)?,
                _ if had_log && !run.has_log => records.remove_log(id)?,
                _ => {}
            }
            Ok(result)
        })
    }

    /// All that the fleet shows, as it is at one moment. Of the machines, only those that were changed since the read with this
    /// mark and the ones in `further` are read, if that is less and the others are known to be the same.
    pub fn fleet(&self, since: Option<&ChangeMark>, further: &BTreeSet<MachineId>) -> Result<StoredFleet> {
        self.store.read_changes(since, |records, changes| {
            let asked = changes.machines.map(|changed| &changed | further);
            let asked = asked.filter(|asked| asked.len() <= MOST_READ_ALONE);
            let (machines, runs) = match &asked {
                Some(ids) => records.stored_among(ids)?,
                None => (records.stored()?, records.runs()?),
            };
            let (count, conflicts) = (records.count()?, records.conflicts()?);
            Ok(StoredFleet { machines, runs, asked, count, mark: changes.mark, conflicts })
        })
    }

    /// The first `limit` records, beginning with those that an operator has to look at; the number of all; the
    /// conflicts.
    pub fn list(&self, limit: usize) -> Result<(Vec<Machine>, usize, Vec<IdentityConflict>)> {
        self.store.read(|records| Ok((records.list(limit)?, records.count()?, records.conflicts()?)))
    }
}

/// Lets a machine install that nobody has decided about, by one use of a token. Its uses are counted in the transaction, so that all
/// servers together give no more than there are.
fn enroll(
    records: &mut MachineRecords<'_>,
    token: &str,
    machine: &mut Machine,
    peer: IpAddr,
    now: Moment,
) -> Result<Option<AuditEntry>> {
    let token = records.access_token(token)?.filter(|token| token.is_valid(now));
    let Some(token) = token.filter(|token| token.uses.is_some_and(|uses| uses > 0)) else { return Ok(None) };
    records.use_access_token(&token.id)?;
    machine.permission = InstallPermission::Allowed;
    let actor = Actor::token(token.name.as_str(), token.role, Some(peer));
    let subject = AuditSubject::machine(machine.id, machine.name());
    let (action, result) = (AuditAction::Enroll, AuditResult::Done);
    records.add_audit(AuditRecord { actor, action, subject, result }, now).map(Some)
}

fn record_token(
    records: &mut MachineRecords<'_>,
    action: AuditAction,
    token: &AccessToken,
    actor: &Actor,
    now: Moment,
) -> Result<AuditEntry> {
    let AccessToken { id, name, role, expires, uses, .. } = token;
    let (name, expires) = (name.to_string(), expires.map(|expires| expires.to_string()));
    let subject = AuditSubject::Token { id: id.clone(), name, role: *role, expires, uses: *uses };
    let record = AuditRecord { actor: actor.clone(), action, subject, result: AuditResult::Done };
    records.add_audit(record, now)
}

impl From<ActionResult> for AuditResult {
    fn from(result: ActionResult) -> Self {
        match result {
            ActionResult::Done => Self::Done,
            ActionResult::Removed => Self::Removed,
            ActionResult::Refused | ActionResult::Changed | ActionResult::Absent => Self::Refused,
        }
    }
}

impl From<OperatorAction> for AuditAction {
    fn from(action: OperatorAction) -> Self {
        match action {
            OperatorAction::Allow => Self::Allow,
            OperatorAction::Deny => Self::Deny,
            OperatorAction::Redeploy => Self::Redeploy,
            OperatorAction::Forget => Self::Forget,
        }
    }
}

impl BootDecision {
    fn conflict(between: Vec<String>) -> Self {
        let answer = BootAnswer::Disk(DiskBootReason::Conflict);
        Self {
            answer,
            machine: None,
            tokens: None,
            deployment: String::new(),
            fit: ConfigurationFit::Nothing,
            others: Vec::new(),
            conflict: between,
            stranger: None,
            enrolled: None,
        }
    }

    /// The answer to a request that is not recorded.
    fn dropped(
        told: &RequestIdentity<'_>,
        configurations: &Configurations,
        stranger: Option<StrangerVerdict>,
    ) -> Self {
        let between: Vec<_> = configurations.naming(&told.marks).into_iter().map(str::to_owned).collect();
        match between.is_empty() {
            true => {
                let answer = BootAnswer::Disk(DiskBootReason::Unknown);
                Self { answer, stranger, ..Self::conflict(Vec::new()) }
            }
            false => Self { stranger, ..Self::conflict(between) },
        }
    }
}

#[cfg(test)]
mod tests;
