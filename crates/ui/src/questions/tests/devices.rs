//! Disks and network cards that come and go while somebody answers.

use super::flow::to_plan;
use super::*;
use crate::questions::{MachineNews, ShownTrouble};
use crate::toolkit::form::FieldKind;
use crate::toolkit::page::Tone;
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::inventory::Inventory;
use testing::disks::disk;

/// The machine changes, and the conversation looks again.
fn change(state: &mut Conversation, change: impl Fn(&mut Inventory)) -> Vec<ConversationEffect> {
    let effects = state.step(ConversationInput::News(MachineNews::DevicesChanged), Duration::ZERO);
    assert_eq!(effects, [ConversationEffect::FollowDevices]);
    let mut inventory = state.facts.inventory.clone();
    change(&mut inventory);
    state.step(ConversationInput::Ended(EffectOutcome::Devices(Ok(inventory))), Duration::ZERO)
}

/// A disk that the kernel found, which sorts before all others.
fn late(inventory: &mut Inventory) {
    inventory.disks.insert(0, disk("nvme0n1", ByteSize::gib(500)));
}

/// The option at which the cursor of the field in focus is, and the one that is taken.
fn pointed_at(state: &Conversation) -> (String, Option<String>) {
    let Some(FieldKind::Choice { options, cursor, chosen, .. }) =
        state.form.focused().map(|field| &field.kind)
    else {
        panic!("no choice is in focus")
    };
    (options[*cursor].text.clone(), chosen.map(|at| options[at].text.clone()))
}

#[test]
fn a_disk_that_appears_is_listed_and_the_cursor_stays_at_the_disk_where_it_was() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::BackTab, Key::BackTab, Key::Down]);
    let (pointed, chosen) = pointed_at(&state);
    assert!(pointed.starts_with("/dev/sdb") && chosen.clone().unwrap().starts_with("/dev/sda"), "{pointed}");
    change(&mut state, late);
    assert_eq!(pointed_at(&state), (pointed.clone(), chosen));
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("( ) /dev/nvme0n1: 500 GiB") && seen.contains("New: disk /dev/nvme0n1"), "{seen}");
    // Enter takes what was pointed at.
    press(&mut state, &[Key::Enter]);
    assert!(state.answers.text("install.device").contains("BTYF0001"), "{pointed}");
}

#[test]
fn another_disk_in_the_place_of_one_that_is_gone_is_not_taken() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::BackTab, Key::BackTab, Key::Down]);
    change(&mut state, |inventory| {
        inventory.disks.remove(1);
        late(inventory);
    });
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("New: disk /dev/nvme0n1") && seen.contains("Gone: disk /dev/sdb"), "{seen}");
    press(&mut state, &[Key::Function(8)]);
    assert!(state.answers.text("install.device").contains("S45PNA0M1"), "the one that was taken before");
}

#[test]
fn what_is_being_typed_stays_and_is_not_judged_when_a_card_appears() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::Function(8), Key::Tab, Key::Down, Key::Enter]);
    type_text(&mut state, "192.0.2.");
    let focus = state.form.focused().unwrap().id.clone();
    change(&mut state, |inventory| {
        let mut nic = inventory.nics[0].clone();
        (nic.name, nic.mac) = ("ens9".into(), "52:54:00:00:00:09".into());
        inventory.nics.push(nic);
    });
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("[ ] ens9  52:54:00:00:00:09") && seen.contains("192.0.2."), "{seen}");
    assert!(!seen.contains("! ") && seen.contains("New: network card ens9"), "{seen}");
    type_text(&mut state, "21");
    assert_eq!(state.form.focused().unwrap().id, focus);
    assert!(picture(&mut state, SIZE).contains("192.0.2.21"));
}

#[test]
fn a_repeated_password_and_a_mistake_that_is_told_are_left_alone() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::Function(8), Key::Function(8), Key::Function(8)]);
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "192.0.2.10");
    press(&mut state, &[Key::Function(6), Key::Function(8)]);
    type_text(&mut state, "correct horse");
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "correct");
    state.message = Some((crate::toolkit::page::Tone::Error, "Correct what is marked.".into()));
    change(&mut state, late);
    assert!(picture(&mut state, SIZE).contains("Correct what is marked."));
    let typed = |id: &str| state.form.field(id).and_then(|field| field.typed());
    assert_eq!(typed("repetition").as_deref(), Some("correct"));
}

