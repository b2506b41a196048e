//! Ways through the screens.

use proptest::prelude::*;

use super::*;
use crate::questions::{ConfigOrigin, ConversationEnd, ShownTrouble};
use crate::toolkit::{Capabilities, Theme};
use base::failure::{Class, Failure};
use base::progress::Progress;
use model::config::{Mode, Role};

const NEXT: Key = Key::Function(8);

/// From the first screen to the plan of a new cluster, with nothing but the required answers.
pub(super) fn to_plan(state: &mut Conversation) -> Vec<ConversationEffect> {
    let mut effects = press(state, &[NEXT]);
    press(state, &[Key::Enter]);
    effects.extend(press(state, &[NEXT, NEXT]));
    type_text(state, "node-1");
    effects.extend(press(state, &[NEXT]));
    press(state, &[Key::Tab]);
    type_text(state, "192.0.2.10");
    effects.extend(press(state, &[Key::Function(6), NEXT]));
    type_text(state, "correct horse");
    press(state, &[Key::Tab]);
    type_text(state, "correct horse");
    effects.extend(press(state, &[NEXT]));
    effects
}

#[test]
fn a_new_cluster_is_at_most_twelve_screens_from_the_first_question_to_the_end() {
    let mut state = begun("");
    let mut titles = vec![title(&mut state)];
    let mut effects = Vec::new();
    type Step<'s> = &'s dyn Fn(&mut Conversation) -> Vec<ConversationEffect>;
    let steps: [Step<'_>; 9] = [
        &|state| press(state, &[Key::Enter]),
        &|state| press(state, &[Key::Enter, NEXT]),
        &|state| press(state, &[NEXT]),
        &|state| press(state, &[NEXT]),
        &|state| {
            press(state, &[Key::Tab]);
            type_text(state, "192.0.2.10");
            press(state, &[Key::Function(6), NEXT])
        },
        &|state| {
            type_text(state, "correct horse");
            press(state, &[Key::Enter]);
            type_text(state, "correct horse");
            press(state, &[NEXT])
        },
        &|state| press(state, &[Key::Enter]),
        &|state| {
            type_text(state, "yes");
            press(state, &[Key::Enter])
        },
        &|state| {
            state.step(ConversationInput::Ended(EffectOutcome::Installed(Ok(None))), Duration::ZERO);
            press(state, &[Key::Enter])
        },
    ];
    for step in steps {
        effects.extend(step(&mut state));
        titles.push(title(&mut state));
    }
    titles.dedup();
    assert_eq!(
        titles,
        [
            "Install: what this machine becomes",
            "Install: disks",
            "Install: management network",
            "Install: names and servers",
            "Install: the new cluster",
            "Install: who may log in",
            "Install: the plan",
            "Install: the last question",
            "Install: progress",
            "Install: complete",
        ]
    );
    assert!(titles.len() <= 12);
    assert_eq!(effects.last(), Some(&ConversationEffect::End(ConversationEnd::Restart)));
    let installed = effects.iter().find_map(|effect| match effect {
        ConversationEffect::Install(config) => Some(config),
        _ => None,
    });
    let config = installed.unwrap();
    assert_eq!(config.install.vip, Some([192, 0, 2, 10].into()));
    assert_eq!(config.os.password, Some(Secret::new("correct horse")));
    assert!(config.token.is_some() && config.install.device.is_some());
}

#[test]
fn a_machine_joins_with_the_address_and_the_token_of_the_cluster() {
    let mut state = begun("");
    press(&mut state, &[Key::Down, Key::Enter, Key::End, Key::Enter]);
    press(&mut state, &[Key::Enter, NEXT, NEXT, NEXT]);
    assert_eq!(title(&mut state), "Install: the cluster to join");
    type_text(&mut state, "192.0.2.10");
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "a-long-and-random-shared-text");
    let effects = press(&mut state, &[NEXT]);
    let [ConversationEffect::Try(_, config)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((config.install.mode, config.install.role), (Mode::Join, Role::Witness));
    assert_eq!(title(&mut state), "Install: who may log in");
}

