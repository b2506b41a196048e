use ratatui::layout::Size;

use super::state::{RecoveryEffect, RecoveryPage, RecoveryView};
use super::{RecoveryPageEnd, draw};
use crate::toolkit::Key;
use crate::toolkit::testing::{compare, shown, theme};
use node::recovery::{RecoveryFacts, RecoveryNotices};

fn facts() -> RecoveryFacts {
    let slot = |name: &str, version: &str, state: &str| [name.into(), version.into(), state.into()];
    RecoveryFacts {
        product: "NQRust Hypervisor 1.2.0".into(),
        why: "a slot that was good was started 5 times and was never reported as good".into(),
        slots: vec![
            slot("Slot a", "1.2.0", "good"),
            slot("Slot b", "nothing", "bad"),
            slot("Recovery", "1.2.0", "runs"),
        ],
        addresses: vec!["mgmt-br 192.0.2.12/24".into()],
        notices: RecoveryNotices::default(),
    }
}

fn page(administrator: bool) -> RecoveryPage {
    RecoveryPage { administrator, facts: Some(Ok(facts())), ..RecoveryPage::default() }
}

fn picture(mut page: RecoveryPage) -> String {
    shown(Size::new(80, 24), |frame| draw::state(&mut page, "2026-03-02 10:42 UTC", frame, theme()))
}

fn pressed(page: &mut RecoveryPage, keys: &str) -> Option<RecoveryEffect> {
    keys.chars().fold(None, |_, key| page.take(if key == '\n' { Key::Enter } else { Key::Char(key) }))
}

fn command(words: &str) -> Option<RecoveryEffect> {
    let words = words.split(' ').map(str::to_owned).collect();
    Some(RecoveryEffect::End(RecoveryPageEnd::Run(words)))
}

#[test]
fn the_pages_are_the_golden_ones() {
    let failed = RecoveryNotices {
        failed: Some("the reset is not complete: writing /dev/vda7".into()),
        notes: vec![
            "nobody can log in here, because the node document is not applied: this node has no document"
                .into(),
        ],
        doing: None,
    };
    let failed = RecoveryFacts { notices: failed, ..facts() };
    let failed = RecoveryPage { facts: Some(Ok(failed)), ..page(true) };
    for (name, page) in [
        ("locked", page(false)),
        ("administrator", page(true)),
        ("failed", failed),
        ("update", RecoveryPage { view: RecoveryView::Update(Default::default()), ..page(true) }),
        ("reset", RecoveryPage { view: RecoveryView::Reset, ..page(true) }),
    ] {
        compare("recovery_page/golden", name, &[("80x24", picture(page))]);
    }
}

#[test]
fn each_key_of_an_administrator_is_a_command() {
    for (keys, words) in [
        ("s", "update status"),
        ("c", "update repair"),
        ("R", "update repair --yes"),
        ("a", "update start a"),
        ("b", "update start b"),
        ("u/dev/sr0\n", "update apply --from /dev/sr0"),
        ("xc", "update reset --level config"),
        ("xs", "update reset --level state"),
        ("xF", "update reset --level full"),
    ] {
        assert_eq!(pressed(&mut page(true), keys), command(words), "{keys}");
    }
}

#[test]
fn before_a_login_no_key_does_anything_to_the_node() {
    for letter in ('a'..='z').chain('A'..='Z').filter(|letter| !letter.eq_ignore_ascii_case(&'l')) {
        let mut page = page(false);
        assert_eq!(page.take(Key::Char(letter)), None, "{letter}");
        assert_eq!(page.view, RecoveryView::Overview);
    }
    assert_eq!(pressed(&mut page(false), "l"), Some(RecoveryEffect::End(RecoveryPageEnd::LogIn)));
}

#[test]
fn escape_leads_back_and_an_empty_source_nowhere() {
    let mut page = page(true);
    assert_eq!(pressed(&mut page, "u\n"), None);
    assert!(matches!(page.view, RecoveryView::Update(_)));
    page.take(Key::Escape);
    pressed(&mut page, "x");
    page.take(Key::Escape);
    assert_eq!(page.view, RecoveryView::Overview);
}
