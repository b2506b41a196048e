//! The behavior of every store.

use super::records::{MOST_CONFLICTS, MOST_LOGS, MOST_STRANGERS};
use super::*;
use crate::machines::access_token::{AccessToken, TokenRole};
use crate::machines::audit::{AuditAction, AuditQuery, AuditRecord, AuditResult, AuditSubject};
use crate::machines::identity_keys;
use crate::machines::machine::{DeploymentEvent, DeploymentState, InstallPermission, Machine};
use crate::moment::Moment;
use crate::test_support::{StorePlace, for_every_store, operator, told};
use std::collections::{BTreeMap, BTreeSet};
use testing::numbers::Numbers;

const NOW: Moment = Moment(7);

for_every_store!(
    a_record_is_the_same_when_the_server_starts_again,
    an_error_inside_a_change_leaves_the_state_as_it_was,
    records_are_found_by_each_of_their_marks_and_not_by_those_they_had,
    a_configuration_has_one_record,
    strangers_are_forgotten_before_they_fill_the_disk_and_others_never,
    conflicts_are_counted_and_the_oldest_of_too_many_go,
    who_looks_does_not_hold_up_who_changes,
    a_run_is_kept_with_the_moment_at_which_its_machine_was_heard,
    the_oldest_logs_go_before_they_fill_the_disk,
    what_belongs_to_a_machine_goes_with_it,
    texts_of_machines_are_stored_whatever_is_in_them,
    a_check_does_not_wait_for_who_changes,
    tokens_are_kept_as_digests_and_found_by_id_and_name,
    the_audit_log_counts_without_gaps_and_is_read_from_the_end,
    an_action_that_is_not_stored_leaves_no_entry,
    whoever_reads_what_was_changed_knows_all,
);

fn machine(query: &str) -> Machine {
    Machine::stranger(told(query), NOW)
}

fn put(store: &dyn MachineStore, machine: &Machine) -> Result<()> {
    store.change(Durability::Full, |records| records.put(machine))
}

fn all(store: &dyn MachineStore) -> Vec<Machine> {
    store.read(|records| records.list(usize::MAX)).unwrap()
}

fn a_record_is_the_same_when_the_server_starts_again(place: &StorePlace) {
    let store = place.open();
    let mut machine =
        machine("mac=52:54:00:00:00:01&serial=Cz1 é&asset=a&uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32");
    machine.assigned = Some("node-1.yaml".into());
    machine.configuration = Some("node-1.yaml".into());
    machine.apply(DeploymentEvent::Booted, Moment(8));
    machine.asked("192.0.2.1".parse().unwrap(), &told("serial=a"), Moment(9));
    machine.taken = Some(token::DeploymentTicket::new(machine.id, 4, NOW).unwrap().into());
    machine.generation = u32::MAX;
    machine.permission = InstallPermission::Denied;
    put(&*store, &machine).unwrap();
    let key = store.key();
    drop(store);
    let store = place.open();
    assert_eq!((all(&*store), store.key()), (vec![machine], key));
    assert_ne!(StorePlace::sqlite().open().key(), key);
}

fn an_error_inside_a_change_leaves_the_state_as_it_was(place: &StorePlace) {
    let store = place.open();
    let (kept, lost) = (machine("serial=1"), machine("serial=2"));
    put(&*store, &kept).unwrap();
    let error = store.change(Durability::Full, |records| -> Result<()> {
        records.put(&lost)?;
        records.remove(kept.id)?;
        records.add_conflict(&IdentityConflict::new("::1".parse().unwrap(), "x".into(), vec![], NOW))?;
        Err(anyhow!("something is wrong"))
    });
    assert_eq!(error.unwrap_err().to_string(), "something is wrong");
    assert_eq!(all(&*store), std::slice::from_ref(&kept));
    assert!(store.read(|records| records.conflicts()).unwrap().is_empty());
    assert_eq!(store.read(|records| records.with_any(&identity_keys::of(&lost.identity))).unwrap(), []);
    // The same for a change that panics; the next change works.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.change(Durability::Full, |records| -> Result<()> {
            records.remove(kept.id)?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(all(&*store), [kept]);
    put(&*store, &lost).unwrap();
    assert_eq!(all(&*store).len(), 2);
}