#[test]
fn the_option_under_the_cursor_is_taken_by_going_on_and_not_by_passing_through() {
    for leave in [NEXT, Key::Tab] {
        let mut state = begun("");
        press(&mut state, &[Key::Down, leave]);
        assert_eq!(state.mode(), Mode::Join, "{leave:?}");
    }
    // Up and Down go through all options to the next field.
    let mut state = begun("install: {mode: join}");
    press(&mut state, &[Key::Up, Key::Down, Key::Down, Key::Down]);
    assert_eq!(state.mode(), Mode::Join);
    // A disk that nobody has moved to is not taken.
    let mut state = begun("");
    press(&mut state, &[NEXT, NEXT]);
    assert_eq!(title(&mut state), "Install: disks");
}

#[test]
fn the_token_of_a_new_cluster_is_shown_whole_and_as_a_code_when_it_is_made_and_at_the_end() {
    const TOKEN: &str = "kfmt.nbpq.rsuv.wxah.bcde.fghj.kmnp.qrst";
    let mut facts = facts();
    facts.fresh_token = Secret::new(TOKEN);
    let found = combine(&[Document::yaml(SourceKind::Volume, "cidata", "os: {}")]).unwrap();
    let mut state = Conversation::new(facts, Answers::on(&found));
    press(&mut state, &[NEXT, Key::Enter, NEXT, NEXT, NEXT, Key::Tab]);
    type_text(&mut state, "192.0.2.10");
    press(&mut state, &[Key::Function(6)]);
    let linux = Theme::of(Capabilities::of_term("linux", true));
    let on_linux = |state: &mut Conversation, size| shown(size, |frame| draw::state(state, frame, linux));
    let page = on_linux(&mut state, Size::new(80, 24));
    assert!(page.contains(TOKEN) && page.contains('█'), "{page}");
    // Where there is no room for both, and on a terminal without the characters, the token alone is shown.
    for page in [on_linux(&mut state, Size::new(60, 15)), picture(&mut state, Size::new(80, 24))] {
        assert!(page.contains(TOKEN) && !page.contains('█'), "{page}");
    }
    press(&mut state, &[Key::Enter]);
    let page = picture(&mut state, Size::new(80, 24));
    assert!(page.contains("Install: the new cluster") && !page.contains(TOKEN), "{page}");
    press(&mut state, &[NEXT]);
    type_text(&mut state, "correct horse");
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "correct horse");
    press(&mut state, &[NEXT, Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Ok(None))), Duration::ZERO);
    assert_eq!(title(&mut state), "Install: complete");
    press(&mut state, &[Key::Function(5)]);
    assert!(picture(&mut state, Size::new(80, 24)).contains(TOKEN));
    press(&mut state, &[Key::Enter]);
    assert_eq!(title(&mut state), "Install: complete");
}

#[test]
fn a_secret_that_is_longer_than_its_field_is_shown_whole() {
    let secret: String = (0..70).map(|at| char::from(b'a' + at % 26)).collect();
    let mut state = begun("install: {mode: join}");
    press(&mut state, &[NEXT, Key::Enter, NEXT, NEXT, NEXT]);
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, &secret);
    let page = picture(&mut state, Size::new(80, 24));
    assert!(!page.contains("abc"), "{page}");
    press(&mut state, &[Key::Function(4)]);
    let page = picture(&mut state, Size::new(80, 24));
    let rows: String = page.lines().skip_while(|row| !row.contains("Token")).skip(1).map(str::trim).collect();
    assert!(rows.starts_with(&secret), "{page}");
}

