//! The disk of the system, and that of the data of virtual machines.

use serde_json::Value;

use super::super::ConversationFacts;
use crate::answers::Answers;
use crate::fields::{choice, remark, take_word};
use crate::toolkit::form::{Choice, Field};
use install::plan;
use machine::inventory::{Disk, SignatureKind as Content};
use model::config::Role;

/// Keys whose value is a disk, and the value for no disk.
const DEVICE: &str = "install.device";
const MIRROR: &str = "install.mirror";
const DATA: &str = "install.data_disk";

pub(super) fn fields(answers: &Answers, facts: &ConversationFacts) -> Vec<Field> {
    let config = answers.understood();
    let mut fields =
        vec![disk(answers, facts, DEVICE, "Disk for the system; everything on it is lost", None)];
    if usable(facts).len() > 1 {
        let none = "No mirror";
        fields.push(disk(answers, facts, MIRROR, "Second disk that mirrors it (RAID 1)", Some(none)));
        if config.install.own_role() != Role::Witness {
            let none = "On the disk for the system";
            fields.push(disk(answers, facts, DATA, "Disk for the data of virtual machines", Some(none)));
        }
    }
    let sizes = vec![
        Choice::new("Production: the sizes that a node needs, 250 GiB and more"),
        Choice::new("Trial: small partitions, for tests"),
    ];
    fields.push(choice(answers, "install.profile", "Sizes of partitions", sizes));
    fields
}

fn usable(facts: &ConversationFacts) -> Vec<&Disk> {
    facts.inventory.disks.iter().filter(|disk| barred(disk).is_none()).collect()
}

/// The disks that are shown for a key: for the system every one, so that the user sees why one cannot be used.
fn offered<'f>(facts: &'f ConversationFacts, id: &str) -> Vec<&'f Disk> {
    if id == DEVICE { facts.inventory.disks.iter().collect() } else { usable(facts) }
}

/// Why a disk cannot be used.
fn barred(disk: &Disk) -> Option<String> {
    if disk.boot_medium {
        Some("it holds the medium that this system runs from".into())
    } else if disk.optical {
        Some("it is an optical drive".into())
    } else if disk.read_only {
        Some("it is read-only".into())
    } else {
        plan::blocking(disk).map(|holder| format!("it is in use: {holder}"))
    }
}

fn disk(answers: &Answers, facts: &ConversationFacts, id: &str, label: &str, none: Option<&str>) -> Field {
    let disks = offered(facts, id);
    let mut options: Vec<_> = none.map(Choice::new).into_iter().collect();
    let first = options.len();
    options.extend(disks.iter().map(|disk| shown(disk)));
    let wanted = answers.text(id);
    let named = disks.iter().position(|disk| disk.is_at(std::path::Path::new(&wanted)));
    // A selection by clauses is not one of the options; it stays until another one is taken.
    let by_clauses = answers.value(id).is_some_and(|value| value.is_object());
    let chosen = match named {
        Some(at) => Some(first + at),
        None if wanted.is_empty() && none.is_some() => Some(0),
        None => None,
    };
    let remark = if by_clauses { Some(format!("by clauses: {wanted}")) } else { remark(answers, id, "") };
    Field::choice(id, label, options, chosen).remark(remark)
}

/// Path, size, model, serial number; its content; why it cannot be used.
fn shown(disk: &Disk) -> Choice {
    let mut option = Choice::new(disk.identify());
    option.barred = barred(disk);
    if option.barred.is_none() {
        option.details.push(content(disk));
    }
    option
}

