//! The conversation as users have it: keys in, pictures and effects out.

mod devices;
mod ending;
mod finished_nodes;
mod flow;
mod golden;

use std::time::Duration;

use ratatui::layout::Size;

use super::state::{
    Conversation, ConversationEffect, ConversationInput, ConversationPlace, EffectOutcome, Review,
    ShownFinding,
};
use super::{ConversationFacts, Destination, draw};
use crate::answers::Answers;
use crate::toolkit::Key;
use crate::toolkit::testing::{shown, theme};
use install::usb_stick::{StickFormat, StickSurvey, StickVolume};
use machine::keyboard::KeyboardLayout;
use machine::live::help::HelpAccess;
use model::config::Secret;
use model::config::sources::{Document, SourceKind, combine};

/// The least room that a console has.
const SIZE: Size = Size { width: 80, height: 24 };

/// A machine with two disks and two cards.
pub(super) fn facts() -> ConversationFacts {
    let inventory = serde_json::from_str(testing::inventories::SCREENS).unwrap();
    ConversationFacts {
        product: "NQRust 1.0".into(),
        hardware: "Dell Inc. PowerEdge R650: 16 processors, 64 GiB of memory".into(),
        inventory,
        keyboards: ["de", "gb", "us"].map(keyboard).into(),
        rehearsal: false,
        first_start: false,
        can_quit: false,
        can_help: true,
        fresh_token: Secret::new("fresh-and-new-and-long-enough"),
        left: None,
    }
}

fn keyboard(name: &str) -> KeyboardLayout {
    let label = match name {
        "de" => "German",
        "gb" => "English (United Kingdom)",
        _ => "English (United States)",
    };
    KeyboardLayout { name: name.into(), label: format!("{label}, {name}") }
}

/// A conversation that begins, on top of what was found.
fn begun(found: &str) -> Conversation {
    let found = combine(&[Document::yaml(SourceKind::Volume, "cidata", found)]).unwrap();
    Conversation::new(facts(), Answers::on(&found))
}

/// Presses keys; answers effects like a machine on which everything works.
fn press(state: &mut Conversation, keys: &[Key]) -> Vec<ConversationEffect> {
    let mut all = Vec::new();
    for key in keys {
        let effects = state.step(ConversationInput::Key(*key), Duration::ZERO);
        for effect in effects {
            if let Some(outcome) = works(&effect) {
                state.step(ConversationInput::Ended(outcome), Duration::ZERO);
            }
            all.push(effect);
        }
    }
    all
}

fn works(effect: &ConversationEffect) -> Option<EffectOutcome> {
    Some(match effect {
        ConversationEffect::LookAgain => EffectOutcome::Inventory(Ok(facts().inventory)),
        ConversationEffect::FollowDevices => EffectOutcome::Devices(Ok(facts().inventory)),
        ConversationEffect::SetKeyboard(name) => {
            EffectOutcome::KeyboardSet(name.clone(), Ok(format!("The keyboard layout is {name}.")))
        }
        ConversationEffect::Try(screen, _) => EffectOutcome::Tried(*screen, Ok("mgmt-br has the address 192.0.2.21/24".into())),
        ConversationEffect::Plan(_) => EffectOutcome::Planned(Ok(Review {
            plan: Some("Install NQRust 1.0\n\nEVERYTHING on /dev/sda is erased.\n  lost    /dev/sda1  100 GiB  (ext4)\n".into()),
            erased: vec!["EVERYTHING on /dev/sda is erased.".into(), "  lost    /dev/sda1  100 GiB  (ext4)".into()],
            steps: vec!["wipe".into(), "image".into()],
            ..Review::default()
        })),
        ConversationEffect::Survey => EffectOutcome::Surveyed(Ok(sticks())),
        ConversationEffect::SaveLogs(destination) => EffectOutcome::Saved(Ok(match &**destination {
            Destination::Volume(volume) => format!("report.tar.gz is on {}.", volume.describe()),
            Destination::Url(..) => "The server has accepted report.tar.gz.".into(),
        })),
        ConversationEffect::SaveConfiguration(_, volume) => {
            EffectOutcome::Saved(Ok(format!("nqrust-config.yaml is on {}.", volume.describe())))
        }
        ConversationEffect::Show(_) => {
            EffectOutcome::Shown(Ok(Secret::new("# Recorded\ninstall:\n  automatic: true\ntoken: MARK-token\n")))
        }
        ConversationEffect::OpenAccess => EffectOutcome::Opened(Ok(Box::new(access()))),
        ConversationEffect::CloseAccess => EffectOutcome::Closed(Ok(())),
        ConversationEffect::Shell => EffectOutcome::Returned(Ok(())),
        ConversationEffect::Record(_) => EffectOutcome::Installed(Ok(Some("answers.yaml".into()))),
        ConversationEffect::Fetch(_) | ConversationEffect::Install(_) | ConversationEffect::StartNode | ConversationEffect::End(_) => return None,
    })
}

/// Goes back from the plan, and asks for it again on a machine that an install would refuse.
fn unfit(state: &mut Conversation, waivable: bool) {
    press(state, &[Key::Escape]);
    let effects = state.step(ConversationInput::Key(Key::Function(8)), Duration::ZERO);
    let finding = |check, stops, text: &str, next: &str| ShownFinding {
        check,
        text: text.into(),
        next: next.into(),
        stops,
        waivable,
    };
    let findings = vec![
        finding(
            "cpu",
            true,
            "2 processors, and a node in production should have 16",
            "Use a machine with more processors, or enable those that are disabled in the firmware.",
        ),
        finding(
            "memory",
            true,
            "4 GiB of memory, and a node in production should have 64 GiB",
            "Use a machine with more memory.",
        ),
        finding("ntp", false, "ntp.example.org does not answer", "Let UDP port 123 through."),
    ];
    for effect in effects {
        let Some(EffectOutcome::Planned(Ok(review))) = works(&effect) else { panic!("{effect:?}") };
        let review = Review { findings: findings.clone(), ..review };
        state.step(ConversationInput::Ended(EffectOutcome::Planned(Ok(review))), Duration::ZERO);
    }
}

/// Two sticks, one of them with an unsupported file system.
fn sticks() -> StickSurvey {
    let volume = StickVolume {
        node: "/dev/sdc1".into(),
        format: StickFormat::Vfat,
        size: base::size::ByteSize::gib(16),
        label: Some("LOGS".into()),
        uuid: Some("1234-ABCD".into()),
        disk: "/dev/sdc: 16 GiB, model Ultra Fit, serial 4C530001".into(),
    };
    let other = "/dev/sdd1: it has NTFS; FAT, exFAT and ext4 can take files".to_owned();
    StickSurvey { volumes: vec![volume], others: vec![other] }
}

fn access() -> HelpAccess {
    HelpAccess {
        password: Secret::new("kfmt.nbpq.rsuv.wxah"),
        addresses: vec!["ens3 192.0.2.21/24, 2001:db8::21/64".into()],
        host_key: Some("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".into()),
        trouble: None,
    }
}

fn type_text(state: &mut Conversation, text: &str) {
    let keys: Vec<_> = text.chars().map(Key::Char).collect();
    press(state, &keys);
}

fn picture(state: &mut Conversation, size: Size) -> String {
    shown(size, |frame| draw::state(state, frame, theme()))
}

fn title(state: &mut Conversation) -> String {
    let picture = picture(state, Size::new(80, 24));
    picture.lines().next().unwrap_or_default().split("  ").next().unwrap_or_default().trim().to_owned()
}