#[test]
fn what_is_missing_is_asked_for_in_the_words_of_the_screens() {
    let mut state = begun("");
    press(&mut state, &[NEXT, Key::Enter, NEXT, NEXT, NEXT, NEXT]);
    let page = picture(&mut state, Size::new(80, 40));
    assert!(page.contains("! Type the VIP: a free address") && page.contains("! Type the token"), "{page}");
    assert!(!page.contains('`') && !page.contains("token_file"), "{page}");
    type_text(&mut state, "192.0.2.10");
    press(&mut state, &[Key::Function(6), NEXT, NEXT]);
    let page = picture(&mut state, Size::new(80, 24));
    assert!(page.contains("Type a password or an SSH key") && !page.contains('`'), "{page}");
    let mut state = begun("install: {mode: join}");
    press(&mut state, &[NEXT, Key::Enter, NEXT, NEXT, NEXT, NEXT]);
    let page = picture(&mut state, Size::new(80, 24));
    assert!(page.contains("! Type the VIP of the cluster") && !page.contains('`'), "{page}");
}

#[test]
fn an_address_that_etcd_needs_to_last_is_spoken_of_where_it_is_chosen() {
    let warned = |document: &str| {
        let mut state = begun(document);
        press(&mut state, &[NEXT, Key::Enter, NEXT]);
        assert_eq!(title(&mut state), "Install: management network");
        picture(&mut state, Size::new(80, 24)).contains("reserve the address")
    };
    assert!(warned("kubernetes: {distribution: kubeadm}"));
    assert!(warned("kubernetes: {distribution: kubeadm}\ninstall: {mode: join, role: witness}"));
    assert!(!warned("kubernetes: {distribution: kubeadm}\ninstall: {mode: join, role: worker}"));
    assert!(!warned("kubernetes: {distribution: rke2}"));
}

#[test]
fn warnings_are_on_the_first_page_of_the_plan() {
    let mut state = begun("");
    to_plan(&mut state);
    unfit(&mut state, true);
    press(&mut state, &[Key::Down, Key::Down, Key::Enter]);
    let ConversationPlace::Review(review) = &mut state.place else { panic!("{:?}", state.place) };
    let long: String = (0..60).map(|at| format!("line {at}\n")).collect();
    review.plan = Some(long);
    review.findings = vec![ShownFinding {
        check: "ntp",
        text: "ntp.example.org does not answer".into(),
        next: "Let UDP port 123 through.".into(),
        stops: false,
        waivable: false,
    }];
    let page = picture(&mut state, Size::new(80, 24));
    assert!(page.contains("Warning: ntp: ntp.example.org does not answer"), "{page}");
}

#[test]
fn a_mistake_is_shown_at_its_field_and_the_screen_stays() {
    let mut state = begun("");
    press(&mut state, &[NEXT, Key::Enter, NEXT, NEXT]);
    type_text(&mut state, "Node 1");
    press(&mut state, &[NEXT]);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.starts_with(" Install: names and servers") && seen.contains("try node-1"), "{seen}");
    press(&mut state, &[Key::Control('u')]);
    type_text(&mut state, "node-1");
    press(&mut state, &[NEXT]);
    assert_eq!(title(&mut state), "Install: the new cluster");
    press(&mut state, &[NEXT]);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.contains("! Type the VIP: a free address"), "{seen}");
}

#[test]
fn of_several_disks_one_has_to_be_named() {
    let mut state = begun("");
    press(&mut state, &[NEXT, NEXT]);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.starts_with(" Install: disks") && seen.contains("! 2 disks match"), "{seen}");
    press(&mut state, &[Key::End, Key::Enter, NEXT]);
    assert_eq!(title(&mut state), "Install: disks", "the medium cannot be taken");
}

#[test]
fn two_different_passwords_go_no_further_and_none_is_ever_seen() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Escape]);
    press(&mut state, &[Key::Tab, Key::Char('x'), NEXT]);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.contains("the passwords differ") && !seen.contains("horse"), "{seen}");
}

