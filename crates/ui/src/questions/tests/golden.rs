//! Every screen as text, at the size of a serial console and, where it says more there, at a larger one.
//! `UPDATE_GOLDEN=1` writes the files anew.

use super::*;
use crate::questions::ShownTrouble;
use crate::toolkit::testing;
use base::failure::{Class, Failure};
use base::progress::{Event, StepState as Stage};

fn compare(name: &str, state: &mut Conversation) {
    let forms = [("80x24", Size::new(80, 24)), ("120x40", Size::new(120, 40))];
    let pictures = forms.map(|(form, size)| (form, picture(state, size)));
    testing::compare("questions/tests/screens", name, &pictures);
}

fn event(step: &str, state: Stage, bytes: Option<(u64, u64)>, message: &str) -> ConversationInput {
    ConversationInput::Event(Event {
        part: None,
        v: 1,
        seq: 1,
        time: String::new(),
        step: step.into(),
        state,
        bytes: bytes.map(|(bytes, _)| bytes),
        total: bytes.map(|(_, total)| total),
        message: message.into(),
        details: None,
        result: None,
        exit_code: None,
    })
}

#[test]
fn disks_that_are_in_use_or_cannot_be_read_are_drawn_as_recorded() {
    let mut facts = facts();
    let root = machine::inventory::Holder {
        on: "/dev/sda1".into(),
        kind: machine::inventory::HolderKind::Mount,
        name: Some("/".into()),
        device: None,
    };
    facts.inventory.disks[0].holders.push(root);
    facts.inventory.disks[1].unread = Some("/dev/sdb: Input/output error (os error 5)".into());
    let found = combine(&[Document::yaml(SourceKind::Volume, "cidata", "os: {}")]).unwrap();
    let mut state = Conversation::new(facts, Answers::on(&found));
    press(&mut state, &[Key::Function(8)]);
    compare("disks-trouble", &mut state);
}

