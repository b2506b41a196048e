//! The change of the network on the console: its screens as golden text, the effects of keys and of time.

use super::super::network::{NetworkPage, PresentNetwork, Proposal};
use super::*;
use crate::answers::Answers;
use crate::toolkit::page::Tone;
use machine::inventory::Nic;
use model::config::sources::{CombinedConfig, Document, SourceKind, combine};
use node::network_trial::{
    CurrentTrial, EndedTrial, NetworkDifference, Networks, TrialEnding, TrialSpan, TrialState as Stage,
    TrialStatus,
};

const DOCUMENT: &str = "server_url: https://192.0.2.110\ntoken: a-long-and-random-shared-text\n\
    os: {hostname: node-2, dns_nameservers: [192.0.2.53]}\ninstall:\n  mode: join\n  role: worker\n  management_interface:\n    \
    interfaces: [{hw_addr: '52:54:00:00:00:03'}]\n    method: static\n    ip: 192.0.2.12\n    subnet_mask: 255.255.255.0\n    \
    gateway: 192.0.2.1\n  networks: [{name: storage, interfaces: [{name: ens5}]}]\n";

fn present() -> PresentNetwork {
    let found = combine(&[Document::yaml(SourceKind::File, "/oem/node.yaml", DOCUMENT)]).unwrap();
    let nic = |name: &str, mac: &str, carrier| Nic {
        name: name.into(),
        mac: mac.into(),
        carrier: Some(carrier),
        speed: carrier.then_some(10_000),
        driver: None,
        temporary_mac: false,
    };
    let nics = vec![nic("ens3", "52:54:00:00:00:03", true), nic("ens4", "52:54:00:00:00:04", false)];
    PresentNetwork { answers: Answers::on(&CombinedConfig { entries: Vec::new(), ..found }), nics }
}

fn key(state: &mut NodePage, key: Key) -> Option<NodePageEffect> {
    state.take(NodePageInput::Key(key))
}

fn type_text(state: &mut NodePage, text: &str) {
    for letter in text.chars() {
        assert_eq!(key(state, Key::Char(letter)), None);
    }
}

/// A console whose administrator is asked about the network.
fn asked() -> NodePage {
    let mut state = state(true, Some(ready()));
    assert_eq!(key(&mut state, Key::Char('n')), Some(NodePageEffect::Work(NodeWork::Network)));
    state.take(NodePageInput::Network(Ok(Box::new(present()))));
    state
}

/// The same with another address typed.
fn answered(address: &str) -> NodePage {
    let mut state = asked();
    for press in [Key::Tab, Key::Tab, Key::Control('u')] {
        key(&mut state, press);
    }
    type_text(&mut state, address);
    state
}

fn proposal(grave: bool) -> Box<Proposal> {
    let text = if grave {
        "the node's own address changes, and it is a server of its cluster: etcd and the certificates know it by the old one"
    } else {
        "the node's own address changes: the cluster knows the node by the old one until rke2-agent.service is restarted"
    };
    Box::new(Proposal {
        networks: Networks::default(),
        differences: vec!["install.management_interface.ip: 192.0.2.12 -> 192.0.2.13".into()],
        warnings: vec![text.into()],
        grave,
    })
}

fn now(left: u64, state: Stage) -> NodePageInput {
    let difference = NetworkDifference {
        path: "install.management_interface.ip".into(),
        before: Some("192.0.2.12".into()),
        after: Some("192.0.2.13".into()),
    };
    let notes = match state {
        Stage::SettingUp => Vec::new(),
        Stage::Running => vec![
            "warning: nqrust-mgmt-port1: nmcli ended with exit status: 4".into(),
            "mgmt-br has the address 192.0.2.13/24".into(),
        ],
    };
    NodePageInput::Trial(TrialStatus::Now(CurrentTrial {
        left,
        span: TrialSpan::USUAL,
        state,
        notes,
        differences: vec![difference],
    }))
}

fn ended(how: TrialEnding) -> NodePageInput {
    NodePageInput::Trial(TrialStatus::Ended(EndedTrial { how, notes: Vec::new() }))
}

fn on_trial() -> NodePage {
    let mut state = answered("192.0.2.13");
    state.take(NodePageInput::Began(Ok(())));
    state.take(now(97, Stage::Running));
    state
}