#[test]
fn what_a_configuration_says_is_filled_in_with_its_source_and_its_secrets_are_not() {
    let mut state =
        begun("{token: MARK-random-shared-text, os: {hostname: node-7, password: MARK-password}}");
    let mut all = String::new();
    press(&mut state, &[NEXT, Key::Enter]);
    for _ in 0..3 {
        press(&mut state, &[NEXT]);
        press(&mut state, &[Key::Function(4)]);
        all.push_str(&picture(&mut state, Size::new(100, 40)));
    }
    assert!(all.contains("node-7") && all.contains("from: configuration volume"), "{all}");
    assert!(!all.contains("MARK"), "{all}");
}

#[test]
fn a_configuration_is_read_from_a_volume_that_came_later_or_fetched_from_a_url() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(3)]);
    assert_eq!(title(&mut state), "Install: a configuration");
    let volume = state.step(ConversationInput::Key(Key::Enter), Duration::ZERO);
    assert_eq!(volume, [ConversationEffect::Fetch(ConfigOrigin::Volume)]);
    let failure = Failure::new(Class::Invalid, "no volume").hint("Plug it in.");
    state.step(
        ConversationInput::Ended(EffectOutcome::Fetched(Err(ShownTrouble::of(&failure.into(), None)))),
        Duration::ZERO,
    );
    assert!(picture(&mut state, Size::new(80, 24)).contains("next: Plug it in."));
    press(&mut state, &[Key::Down, Key::Enter]);
    type_text(&mut state, "ftp://a/b");
    assert!(press(&mut state, &[Key::Enter]).is_empty());
    press(&mut state, &[Key::Control('u')]);
    type_text(&mut state, "http://a/b.yaml");
    assert_eq!(
        press(&mut state, &[Key::Enter]),
        [ConversationEffect::Fetch(ConfigOrigin::Url("http://a/b.yaml".into()))]
    );
    let found = combine(&[Document::yaml(SourceKind::Url, "u", "os: {hostname: node-9}")]).unwrap();
    state.step(ConversationInput::Ended(EffectOutcome::Fetched(Ok(Box::new(found)))), Duration::ZERO);
    assert_eq!(title(&mut state), "Install: what this machine becomes");
    assert_eq!(state.answers.text("os.hostname"), "node-9");
}

#[test]
fn a_network_that_does_not_come_up_is_told_once_and_can_be_gone_past() {
    let mut state = begun("");
    press(&mut state, &[NEXT, Key::Enter, NEXT]);
    let effects = state.step(ConversationInput::Key(NEXT), Duration::ZERO);
    let [ConversationEffect::Try(screen, _)] = &effects[..] else { panic!("{effects:?}") };
    let failure = Failure::new(Class::Network, "mgmt-br has no address").hint("Check cables.");
    let trouble = ShownTrouble::of(&failure.into(), None);
    state.step(ConversationInput::Ended(EffectOutcome::Tried(*screen, Err(trouble))), Duration::ZERO);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.contains("has no address") && seen.contains("next: Check cables."), "{seen}");
    assert!(press(&mut state, &[NEXT]).is_empty());
    assert_eq!(title(&mut state), "Install: names and servers");
}

#[test]
fn a_network_can_be_tried_without_leaving_its_screen() {
    let mut state = begun("");
    press(&mut state, &[NEXT, Key::Enter, NEXT]);
    assert!(matches!(press(&mut state, &[Key::Function(5)])[..], [ConversationEffect::Try(..)]));
    assert_eq!(title(&mut state), "Install: management network");
    assert!(press(&mut state, &[NEXT]).is_empty(), "what works is not tried twice");
    assert_eq!(title(&mut state), "Install: names and servers");
}

#[test]
fn a_plan_that_comes_while_somebody_thinks_of_leaving_is_not_lost() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Escape]);
    let effects = state.step(ConversationInput::Key(NEXT), Duration::ZERO);
    press(&mut state, &[Key::Function(10)]);
    effects
        .iter()
        .filter_map(works)
        .for_each(|outcome| drop(state.step(ConversationInput::Ended(outcome), Duration::ZERO)));
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: the plan");
    assert!(picture(&mut state, Size::new(80, 24)).contains("EVERYTHING on /dev/sda is erased."));
}