#[test]
fn every_screen_of_a_new_cluster_is_drawn_as_recorded() {
    const NEXT: Key = Key::Function(8);
    let mut state = begun("os: {ntp_servers: [ntp.example.org]}");
    compare("welcome", &mut state);
    press(&mut state, &[Key::Function(2)]);
    compare("keyboard", &mut state);
    press(&mut state, &[Key::Escape, NEXT]);
    compare("disks", &mut state);
    press(&mut state, &[Key::Enter, NEXT]);
    compare("network", &mut state);
    press(&mut state, &[Key::Tab, Key::Down, Key::Enter]);
    compare("network-fixed", &mut state);
    press(&mut state, &[Key::BackTab, Key::Up, Key::Enter, NEXT]);
    compare("names", &mut state);
    type_text(&mut state, "Node 1");
    press(&mut state, &[NEXT]);
    compare("names-mistake", &mut state);
    press(&mut state, &[Key::Control('u'), NEXT]);
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "192.0.2.10");
    press(&mut state, &[Key::Function(6)]);
    compare("token", &mut state);
    press(&mut state, &[Key::Enter]);
    compare("cluster", &mut state);
    press(&mut state, &[NEXT]);
    type_text(&mut state, "correct horse");
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "correct horse");
    compare("access", &mut state);
    press(&mut state, &[NEXT]);
    compare("plan", &mut state);
    unfit(&mut state, true);
    compare("unfit", &mut state);
    press(&mut state, &[Key::Down, Key::Enter]);
    press(&mut state, &[Key::Enter]);
    compare("confirm", &mut state);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    let failed = "Waiting for the cluster: 192.0.2.10 refuses the connection. dc1-0, which creates the cluster, has failed in stage \
                  writing (disk-io): installing, step image: writing to /dev/sda: Input/output error. Correct this and start dc1-0 \
                  again; this install then goes on by itself.";
    let mut waiting = state.clone();
    waiting.step(event("cluster-wait", Stage::Started, None, failed), Duration::from_secs(0));
    compare("waiting", &mut waiting);
    waiting.step(event("cluster-wait", Stage::Done, None, failed), Duration::from_secs(0));
    waiting.step(event("wipe", Stage::Started, None, "Erasing the disk"), Duration::from_secs(1));
    compare("waited", &mut waiting);
    for (at, input) in [
        (1, event("wipe", Stage::Started, None, "Erasing the disk")),
        (2, event("wipe", Stage::Done, None, "Erasing the disk")),
        (2, event("image", Stage::Started, Some((0, 4 << 30)), "Writing the OS image")),
        (12, event("image", Stage::Progress, Some((1 << 30, 4 << 30)), "Writing the OS image")),
    ] {
        state.step(input, Duration::from_secs(at));
    }
    compare("progress", &mut state);
    press(&mut state, &[Key::Function(7)]);
    compare("log", &mut state);
    let failure = Failure::new(Class::DiskIo, "installing, step image")
        .because(anyhow::anyhow!("writing to /dev/sda: Input/output error (os error 5)"))
        .hint("/dev/sda is not bootable now; starting the install again starts over.");
    let trouble = ShownTrouble::of(&failure.into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Err(trouble))), Duration::from_secs(20));
    compare("failed", &mut state);
    let last = |state: &mut Conversation, choice: usize| {
        press(state, &[Key::Home]);
        (0..choice).for_each(|_| drop(press(state, &[Key::Down])));
        press(state, &[Key::Enter]);
    };
    last(&mut state, 3);
    compare("save-logs", &mut state);
    press(&mut state, &[Key::Down, Key::Enter]);
    type_text(&mut state, "https://logs.example.org/in/");
    compare("save-logs-url", &mut state);
    press(&mut state, &[Key::Escape]);
    last(&mut state, 4);
    compare("short-report", &mut state);
    press(&mut state, &[Key::Escape]);
    last(&mut state, 5);
    compare("help-access", &mut state);
    press(&mut state, &[Key::Enter]);
    compare("help-access-open", &mut state);
    press(&mut state, &[Key::Escape]);
    state.step(
        ConversationInput::Ended(EffectOutcome::Installed(Ok(Some("/run/answers.yaml".into())))),
        Duration::from_secs(30),
    );
    compare("complete", &mut state);
    press(&mut state, &[Key::Function(6)]);
    compare("save-configuration", &mut state);
    press(&mut state, &[Key::Escape, Key::Function(4)]);
    compare("configuration", &mut state);
    press(&mut state, &[Key::Escape]);
    press(&mut state, &[Key::Function(10)]);
    compare("leave", &mut state);
}

#[test]
fn the_screens_of_a_machine_that_joins_are_drawn_as_recorded() {
    let mut state = begun("{install: {mode: join, role: worker}, server_url: 'https://192.0.2.10'}");
    compare("welcome-join", &mut state);
    press(&mut state, &[Key::Function(8), Key::Enter, Key::Function(8), Key::Function(8), Key::Function(8)]);
    compare("cluster-join", &mut state);
    press(&mut state, &[Key::Escape, Key::Escape, Key::Escape, Key::Escape, Key::Function(3)]);
    compare("load", &mut state);
    assert!(matches!(state.place, ConversationPlace::Load));
}

#[test]
fn the_screens_of_a_finished_node_are_drawn_as_recorded() {
    let mut state = super::finished_nodes::left();
    state.step(ConversationInput::Tick, Duration::from_secs(7));
    compare("finished", &mut state);
    press(&mut state, &[Key::Enter]);
    compare("finished-choices", &mut state);
    press(&mut state, &[Key::Down, Key::Enter]);
    compare("finished-disks", &mut state);
}

#[test]
fn a_console_that_follows_says_who_leads() {
    let state = begun("");
    let seen = shown(Size::new(80, 24), |frame| draw::follower(&state, "/dev/tty1", frame, theme()));
    assert!(
        seen.starts_with(" Install: another console leads") && seen.contains("on the console /dev/tty1."),
        "{seen}"
    );
    assert!(seen.contains("The questions are being answered: what this machine becomes."), "{seen}");
}