fn records_are_found_by_each_of_their_marks_and_not_by_those_they_had(place: &StorePlace) {
    let store = place.open();
    let mut one = machine("mac=52:54:00:00:00:01&serial=CZ1");
    let other = machine("mac=52:54:00:00:00:02&serial=cz1");
    put(&*store, &one).unwrap();
    put(&*store, &other).unwrap();
    let found = |query: &str| {
        let marks = identity_keys::of(&told(query));
        store.read(|records| records.with_any(&marks)).unwrap().len()
    };
    assert_eq!((found("serial=CZ1"), found("mac=52:54:00:00:00:01"), found("serial=CZ2")), (2, 1, 0));
    one.identity.serial = Some("CZ2".into());
    put(&*store, &one).unwrap();
    assert_eq!((found("serial=CZ1"), found("serial=CZ2")), (1, 1));
    store.change(Durability::Process, |records| records.remove(one.id)).unwrap();
    assert_eq!((found("serial=CZ2"), found("mac=52:54:00:00:00:01")), (0, 0));
}

fn a_configuration_has_one_record(place: &StorePlace) {
    let store = place.open();
    let assigned = |query: &str| Machine { assigned: Some("a.yaml".into()), ..machine(query) };
    let one = assigned("serial=1");
    put(&*store, &one).unwrap();
    assert!(put(&*store, &assigned("serial=2")).unwrap_err().to_string().contains("a.yaml"));
    assert_eq!(all(&*store), [one]);
}