#[test]
fn a_machine_that_does_not_fit_is_told_before_the_plan_and_taken_all_the_same_if_somebody_says_so() {
    let mut state = begun("install: {skip_checks: [kvm]}");
    to_plan(&mut state);
    unfit(&mut state, true);
    assert_eq!(title(&mut state), "Install: this machine");
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(seen.contains("cpu: 2 processors") && seen.contains("Use a machine with more memory."), "{seen}");
    assert!(!seen.contains("ntp"), "a warning stands in nobody's way: {seen}");
    // The user goes to the way out, and comes back.
    press(&mut state, &[Key::Function(10), Key::Escape]);
    assert_eq!(title(&mut state), "Install: this machine");
    let effects = press(&mut state, &[Key::Down, Key::Down, Key::Enter]);
    let [ConversationEffect::Plan(config)] = &effects[..] else { panic!("{effects:?}") };
    let skipped: Vec<_> = config.install.skip_checks.iter().map(ToString::to_string).collect();
    assert_eq!(skipped, ["kvm", "cpu", "memory"]);
    assert_eq!(title(&mut state), "Install: the plan");
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    let effects = press(&mut state, &[Key::Enter]);
    let [ConversationEffect::Install(config)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(config.install.skip_checks.len(), 3);
}

#[test]
fn what_an_install_cannot_do_without_is_not_left_out() {
    let mut state = begun("");
    to_plan(&mut state);
    unfit(&mut state, false);
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(!seen.contains("Install anyway"), "{seen}");
    assert!(matches!(press(&mut state, &[Key::Down, Key::Enter])[..], [ConversationEffect::Plan(_)]));
    assert_eq!(title(&mut state), "Install: the plan", "the machine has been looked at again");
    unfit(&mut state, false);
    press(&mut state, &[Key::Enter]);
    assert_eq!(title(&mut state), "Install: what this machine becomes");
    press(&mut state, &[NEXT; 6]);
    unfit(&mut state, false);
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: who may log in");
}

#[test]
fn nothing_is_installed_without_the_word() {
    let mut state = begun("");
    to_plan(&mut state);
    assert_eq!(title(&mut state), "Install: the plan");
    press(&mut state, &[Key::Enter]);
    for text in ["", "no", "y"] {
        type_text(&mut state, text);
        assert!(press(&mut state, &[Key::Enter]).is_empty());
        press(&mut state, &[Key::Control('u')]);
    }
    assert_eq!(title(&mut state), "Install: the last question");
    type_text(&mut state, "yes");
    assert!(matches!(press(&mut state, &[Key::Enter])[..], [ConversationEffect::Install(_)]));
}

#[test]
fn a_failure_stays_until_somebody_says_what_next_and_can_be_tried_again() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    let failure =
        Failure::new(Class::DiskIo, "writing to /dev/sda: input/output error").hint("Replace the disk.");
    state.step(
        ConversationInput::Ended(EffectOutcome::Installed(Err(ShownTrouble::of(&failure.into(), None)))),
        Duration::ZERO,
    );
    let seen = picture(&mut state, Size::new(80, 24));
    assert!(
        seen.contains("A disk could not be read or written.") && seen.contains("What to try: Replace"),
        "{seen}"
    );
    state.step(ConversationInput::Tick, Duration::from_secs(3600));
    assert_eq!(title(&mut state), "Install: it has failed");
    assert!(matches!(press(&mut state, &[Key::Enter])[..], [ConversationEffect::Install(_)]));
    assert_eq!(title(&mut state), "Install: progress");
}

