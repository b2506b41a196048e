//! The choices at the end: saving, showing, help access.

use super::flow::to_plan;
use super::*;
use crate::questions::{ConversationEnd, ShownTrouble};
use base::failure::{Class, Failure};
use reporting::archive::UploadMethod;

/// An install that has ended like this.
fn ended(outcome: Result<Option<String>, ShownTrouble>) -> Conversation {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    state.step(ConversationInput::Ended(EffectOutcome::Installed(outcome)), Duration::ZERO);
    state
}

fn trouble() -> ShownTrouble {
    ShownTrouble::of(&Failure::new(Class::DiskIo, "writing to /dev/sda: input/output error").into(), None)
}

fn failed() -> Conversation {
    ended(Err(trouble()))
}

/// Takes one of the choices of a failure.
fn choose(state: &mut Conversation, text: &str) -> Vec<ConversationEffect> {
    press(state, &[Key::Home]);
    for _ in 0..10 {
        let Some(field) = state.form.focused() else { panic!("there is no choice") };
        let crate::toolkit::form::FieldKind::Choice { options, cursor, .. } = &field.kind else {
            panic!("{field:?}")
        };
        if options[*cursor].text.starts_with(text) {
            return press(state, &[Key::Enter]);
        }
        press(state, &[Key::Down]);
    }
    panic!("there is no {text}:\n{}", picture(state, SIZE));
}

#[test]
fn the_logs_of_a_failure_go_to_a_stick_and_the_failure_stays() {
    let mut state = failed();
    assert_eq!(choose(&mut state, "Save the logs"), [ConversationEffect::Survey]);
    assert_eq!(title(&mut state), "Install: save the logs");
    let seen = picture(&mut state, SIZE);
    assert!(
        seen.contains("(*) /dev/sdc1: 16 GiB, FAT \"LOGS\"") && seen.contains("serial 4C530001"),
        "{seen}"
    );
    assert!(seen.contains("/dev/sdd1: it has NTFS"), "{seen}");
    let effects = press(&mut state, &[Key::Enter]);
    let volume = sticks().volumes.remove(0);
    assert_eq!(effects, [ConversationEffect::SaveLogs(Box::new(Destination::Volume(volume)))]);
    let seen = picture(&mut state, SIZE);
    assert!(
        seen.starts_with(" Install: it has failed") && seen.contains("report.tar.gz is on /dev/sdc1"),
        "{seen}"
    );
}

#[test]
fn the_logs_go_to_a_url_by_put_or_post_and_what_is_no_url_is_told() {
    let mut state = failed();
    choose(&mut state, "Save the logs");
    assert!(press(&mut state, &[Key::Down, Key::Enter]).is_empty());
    type_text(&mut state, "logs.example.org");
    assert!(press(&mut state, &[Key::Enter]).is_empty());
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("! expected a URL that begins with http:// or https://"), "{seen}");
    press(&mut state, &[Key::Control('u')]);
    type_text(&mut state, "https://logs.example.org/in/");
    // Up to the method, and from there on by Enter.
    press(&mut state, &[Key::BackTab, Key::Down, Key::Char(' ')]);
    let effects = press(&mut state, &[Key::Enter, Key::Enter]);
    let url = "https://logs.example.org/in/".parse().unwrap();
    assert_eq!(effects, [ConversationEffect::SaveLogs(Box::new(Destination::Url(url, UploadMethod::Post)))]);
    assert!(picture(&mut state, SIZE).contains("The server has accepted report.tar.gz."));
}

#[test]
fn a_stick_that_does_not_take_it_is_told_and_another_one_can_be_plugged_in() {
    let mut state = failed();
    choose(&mut state, "Save the logs");
    let effects = state.step(ConversationInput::Key(Key::Enter), Duration::ZERO);
    assert!(matches!(effects[..], [ConversationEffect::SaveLogs(_)]));
    let full = Failure::new(Class::DiskIo, "the volume has 1 KiB of room").hint("Take another stick.");
    state.step(
        ConversationInput::Ended(EffectOutcome::Saved(Err(ShownTrouble::of(&full.into(), None)))),
        Duration::ZERO,
    );
    let seen = picture(&mut state, SIZE);
    assert!(
        seen.contains("! the volume has 1 KiB of room") && seen.contains("! next: Take another stick."),
        "{seen}"
    );
    state.step(ConversationInput::Key(Key::Function(5)), Duration::ZERO);
    state.step(ConversationInput::Ended(EffectOutcome::Surveyed(Ok(StickSurvey::default()))), Duration::ZERO);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("there is no stick with FAT") && !seen.contains("1 KiB"), "{seen}");
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: it has failed");
}

#[test]
fn what_is_typed_for_saving_is_there_again_after_thinking_of_leaving() {
    let mut state = failed();
    choose(&mut state, "Save the logs");
    press(&mut state, &[Key::Down, Key::Enter]);
    type_text(&mut state, "https://logs.example.org/");
    press(&mut state, &[Key::Function(10), Key::Escape]);
    assert!(picture(&mut state, SIZE).contains("https://logs.example.org/"));
    press(&mut state, &[Key::Function(9), Key::Escape]);
    assert!(picture(&mut state, SIZE).contains("https://logs.example.org/"));
}