#[test]
fn a_plan_that_lacked_a_disk_is_made_again_when_one_appears() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Escape]);
    state.step(ConversationInput::Key(Key::Function(8)), Duration::ZERO);
    let trouble = || ShownTrouble::of(&Failure::new(Class::Hardware, "there is no disk").into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::Planned(Err(trouble()))), Duration::ZERO);
    assert!(picture(&mut state, SIZE).contains("there is no disk"));
    let effects = change(&mut state, late);
    assert!(matches!(effects[..], [ConversationEffect::Plan(_)]), "{effects:?}");
    // A plan that somebody reads stays as it is.
    let planned = works(&effects[0]).unwrap();
    state.step(ConversationInput::Ended(planned), Duration::ZERO);
    assert!(change(&mut state, late).is_empty());
    assert!(picture(&mut state, SIZE).contains("EVERYTHING on /dev/sda is erased."));
}

#[test]
fn a_failure_tells_what_appears_and_looks_again_when_it_is_asked_to() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    // While disks are written, changes are the install's own.
    assert!(state.step(ConversationInput::News(MachineNews::DevicesChanged), Duration::ZERO).is_empty());
    let trouble = ShownTrouble::of(&Failure::new(Class::Hardware, "there is no /dev/nvme0n1").into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Err(trouble))), Duration::ZERO);
    press(&mut state, &[Key::Down]);
    assert!(change(&mut state, late).is_empty());
    let seen = picture(&mut state, SIZE);
    assert!(seen.starts_with(" Install: it has failed") && seen.contains("New: disk /dev/nvme0n1"), "{seen}");
    let effects = state.step(ConversationInput::Key(Key::Function(5)), Duration::ZERO);
    assert_eq!(effects, [ConversationEffect::LookAgain]);
    let there = state.facts.inventory.clone();
    state.step(ConversationInput::Ended(EffectOutcome::Inventory(Ok(there))), Duration::ZERO);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("Disks and network cards have been read again."), "{seen}");
    let effects = press(&mut state, &[Key::Up, Key::Enter]);
    assert!(matches!(effects[..], [ConversationEffect::Install(_)]), "{effects:?}");
}

#[test]
fn a_look_that_nobody_asked_for_holds_nothing_up_and_says_nothing_without_news() {
    let mut state = begun("");
    let before = picture(&mut state, SIZE);
    change(&mut state, |_| {});
    let trouble = ShownTrouble::of(&Failure::new(Class::Unexpected, "reading /sys").into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::Devices(Err(trouble))), Duration::ZERO);
    assert_eq!(picture(&mut state, SIZE), before);
    // An effect that somebody waits for is still waited for.
    state.step(ConversationInput::Key(Key::Function(5)), Duration::ZERO);
    change(&mut state, late);
    assert!(state.busy.is_some());
}

#[test]
fn a_damaged_image_of_the_live_system_is_told_on_every_page_until_the_end() {
    let damage = "A part of the OS image on this medium is damaged and cannot be read.";
    let mut state = begun("");
    let effects =
        state.step(ConversationInput::News(MachineNews::ImageDamaged(damage.into())), Duration::ZERO);
    assert!(effects.is_empty());
    let first = picture(&mut state, SIZE);
    assert!(first.contains("DAMAGED  ") && first.contains(damage), "{first}");
    // A message about an answer comes first; the head of the page keeps the word.
    to_plan(&mut state);
    state.message = Some((Tone::Error, "an answer is wrong".into()));
    let later = picture(&mut state, SIZE);
    assert!(later.contains("DAMAGED  ") && later.contains("an answer is wrong"), "{later}");
    assert!(!later.contains(damage), "{later}");
    let other = shown(SIZE, |frame| draw::follower(&state, "/dev/tty1", frame, theme()));
    assert!(other.contains("DAMAGED") && other.contains(damage), "{other}");
    // Where the name of the product has no room beside the title, the word has.
    state.facts.product = "A product with a name that is long enough to fill a line, 0.2.0".into();
    let full = picture(&mut state, SIZE);
    assert!(full.contains("DAMAGED") && !full.contains(&state.facts.product), "{full}");
}