#[test]
fn a_rehearsal_ends_with_the_plan_installs_nothing_and_keeps_the_answers() {
    let found = combine(&[]).unwrap();
    let mut state = Conversation::new(ConversationFacts { rehearsal: true, ..facts() }, Answers::on(&found));
    let mut effects = to_plan(&mut state);
    effects.extend(press(&mut state, &[Key::Enter]));
    type_text(&mut state, "yes");
    effects.extend(press(&mut state, &[Key::Enter]));
    assert_eq!(title(&mut state), "Install: end of the rehearsal");
    assert!(matches!(effects.last(), Some(ConversationEffect::Record(_))), "{effects:?}");
    effects.extend(press(&mut state, &[Key::Enter]));
    assert_eq!(effects.last(), Some(&ConversationEffect::End(ConversationEnd::Quit)));
    assert!(!effects.iter().any(|effect| matches!(effect, ConversationEffect::Install(_))));
}

#[test]
fn leaving_asks_first_and_goes_back_to_where_one_was() {
    let mut state = begun("");
    press(&mut state, &[NEXT, Key::Function(10)]);
    assert_eq!(title(&mut state), "Install: leave");
    press(&mut state, &[Key::Enter]);
    assert_eq!(title(&mut state), "Install: disks");
    assert_eq!(
        press(&mut state, &[Key::Control('c'), Key::End, Key::Enter]),
        [ConversationEffect::End(ConversationEnd::PowerOff)]
    );
}

#[test]
fn steps_and_the_log_of_an_install_are_shown_as_they_come() {
    let mut state = begun("");
    to_plan(&mut state);
    press(&mut state, &[Key::Enter]);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    let recorder = testing::progress::Recorder::default();
    let progress = Progress::new(vec![Box::new(recorder.clone())]);
    progress.step("wipe", "Erasing the disk", None).done();
    progress.note("wipe", "a remark");
    for event in recorder.0.lock().unwrap().iter() {
        state.step(ConversationInput::Event(event.clone()), Duration::from_secs(2));
    }
    assert!(picture(&mut state, Size::new(80, 24)).contains("[ ok ] Erasing the disk"));
    press(&mut state, &[Key::Function(7)]);
    assert!(picture(&mut state, Size::new(80, 24)).contains("a remark"));
}

pub(super) fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        Just(Key::Up),
        Just(Key::Down),
        Just(Key::Tab),
        Just(Key::BackTab),
        Just(Key::Enter),
        Just(Key::Escape),
        Just(Key::Char(' ')),
        Just(Key::Backspace),
        Just(Key::Control('u')),
        (1u8..=12).prop_map(Key::Function),
        proptest::char::range('!', '~').prop_map(Key::Char),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_keys_in_whatever_order_break_the_conversation(
        keys in proptest::collection::vec(any_key(), 0..60), width in 1u16..130, height in 1u16..45,
    ) {
        let mut state = begun("os: {hostname: node-1}");
        for key in keys {
            press(&mut state, &[key]);
        }
        let _ = picture(&mut state, Size::new(width, height));
    }

    #[test]
    fn no_keys_in_whatever_order_break_the_end(
        keys in proptest::collection::vec(any_key(), 0..60), width in 1u16..130, height in 1u16..45, worked: bool,
    ) {
        let mut state = begun("os: {hostname: node-1}");
        to_plan(&mut state);
        press(&mut state, &[Key::Enter]);
        type_text(&mut state, "yes");
        press(&mut state, &[Key::Enter]);
        let failure = Failure::new(Class::DiskIo, "writing to /dev/sda: input/output error");
        let ended = if worked { Ok(None) } else { Err(ShownTrouble::of(&failure.into(), None)) };
        state.step(ConversationInput::Ended(EffectOutcome::Installed(ended)), Duration::ZERO);
        for key in keys {
            press(&mut state, &[key]);
            let _ = picture(&mut state, Size::new(width, height));
        }
    }

    #[test]
    fn what_has_been_answered_is_there_again_after_going_back_and_forth(
        name in "[a-z][a-z0-9]{1,10}", last in 2u8..250, keys in proptest::collection::vec(prop_oneof![
            Just(Key::Escape), Just(NEXT), Just(Key::Tab), Just(Key::BackTab), Just(Key::Function(4)),
            Just(Key::Function(7)), Just(Key::Function(10)), Just(Key::PageDown)], 0..40),
    ) {
        let mut state = begun("");
        answer_everything(&mut state, &name, last);
        let given: Vec<_> = ANSWERED.iter().map(|id| state.answers.text(id)).collect();
        prop_assert!(given.iter().all(|text| !text.is_empty()), "{:?}", given);
        for key in keys {
            press(&mut state, &[key]);
        }
        let kept: Vec<_> = ANSWERED.iter().map(|id| state.answers.text(id)).collect();
        prop_assert_eq!(kept, given);
    }
}