fn page(state: &NodePage) -> &NetworkPage {
    match &state.view {
        NodeView::Network(Some(page)) => page,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_questions_begin_with_the_present_network() {
    golden("network", asked());
}

#[test]
fn a_mistake_stays_on_the_screen_with_the_words_of_validate() {
    let mut state = answered("192.0.2.300");
    assert_eq!(key(&mut state, Key::Function(8)), None);
    golden("network-mistake", state.clone());
    key(&mut state, Key::Escape);
    assert_eq!(state.view, NodeView::Node);
}

#[test]
fn answers_without_a_mistake_are_checked_with_the_whole_document() {
    let mut state = answered("192.0.2.13");
    let Some(NodePageEffect::Work(NodeWork::Propose(networks))) = key(&mut state, Key::Function(8)) else {
        panic!("{:?}", state.view)
    };
    let management = networks.management_interface.as_ref().unwrap();
    assert_eq!(management.ip, Some([192, 0, 2, 13].into()));
    assert_eq!(management.interfaces[0].hw_addr.as_deref(), Some("52:54:00:00:00:03"));
    assert_eq!(networks.networks.len(), 1, "further networks stay");
    state.take(NodePageInput::Proposed(Err("the document has changed".into())));
    assert_eq!(page(&state).message, Some((Tone::Error, "the document has changed".into())));
    assert!(
        matches!(key(&mut state, Key::Function(8)), Some(NodePageEffect::Work(NodeWork::Propose(_)))),
        "the answers are still there"
    );
}

#[test]
fn a_network_without_a_card_is_no_network() {
    let mut state = asked();
    key(&mut state, Key::Char(' '));
    assert_eq!(key(&mut state, Key::Function(8)), None);
    assert!(
        page(&state).message.as_ref().unwrap().1.starts_with("Mark the network cards"),
        "{:?}",
        page(&state)
    );
}

#[test]
fn what_changes_is_shown_before_it_is_tried() {
    let mut state = answered("192.0.2.13");
    state.take(NodePageInput::Proposed(Ok(proposal(false))));
    golden("network-review", state.clone());
    let mut back = state.clone();
    key(&mut back, Key::Escape);
    assert!(page(&back).proposal.is_none());
    let Some(NodePageEffect::Work(NodeWork::Try(_, accepted))) = key(&mut state, Key::Enter) else {
        panic!("{:?}", state.view)
    };
    assert!(!accepted);
}

#[test]
fn a_grave_matter_needs_the_word() {
    let mut state = answered("192.0.2.13");
    state.take(NodePageInput::Proposed(Ok(proposal(true))));
    assert_eq!(key(&mut state, Key::Enter), None);
    type_text(&mut state, "chang");
    assert_eq!(key(&mut state, Key::Enter), None);
    golden("network-grave", state.clone());
    type_text(&mut state, "e");
    let Some(NodePageEffect::Work(NodeWork::Try(_, accepted))) = key(&mut state, Key::Enter) else {
        panic!("{:?}", state.view)
    };
    assert!(accepted);
    state.take(NodePageInput::Began(Err("a change of the network is on trial".into())));
    assert_eq!(page(&state).message, Some((Tone::Error, "a change of the network is on trial".into())));
}

#[test]
fn a_trial_counts_down_and_is_kept_by_a_key() {
    let mut state = answered("192.0.2.13");
    state.take(NodePageInput::Began(Ok(())));
    state.take(now(118, Stage::SettingUp));
    assert!(drawn(&mut state, "vt220", Size::new(80, 24)).contains("118 seconds until the old network"));
    assert_eq!(key(&mut state, Key::Char('k')), None, "nothing is there yet that could be kept");
    state.take(now(97, Stage::Running));
    key(&mut state, Key::Enter);
    golden("trial", state.clone());
    assert_eq!(key(&mut state, Key::Char('k')), Some(NodePageEffect::Work(NodeWork::Confirm)));
    assert_eq!(key(&mut state, Key::Escape), None, "it is being kept");
    state.take(ended(TrialEnding::Confirmed));
    state.take(NodePageInput::Done(Ok("The new network stays.\nwarning: restart rke2-agent.service".into())));
    assert_eq!(state.view, NodeView::Node);
    state.take(ended(TrialEnding::Confirmed));
    let (tone, text) = state.message.clone().unwrap();
    assert!(tone == Tone::Good && text.contains("restart rke2-agent.service"), "{text}");
}

#[test]
fn escape_takes_a_trial_back_and_a_failure_of_that_is_told() {
    let mut state = on_trial();
    assert_eq!(key(&mut state, Key::Escape), Some(NodePageEffect::Work(NodeWork::Revert)));
    state.take(NodePageInput::Done(Err("the old network is not back".into())));
    assert_eq!((&state.view, state.message.clone().unwrap().0), (&NodeView::Trial, Tone::Error));
    assert_eq!(
        key(&mut state, Key::Escape),
        Some(NodePageEffect::Work(NodeWork::Revert)),
        "it can be tried again"
    );
}

#[test]
fn a_trial_that_nobody_keeps_ends_by_itself_and_says_so() {
    let mut state = on_trial();
    state.take(now(0, Stage::Running));
    state.take(ended(TrialEnding::Expired));
    assert_eq!(state.view, NodeView::Node);
    assert!(state.message.clone().unwrap().1.contains("the old one is back"));
    assert_eq!(
        key(&mut state, Key::Char('n')),
        Some(NodePageEffect::Work(NodeWork::Network)),
        "another one can begin"
    );
}

#[test]
fn a_trial_that_another_session_began_is_seen_by_all_and_ended_by_administrators() {
    for administrator in [false, true] {
        let mut state = state(administrator, Some(ready()));
        state.take(now(60, Stage::Running));
        if !administrator {
            golden("ready-trial", state.clone());
        }
        assert_eq!(key(&mut state, Key::Char('n')), None);
        assert_eq!(state.view == NodeView::Trial, administrator);
    }
}

proptest! {
    #[test]
    fn no_keys_on_the_questions_panic_or_begin_a_trial(
        keys in prop::collection::vec(super::key(), 0..40), width in 0u16..130, height in 0u16..45,
    ) {
        let mut state = asked();
        for key in keys {
            let effect = state.take(NodePageInput::Key(key));
            prop_assert!(!matches!(effect, Some(NodePageEffect::Work(NodeWork::Try(..)))));
            drawn(&mut state, "linux", Size::new(width, height));
        }
    }
}