/// The content of a disk and what uses it, in words. Only a disk that was read to its end is called empty.
fn content(disk: &Disk) -> String {
    let parts: Vec<_> = disk
        .partitions
        .iter()
        .map(|part| {
            let kinds: Vec<_> = part.signatures.iter().map(ToString::to_string).collect();
            let label = part.label.clone().filter(|label| !label.is_empty());
            let what = label.into_iter().chain(kinds).collect::<Vec<_>>().join(" ");
            if what.is_empty() { part.size.to_string() } else { format!("{} {what}", part.size) }
        })
        .collect();
    let bare = !disk.signatures.iter().any(|found| found.kind != Content::Gpt && found.kind.holds_content());
    let used = disk.in_use().map(|used| format!("It is in use: {used}"));
    let unread = disk.unread.as_ref().map(|why| format!("Its content could not be read: {why}"));
    let mut content: Vec<_> = used.into_iter().chain(unread).collect();
    match parts.len() {
        0 if bare && content.is_empty() => return "It is empty.".to_owned(),
        0 if bare => {}
        0 => content.push("It holds data.".to_owned()),
        1 => content.push(format!("It holds a partition: {}", parts[0])),
        count => content.push(format!("It holds {count} partitions: {}", parts.join(", "))),
    }
    content.join(". ")
}

pub(super) fn take(field: &Field, answers: &mut Answers, facts: &ConversationFacts) {
    if ![DEVICE, MIRROR, DATA].contains(&field.id.as_str()) {
        return take_word(answers, &field.id, field.chosen());
    }
    let first = usize::from(field.id != DEVICE);
    let Some(chosen) = field.chosen() else { return };
    let disk = chosen.checked_sub(first).and_then(|at| offered(facts, &field.id).get(at).copied());
    let wanted = answers.text(&field.id);
    if disk.is_some_and(|disk| disk.is_at(std::path::Path::new(&wanted))) {
        return;
    }
    answers.give(&field.id, disk.map(|disk| Value::from(lasting(facts, disk))));
}

/// A path that selects this disk whatever else is plugged in.
fn lasting(facts: &ConversationFacts, disk: &Disk) -> String {
    plan::own_name(&facts.inventory, disk).display().to_string()
}

/// Takes the only possible disk. One that could not be read may hold anything, and is never the proposal.
pub(super) fn suggest(answers: &mut Answers, facts: &ConversationFacts) {
    let disks = usable(facts);
    let mut usable = disks.iter().filter(|disk| !disk.removable && disk.unread.is_none());
    if let (None, Some(disk), None) = (answers.value(DEVICE), usable.next(), usable.next()) {
        answers.give(DEVICE, Some(Value::from(lasting(facts, disk))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::tests::facts;
    use machine::inventory::{Holder, HolderKind};
    use model::config::sources::CombinedConfig;

    fn root_on(node: &str) -> Holder {
        Holder { on: node.into(), kind: HolderKind::Mount, name: Some("/".into()), device: None }
    }

    #[test]
    fn an_unreadable_disk_is_neither_called_empty_nor_proposed() {
        let mut facts = facts();
        facts.inventory.disks.retain(|disk| disk.path.ends_with("sdb"));
        let proposed = |facts: &ConversationFacts| {
            let mut answers = Answers::on(&CombinedConfig::default());
            suggest(&mut answers, facts);
            answers.value(DEVICE).is_some()
        };
        assert!(content(&facts.inventory.disks[0]).contains("It is empty.") && proposed(&facts));
        facts.inventory.disks[0].unread = Some("/dev/sdb: Input/output error (os error 5)".into());
        let told = "Its content could not be read: /dev/sdb: Input/output error (os error 5)";
        assert_eq!(content(&facts.inventory.disks[0]), told);
        assert!(!proposed(&facts) && barred(&facts.inventory.disks[0]).is_none());
    }

    #[test]
    fn a_disk_in_use_is_not_called_empty_and_cannot_be_taken() {
        let mut disk = facts().inventory.disks.remove(1);
        disk.holders = vec![root_on("/dev/sdb")];
        assert_eq!(barred(&disk).unwrap(), "it is in use: /dev/sdb is the root of the running system");
        assert!(!content(&disk).contains("empty"));
        // A disk with holders that an install takes down is shown with them and may be taken.
        disk.holders = vec![Holder { kind: HolderKind::Swap, name: None, ..root_on("/dev/sdb") }];
        assert_eq!(barred(&disk), None);
        assert_eq!(content(&disk), "It is in use: /dev/sdb is swap space");
    }
}