/// One value at least of each screen.
const ANSWERED: &[&str] = &[
    "install.mode",
    "install.device",
    "install.management_interface.ip",
    "install.management_interface.gateway",
    "os.hostname",
    "os.ntp_servers",
    "os.environment.HTTP_PROXY",
    "install.vip",
    "token",
    "install.cluster_dns",
    "os.password",
];

/// From the first screen to the plan with a value in each of those, one after the other by the keys that people press.
fn answer_everything(state: &mut Conversation, name: &str, last: u8) {
    let fill = |state: &mut Conversation, texts: &[&str]| {
        for text in texts {
            type_text(state, text);
            press(state, &[Key::Tab]);
        }
    };
    press(state, &[Key::Enter]);
    press(state, &[Key::Enter, NEXT]);
    // The cards, then the kind of address, of which the second is a fixed one.
    press(state, &[Key::Tab, Key::Down, Key::Enter]);
    let address = format!("192.0.2.{last}");
    fill(state, &[&address, "255.255.255.0", "192.0.2.1", "192.0.2.53"]);
    press(state, &[NEXT]);
    fill(state, &[name, "ntp.example.org", "http://192.0.2.8:3128"]);
    press(state, &[NEXT, Key::Tab]);
    fill(
        state,
        &["192.0.2.251", "a-long-and-random-shared-text", "10.52.0.0/16", "10.53.0.0/16", "10.53.0.10"],
    );
    press(state, &[NEXT]);
    fill(state, &["correct horse", "correct horse"]);
    press(state, &[NEXT]);
}

#[test]
fn a_keyboard_layout_that_is_chosen_is_tried_and_becomes_that_of_the_node() {
    let mut state = begun("");
    press(&mut state, &[Key::Function(8), Key::Enter, Key::Function(8), Key::Function(8)]);
    type_text(&mut state, "node-7");
    assert!(press(&mut state, &[Key::Function(2)]).is_empty());
    assert_eq!(title(&mut state), "Install: keyboard layout");
    let effects = press(&mut state, &[Key::Home, Key::Enter]);
    assert_eq!(effects, [ConversationEffect::SetKeyboard("de".into())]);
    type_text(&mut state, "zy");
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("The keyboard layout is de. Type something") && seen.contains("  zy"), "{seen}");
    press(&mut state, &[Key::Escape]);
    assert_eq!(title(&mut state), "Install: names and servers");
    assert_eq!(state.answers.text("os.hostname"), "node-7");
    assert_eq!(state.answers.check(false).config.unwrap().os.keyboard.as_deref(), Some("de"));
    // Who thinks of leaving while the layout is set is not held up.
    press(&mut state, &[Key::Function(2), Key::End]);
    state.step(ConversationInput::Key(Key::Enter), Duration::ZERO);
    press(&mut state, &[Key::Function(10)]);
    let set = EffectOutcome::KeyboardSet("us".into(), Ok("The keyboard layout is us.".into()));
    state.step(ConversationInput::Ended(set), Duration::ZERO);
    press(&mut state, &[Key::Escape]);
    assert_eq!((title(&mut state).as_str(), &state.busy), ("Install: keyboard layout", &None));
}