#[test]
fn a_short_report_is_a_code_where_there_is_room_and_words_where_there_is_none() {
    let mut state = failed();
    choose(&mut state, "Show a short report");
    assert_eq!(title(&mut state), "Install: short report");
    let small = picture(&mut state, SIZE);
    assert!(small.contains("too small for a useful QR code") && small.contains("/dev/sda exit 6"), "{small}");
    let large = picture(&mut state, Size::new(120, 40));
    assert!(large.contains("For support, as much") && large.contains("/dev/sda exit 6"), "{large}");
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: it has failed");
}

#[test]
fn the_answers_go_to_a_stick_with_a_warning_and_never_to_a_server() {
    let mut state = ended(Ok(None));
    assert_eq!(press(&mut state, &[Key::Function(6)]), [ConversationEffect::Survey]);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("token in clear text") && !seen.contains("A server"), "{seen}");
    let effects = press(&mut state, &[Key::Enter]);
    let [ConversationEffect::SaveConfiguration(config, _)] = &effects[..] else { panic!("{effects:?}") };
    assert!(config.token.is_some());
    let seen = picture(&mut state, SIZE);
    assert!(seen.starts_with(" Install: complete") && seen.contains("nqrust-config.yaml is on"), "{seen}");
    assert_eq!(press(&mut state, &[Key::Enter]), [ConversationEffect::End(ConversationEnd::Restart)]);
}

#[test]
fn the_configuration_is_shown_only_when_somebody_asks() {
    let mut state = ended(Ok(None));
    assert!(!picture(&mut state, SIZE).contains("MARK"));
    assert!(matches!(press(&mut state, &[Key::Function(4)])[..], [ConversationEffect::Show(_)]));
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("MARK-token") && seen.contains("This contains secrets"), "{seen}");
    assert!(!format!("{state:?}").contains("MARK"));
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: complete");
}

#[test]
fn somebody_is_let_in_from_any_screen_and_what_was_typed_is_kept() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::Function(8), Key::Function(8)]);
    type_text(&mut state, "node-7");
    assert!(press(&mut state, &[Key::Function(9)]).is_empty());
    assert_eq!(title(&mut state), "Install: help access");
    assert_eq!(press(&mut state, &[Key::Enter]), [ConversationEffect::OpenAccess]);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("kfmt.nbpq.rsuv.wxah") && seen.contains("192.0.2.21"), "{seen}");
    assert_eq!(choose(&mut state, "Open a shell"), [ConversationEffect::Shell]);
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: names and servers");
    assert_eq!(state.answers.text("os.hostname"), "node-7");
    press(&mut state, &[Key::Function(9)]);
    assert_eq!(choose(&mut state, "Close help access"), [ConversationEffect::CloseAccess]);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("Help access is closed.") && !seen.contains("kfmt.nbpq.rsuv.wxah"), "{seen}");
}

#[test]
fn nobody_is_let_in_outside_the_system_of_a_medium() {
    let found = combine(&[]).unwrap();
    let mut state = Conversation::new(ConversationFacts { can_help: false, ..facts() }, Answers::on(&found));
    assert!(press(&mut state, &[Key::Function(9)]).is_empty());
    let seen = picture(&mut state, SIZE);
    assert!(
        seen.starts_with(" Install: what this machine becomes")
            && seen.contains("Help access is not possible here"),
        "{seen}"
    );
    let large = picture(&mut state, Size::new(120, 40));
    assert!(!large.contains("F9 opens") && !large.contains("F9 help"), "{large}");
    let mut state = failed();
    state.facts.can_help = false;
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Err(trouble()))), Duration::ZERO);
    assert!(!picture(&mut state, SIZE).contains("Open help access"));
}

#[test]
fn an_install_that_ends_while_somebody_is_let_in_is_seen_afterwards() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter, Key::Function(9), Key::Enter]);
    assert!(state.is_working());
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Err(trouble()))), Duration::ZERO);
    assert!(picture(&mut state, SIZE).contains("kfmt.nbpq.rsuv.wxah"));
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: it has failed");
    assert!(matches!(press(&mut state, &[Key::Enter])[..], [ConversationEffect::Install(_)]));
}

#[test]
fn a_server_that_did_not_start_is_told_and_the_password_is_shown_all_the_same() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(9)]);
    state.step(ConversationInput::Key(Key::Enter), Duration::ZERO);
    let access =
        HelpAccess { trouble: Some("the SSH server did not start: it is missing".into()), ..access() };
    state.step(ConversationInput::Ended(EffectOutcome::Opened(Ok(Box::new(access)))), Duration::ZERO);
    let seen = picture(&mut state, SIZE);
    assert!(
        seen.contains("it is missing") && seen.contains("kfmt.nbpq.rsuv.wxah") && !seen.contains("SHA256"),
        "{seen}"
    );
}