fn strangers_are_forgotten_before_they_fill_the_disk_and_others_never(place: &StorePlace) {
    let store = place.open();
    let mut installed = machine("mac=52:54:00:00:00:01");
    installed.state = DeploymentState::Installed;
    put(&*store, &installed).unwrap();
    let stranger = |number: u32| {
        let mac = format!("mac=52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        Machine { last_seen: Moment(100 + u64::from(number)), ..machine(&mac) }
    };
    store
        .change(Durability::Process, |records| {
            (0..=MOST_STRANGERS).try_for_each(|number| {
                records.make_room_for_a_stranger()?;
                records.put(&stranger(number))
            })
        })
        .unwrap();
    let machines = all(&*store);
    assert_eq!(machines.len(), MOST_STRANGERS as usize + 1);
    assert!(!machines.iter().any(|machine| machine.identity == stranger(0).identity));
    assert!(machines.iter().any(|machine| machine.identity == stranger(1).identity));
    assert!(machines.contains(&installed));
}

fn conflicts_are_counted_and_the_oldest_of_too_many_go(place: &StorePlace) {
    let store = place.open();
    let conflict = |number: u64| {
        let between = vec![format!("{number}.yaml"), "b".into()];
        IdentityConflict::new("192.0.2.1".parse().unwrap(), "serial:a".into(), between, Moment(number))
    };
    let add = |number| store.change(Durability::Process, |records| records.add_conflict(&conflict(number)));
    (0..=u64::from(MOST_CONFLICTS)).for_each(|number| add(number).unwrap());
    add(9).unwrap();
    let conflicts = store.read(|records| records.conflicts()).unwrap();
    assert_eq!(conflicts.len(), MOST_CONFLICTS as usize);
    assert!(!conflicts.contains(&conflict(0)) && conflicts.contains(&conflict(1)));
    assert_eq!(conflicts.iter().find(|one| one.id == conflict(9).id).unwrap().times, 2);
    let remove =
        || store.change(Durability::Full, |records| records.remove_conflict(&conflict(9).id)).unwrap();
    assert_eq!(remove().map(|removed| removed.between), Some(conflict(9).between));
    assert_eq!(remove(), None);
}

fn who_looks_does_not_hold_up_who_changes(place: &StorePlace) {
    let store = place.open();
    put(&*store, &machine("serial=1")).unwrap();
    store
        .read(|records| {
            assert_eq!(records.count()?, 1);
            put(&*store, &machine("serial=2"))?;
            assert_eq!(records.count()?, 1, "it sees one moment");
            Ok(())
        })
        .unwrap();
    assert_eq!(all(&*store).len(), 2);
}

fn a_run_is_kept_with_the_moment_at_which_its_machine_was_heard(place: &StorePlace) {
    let store = place.open();
    let (one, other) = (machine("serial=1"), machine("serial=2"));
    let run = |text: &str, heard| RunRecord { run: text.into(), heard, has_log: false };
    put(&*store, &one).unwrap();
    store.change_run(one.id, |records| records.put_run(one.id, &run("{}", None))).unwrap();
    let last = run(r#"{"a": "\u0000"}"#, Some(Moment(9)));
    store.change_run(one.id, |records| records.put_run(one.id, &last)).unwrap();
    store.change_run(other.id, |records| records.put_run(other.id, &last)).unwrap();
    drop(store);
    let store = place.open();
    assert_eq!(store.read(|records| records.run(one.id)).unwrap(), Some(last.clone()));
    let listed = store.read(|records| records.runs()).unwrap();
    assert_eq!(listed.into_iter().collect::<Vec<_>>(), [(one.id, last)], "the other machine has no record");
}

fn the_oldest_logs_go_before_they_fill_the_disk(place: &StorePlace) {
    let store = place.open();
    let text = "x".repeat(1 << 20);
    let count = usize::try_from(MOST_LOGS >> 20).unwrap();
    let ids: Vec<_> = (0..=count).map(|number| machine(&format!("serial={number}")).id).collect();
    for (id, second) in ids.iter().zip(1..) {
        store.change_run(*id, |records| records.put_log(*id, &text, Moment(second))).unwrap();
    }
    let log = |number: usize| store.read(|records| records.log(ids[number])).unwrap();
    assert_eq!((log(0), log(1).as_ref(), log(count).as_ref()), (None, Some(&text), Some(&text)));
}

fn what_belongs_to_a_machine_goes_with_it(place: &StorePlace) {
    let store = place.open();
    let machine = machine("serial=1");
    let run = RunRecord { run: "{}".into(), heard: None, has_log: true };
    put(&*store, &machine).unwrap();
    store
        .change_run(machine.id, |records| {
            records.put_run(machine.id, &run)?;
            records.put_log(machine.id, "a log", NOW)
        })
        .unwrap();
    assert_eq!(store.read(|records| records.run(machine.id)).unwrap(), Some(run));
    store.change(Durability::Full, |records| records.remove(machine.id)).unwrap();
    let left = store.read(|records| Ok((records.run(machine.id)?, records.log(machine.id)?))).unwrap();
    assert_eq!(left, (None, None));
}

fn texts_of_machines_are_stored_whatever_is_in_them(place: &StorePlace) {
    let store = place.open();
    // PostgreSQL has no texts with the character U+0000.
    let asked = machine("serial=a\0b é \u{1f600}&asset='; DROP TABLE machines; --");
    put(&*store, &asked).unwrap();
    assert_eq!(all(&*store), std::slice::from_ref(&asked));
    let found = store.read(|records| records.with_any(&identity_keys::of(&asked.identity))).unwrap();
    assert_eq!(found, [asked]);
}

fn a_check_does_not_wait_for_who_changes(place: &StorePlace) {
    let store = place.open();
    store.check().unwrap();
    store.change(Durability::Full, |_| store.check()).unwrap();
}

fn tokens_are_kept_as_digests_and_found_by_id_and_name(place: &StorePlace) {
    let store = place.open();
    let new = |name: &str, expires| {
        AccessToken::new(name.parse().unwrap(), TokenRole::Enroll, expires, Some(2), NOW).unwrap().0
    };
    let (one, other) = (new("one", Some(Moment(99))), new("an-other", None));
    let add = |token: &AccessToken| store.change(Durability::Full, |records| records.add_access_token(token));
    assert!(add(&one).unwrap() && add(&other).unwrap());
    assert!(!add(&new("one", None)).unwrap(), "there is one of this name");
    drop(store);
    let store = place.open();
    let found = store.read(|records| Ok((records.access_token(&one.id)?, records.access_tokens()?))).unwrap();
    assert_eq!(found, (Some(one.clone()), vec![other.clone(), one.clone()]));
    for left in [1, 0, 0] {
        store.change(Durability::Full, |records| records.use_access_token(&one.id)).unwrap();
        let found = store.read(|records| records.access_token(&one.id)).unwrap().unwrap();
        assert_eq!(found.uses, Some(left));
    }
    let remove = || store.change(Durability::Full, |records| records.remove_access_token(&one.name)).unwrap();
    let used = AccessToken { uses: Some(0), ..one.clone() };
    assert_eq!((remove(), remove()), (Some(used), None));
    let left = store.read(|records| Ok((records.access_token(&one.id)?, records.access_tokens()?))).unwrap();
    assert_eq!(left, (None, vec![other]));
}

/// An entry about a machine, or about a conflict.
fn record(machine: Option<MachineId>) -> AuditRecord {
    let subject = match machine {
        Some(id) => AuditSubject::machine(id, "a \0 name".into()),
        None => AuditSubject::Conflict { id: "x".into(), address: None },
    };
    let (action, result) = (AuditAction::Deny, AuditResult::Done);
    AuditRecord { actor: operator(), action, subject, result }
}

fn the_audit_log_counts_without_gaps_and_is_read_from_the_end(place: &StorePlace) {
    let store = place.open();
    let id = MachineId::random();
    for (second, machine) in (0..5).zip([Some(id), None, Some(id), Some(MachineId::random()), Some(id)]) {
        let add = |records: &mut MachineRecords<'_>| records.add_audit(record(machine), Moment(second));
        let entry = store.change(Durability::Full, add).unwrap();
        assert_eq!((entry.number, entry.time), (second + 1, Moment(second)));
    }
    drop(store);
    let store = place.open();
    let numbers = |before, machine, limit| -> Vec<u64> {
        let query = AuditQuery { before, machine, limit };
        let entries = store.read(|records| records.audit(query)).unwrap();
        entries.into_iter().map(|entry| entry.number).collect()
    };
    assert_eq!(numbers(None, None, 10), [5, 4, 3, 2, 1]);
    assert_eq!(numbers(Some(4), None, 2), [3, 2]);
    assert_eq!(numbers(None, Some(id), 2), [5, 3]);
    assert_eq!(numbers(Some(u64::MAX), Some(MachineId::random()), 10), [] as [u64; 0]);
    let first = store.read(|records| records.audit(AuditQuery { before: Some(2), machine: None, limit: 1 }));
    assert_eq!(first.unwrap()[0].record, record(Some(id)));
}

fn an_action_that_is_not_stored_leaves_no_entry(place: &StorePlace) {
    let store = place.open();
    let failed = store.change(Durability::Full, |records| -> Result<()> {
        records.add_audit(record(None), NOW)?;
        Err(anyhow!("the machine could not be stored"))
    });
    assert!(failed.is_err());
    let all = AuditQuery { before: None, machine: None, limit: 10 };
    assert_eq!(store.read(|records| records.audit(all)).unwrap(), []);
}

/// The machines and their runs.
type Known = BTreeMap<MachineId, (Machine, Option<RunRecord>)>;

fn known(records: &MachineRecords<'_>, ids: Option<&BTreeSet<MachineId>>) -> Result<Known> {
    let (machines, mut runs) = match ids {
        Some(ids) => records.stored_among(ids)?,
        None => (records.stored()?, records.runs()?),
    };
    let one = |machine: StoredMachine| {
        let run = runs.remove(&machine.id);
        Ok((machine.id, (machine.read()?, run)))
    };
    machines.into_iter().map(one).collect()
}

/// Changes something about some machine.
fn change(store: &dyn MachineStore, ids: &mut Vec<MachineId>, numbers: &mut Numbers) {
    let id = (!ids.is_empty()).then(|| ids[numbers.below(ids.len())]);
    let moment = Moment(numbers.below(1000) as u64);
    match (numbers.below(8), id) {
        (0..=2, _) | (_, None) => {
            let new = machine(&format!("serial={}", numbers.below(1 << 30)));
            ids.push(new.id);
            put(store, &new).unwrap();
        }
        (3, Some(id)) => {
            ids.retain(|known| *known != id);
            store.change(Durability::Process, |records| records.remove(id)).unwrap();
        }
        (4, Some(id)) => {
            let change = |records: &mut MachineRecords<'_>| {
                let machine = records.get(id)?.unwrap();
                records.put(&Machine { last_seen: moment, ..machine })
            };
            store.change(Durability::Process, change).unwrap();
        }
        (5, Some(id)) => store.change_run(id, |records| records.remove_log(id)).unwrap(),
        (6, Some(id)) => store.change_run(id, |records| records.put_log(id, "a log", moment)).unwrap(),
        (_, Some(id)) => {
            let run = RunRecord { run: "{}".into(), heard: Some(moment), has_log: false };
            store.change_run(id, |records| records.put_run(id, &run)).unwrap();
        }
    }
}

fn whoever_reads_what_was_changed_knows_all(place: &StorePlace) {
    let stores: Vec<_> = (0..if place.url.is_some() { 3 } else { 1 }).map(|_| place.open()).collect();
    let (mut numbers, mut ids, mut mark, mut all) = (Numbers(7), Vec::new(), None, Known::new());
    let (mut few, mut removals) = (0, 0);
    for _ in 0..200 {
        for _ in 0..numbers.below(4) {
            change(&*stores[numbers.below(stores.len())], &mut ids, &mut numbers);
        }
        let read = |records: &MachineRecords<'_>, changes: RecentChanges| {
            let some = known(records, changes.machines.as_ref())?;
            Ok((changes, some, records.count()?, known(records, None)?))
        };
        let (changes, some, count, expected) = stores[0].read_changes(mark.as_ref(), read).unwrap();
        few += u32::from(some.len() < expected.len());
        match &changes.machines {
            Some(changed) => all.retain(|id, _| !changed.contains(id)),
            None => all.clear(),
        }
        all.extend(some);
        // What was removed by another server is only known by their number.
        if all.len() > count {
            removals += 1;
            all.clone_from(&expected);
        }
        assert_eq!(all, expected);
        mark = Some(changes.mark);
    }
    // Transactions of other tests let more be read from a server that they share.
    let is_shared = place.url.is_some();
    assert!((is_shared || few > 100) && (removals > 0) == is_shared, "{few} {removals}");
}