#[test]
fn a_layout_that_cannot_be_set_is_no_answer_and_that_of_a_configuration_is_set_at_once() {
    let mut state = begun("os: {keyboard: gb}");
    assert_eq!(state.begin(), [ConversationEffect::SetKeyboard("gb".into())]);
    let set = |name: &str, set| ConversationInput::Ended(EffectOutcome::KeyboardSet(name.into(), set));
    state.step(set("gb", Ok("The keyboard layout is gb.".into())), Duration::ZERO);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("The keyboard layout is gb.") && seen.contains("now it is gb"), "{seen}");
    press(&mut state, &[Key::Function(2)]);
    state.step(ConversationInput::Key(Key::Home), Duration::ZERO);
    state.step(ConversationInput::Key(Key::Enter), Duration::ZERO);
    let failure = Failure::new(Class::Invalid, "this system has no keymap for de");
    state.step(set("de", Err(ShownTrouble::of(&failure.into(), None))), Duration::ZERO);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("this system has no keymap for de"), "{seen}");
    assert_eq!(state.answers.text("os.keyboard"), "gb");
    // A layout of a configuration that is loaded later is set, too; the same one is not set again.
    let load = |state: &mut Conversation, text: &str| {
        let found = combine(&[Document::yaml(SourceKind::Volume, "cidata", text)]).unwrap();
        state.step(ConversationInput::Ended(EffectOutcome::Fetched(Ok(Box::new(found)))), Duration::ZERO)
    };
    assert!(load(&mut state, "os: {keyboard: gb}").is_empty());
    let effects = load(&mut state, "os: {keyboard: us}");
    assert_eq!(effects, [ConversationEffect::SetKeyboard("us".into())]);
    assert!(begun("").begin().is_empty());
}

#[test]
fn a_system_without_keymaps_offers_no_layouts() {
    let mut state = begun("");
    state.facts.keyboards.clear();
    press(&mut state, &[Key::Function(8), Key::Escape, Key::Function(2)]);
    let seen = picture(&mut state, SIZE);
    assert!(seen.contains("This system has no keymaps") && !seen.contains("F2 chooses"), "{seen}");
}

#[test]
fn every_screen_on_the_way_has_a_number_and_none_has_that_of_another() {
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut look = |state: &mut Conversation| {
        let picture = picture(state, SIZE);
        let head = picture.lines().next().unwrap_or_default().to_owned();
        let number = head.split("NQRust 1.0").nth(1).unwrap_or_default().trim().to_owned();
        let title = title(state);
        if !number.is_empty() && !seen.contains(&(title.clone(), number.clone())) {
            seen.push((title, number));
        }
    };
    let mut state = begun("");
    look(&mut state);
    for keys in [
        &[NEXT][..],
        &[Key::Enter, NEXT],
        &[NEXT],
        &[NEXT],
        &[Key::Tab, Key::Char('1'), Key::Char('0'), Key::Char('.'), Key::Char('0'), Key::Char('.')],
        &[Key::Char('0'), Key::Char('.'), Key::Char('9'), Key::Function(6), NEXT],
    ] {
        press(&mut state, keys);
        look(&mut state);
    }
    type_text(&mut state, "correct horse");
    press(&mut state, &[Key::Tab]);
    type_text(&mut state, "correct horse");
    press(&mut state, &[NEXT]);
    look(&mut state);
    unfit(&mut state, true);
    look(&mut state);
    press(&mut state, &[Key::Down, Key::Enter, Key::Enter]);
    look(&mut state);
    type_text(&mut state, "yes");
    press(&mut state, &[Key::Enter]);
    look(&mut state);
    state.step(ConversationInput::Ended(EffectOutcome::Installed(Ok(None))), Duration::ZERO);
    look(&mut state);
    let numbers: Vec<_> = seen.iter().map(|(_, number)| number.clone()).collect();
    assert_eq!(numbers, (1..=10).map(|at| format!("{at} of 10")).collect::<Vec<_>>(), "{seen:?}");
}
