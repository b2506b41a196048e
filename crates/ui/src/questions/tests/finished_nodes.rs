//! A finished node on a disk.

use super::*;
use crate::questions::state::COUNTDOWN;
use crate::questions::{ConversationEnd, ShownNode, ShownNodes};

fn present() -> ShownNode {
    ShownNode {
        headline: "/dev/sda holds a finished node, node-1".into(),
        facts: vec![
            ("node", "node-1".into()),
            ("role", "management".into()),
            ("cluster", "192.0.2.10".into()),
            ("disk", "/dev/sda: 447.1 GiB, model MICRON 5300, serial 20302A7F61C4".into()),
            ("since", "2026-11-22 10:00:00 UTC".into()),
            ("medium", "NQRust 1.0".into()),
            ("", "release 0123456789abcdef".into()),
            ("configured by", "embedded configuration (config/install.yaml)".into()),
            ("", "fingerprint bq3K/x1.".into()),
        ],
    }
}

/// The conversation of an automatic install that has left a node as it is.
pub(super) fn left() -> Conversation {
    let answers = "{install: {automatic: true, device: /dev/sda, mode: install}, os: {hostname: node-1, password: correct horse}}";
    let found = combine(&[Document::yaml(SourceKind::Volume, "cidata", answers)]).unwrap();
    let left =
        ShownNodes { nodes: vec![present()], why: "Nothing is written: install.reinstall is false.".into() };
    Conversation::new(ConversationFacts { left: Some(left), ..facts() }, Answers::on(&found))
}

fn tick(state: &mut Conversation, seconds: u64) -> Vec<ConversationEffect> {
    state.step(ConversationInput::Tick, Duration::from_secs(seconds))
}

#[test]
fn the_node_starts_when_nobody_presses_a_key_for_half_a_minute() {
    let mut state = left();
    assert!(picture(&mut state, Size::new(80, 24)).contains("starts from its disk in 30 seconds"));
    assert!(tick(&mut state, 1).is_empty() && tick(&mut state, 29).is_empty());
    assert!(picture(&mut state, Size::new(80, 24)).contains("starts from its disk in 1 second."));
    assert_eq!(tick(&mut state, COUNTDOWN.as_secs()), [ConversationEffect::StartNode]);
    // There is only one attempt.
    assert!(tick(&mut state, COUNTDOWN.as_secs() + 5).is_empty());
}

#[test]
fn any_key_stops_the_countdown_and_does_nothing_else() {
    for key in [Key::Enter, Key::Char('x'), Key::Function(10), Key::Escape, Key::Function(9)] {
        let mut state = left();
        assert!(press(&mut state, &[key]).is_empty(), "{key:?}");
        assert!(tick(&mut state, 100).is_empty() && tick(&mut state, 690).is_empty(), "{key:?}");
        let shown = picture(&mut state, Size::new(80, 24));
        assert!(shown.contains("Start the node from its disk") && !shown.contains("seconds"), "{shown}");
    }
}

#[test]
fn a_key_that_nobody_follows_up_does_not_keep_the_node_down() {
    let mut state = left();
    press(&mut state, &[Key::Char('~')]);
    assert!(tick(&mut state, 10).is_empty() && tick(&mut state, 605).is_empty());
    press(&mut state, &[Key::Down]);
    assert!(tick(&mut state, 610).is_empty() && tick(&mut state, 1209).is_empty());
    assert!(tick(&mut state, 1220).is_empty());
    assert!(picture(&mut state, Size::new(80, 24)).contains("starts from its disk in 20 seconds"));
    assert_eq!(tick(&mut state, 1240), [ConversationEffect::StartNode]);
}

#[test]
fn a_node_is_installed_over_only_after_the_plan_and_the_word_yes() {
    let mut state = left();
    press(&mut state, &[Key::Enter]);
    let effects = press(&mut state, &[Key::Down, Key::Down, Key::Enter]);
    assert!(matches!(effects[..], [ConversationEffect::Plan(_)]), "{effects:?}");
    assert!(press(&mut state, &[Key::Enter]).is_empty());
    type_text(&mut state, "no");
    assert!(press(&mut state, &[Key::Enter]).is_empty());
    press(&mut state, &[Key::Control('u')]);
    type_text(&mut state, "yes");
    let effects = press(&mut state, &[Key::Enter]);
    assert!(matches!(effects[..], [ConversationEffect::Install(_)]), "{effects:?}");
}

#[test]
fn the_other_choices_show_the_disks_and_power_off() {
    let mut state = left();
    press(&mut state, &[Key::Enter, Key::Down, Key::Enter]);
    assert!(picture(&mut state, Size::new(80, 24)).contains("/dev/sda"));
    press(&mut state, &[Key::Escape]);
    assert_eq!(
        press(&mut state, &[Key::End, Key::Enter]),
        [ConversationEffect::End(ConversationEnd::PowerOff)]
    );
}

#[test]
fn a_node_that_does_not_start_leaves_the_choices_and_says_why() {
    let mut state = left();
    assert_eq!(tick(&mut state, 31), [ConversationEffect::StartNode]);
    let failure =
        base::failure::Failure::new(base::failure::Class::Hardware, "the node cannot be started from here")
            .hint("Take the medium out.");
    let trouble = crate::questions::ShownTrouble::of(&failure.into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::NotEnded(trouble)), Duration::from_secs(32));
    assert!(tick(&mut state, 3600).is_empty(), "it is not tried for ever");
    let shown = picture(&mut state, Size::new(80, 24));
    assert!(shown.contains("cannot be started from here") && shown.contains("Install over it"), "{shown}");
}

#[test]
fn the_questions_end_at_the_node_that_is_there_and_by_default_it_stays() {
    let reviewed = |state: &mut Conversation| {
        let effects = state.step(ConversationInput::Key(Key::Function(8)), Duration::ZERO);
        for effect in effects {
            if let Some(EffectOutcome::Planned(Ok(review))) = works(&effect) {
                let review = Review { present: vec![present()], ..review };
                state.step(ConversationInput::Ended(EffectOutcome::Planned(Ok(review))), Duration::ZERO);
            }
        }
    };
    let mut state = begun(
        "{install: {device: /dev/sda, mode: install}, os: {hostname: node-1, password: correct horse}}",
    );
    for _ in 0..12 {
        if matches!(state.place, ConversationPlace::FinishedNodes(_)) {
            break;
        }
        reviewed(&mut state);
        for outcome in
            [EffectOutcome::Tried(crate::questions::screens::QuestionScreen::Network, Ok("fine".into()))]
        {
            if state.busy.is_some() {
                state.step(ConversationInput::Ended(outcome), Duration::ZERO);
            }
        }
    }
    let shown = picture(&mut state, Size::new(80, 24));
    assert!(shown.contains("/dev/sda holds a finished node, node-1"), "{shown}");
    let mut stays = state.clone();
    assert_eq!(press(&mut stays, &[Key::Enter]), [ConversationEffect::StartNode]);
    assert!(press(&mut state, &[Key::Down, Key::Down, Key::Enter]).is_empty());
    assert!(
        matches!(&state.place, ConversationPlace::Review(review) if review.plan.is_some()),
        "{:?}",
        state.place
    );
}
