//! Which card is found as which: practical cases, and properties.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::inventory::Nic;
use model::config::{InstallConfig, parse};

fn config(cards: &str) -> InstallConfig {
    let text = format!("install: {{mode: install, management_interface: {{interfaces: [{cards}]}}}}");
    parse(&text, "f").unwrap_or_else(|error| panic!("{error}"))
}

fn nic(name: &str, last: u8) -> Nic {
    Nic {
        name: name.into(),
        mac: format!("52:54:00:00:00:{last:02x}"),
        carrier: Some(true),
        speed: None,
        driver: Some("virtio_net".into()),
        temporary_mac: false,
    }
}

/// The kernel's names of the cards that are found; `-` for a missing one.
fn names(config: &InstallConfig, remembered: &RememberedCards, present: &[Nic]) -> Vec<String> {
    let name = |found| match found {
        FoundCard::ByAddress(nic) | FoundCard::ByName(nic) => nic.name.clone(),
        FoundCard::Missing => "-".to_owned(),
    };
    find(config, remembered, present).into_iter().map(|(_, found)| name(found)).collect()
}

const TWO: &str = "{name: ens3}, {name: ens4}";

fn installed(config: &InstallConfig) -> RememberedCards {
    RememberedCards::default().after(config, &[nic("ens3", 3), nic("ens4", 4), nic("ens5", 5)])
}

#[test]
fn the_remembered_address_finds_a_card_under_its_new_name_and_a_replaced_card_is_found_by_its_name() {
    let config = config(TWO);
    let remembered = installed(&config);
    let cases: [(&str, Vec<Nic>, [&str; 2]); 7] = [
        ("nothing has changed", vec![nic("ens3", 3), nic("ens4", 4)], ["ens3", "ens4"]),
        ("both have other names", vec![nic("enp1s0", 3), nic("enp2s0", 4)], ["enp1s0", "enp2s0"]),
        ("they have changed their names", vec![nic("ens3", 4), nic("ens4", 3)], ["ens4", "ens3"]),
        ("one was replaced", vec![nic("ens3", 9), nic("ens4", 4)], ["ens3", "ens4"]),
        // The name of the missing card is now that of the other one, which is no replacement.
        ("one is gone, the other has its name", vec![nic("ens3", 4)], ["-", "ens3"]),
        ("another board", vec![nic("eno1", 9), nic("eno2", 10)], ["-", "-"]),
        ("no cards at all", vec![], ["-", "-"]),
    ];
    for (what, present, expected) in cases {
        assert_eq!(names(&config, &remembered, &present), expected, "{what}");
    }
}

#[test]
fn without_a_record_names_count_and_no_card_that_is_given_by_its_address() {
    let config = config("{name: ens3}, {hw_addr: '52:54:00:00:00:04'}");
    let present = [nic("ens3", 4), nic("ens4", 5)];
    assert_eq!(names(&config, &RememberedCards::default(), &present), ["-", "ens3"]);
    assert_eq!(names(&config, &RememberedCards::default(), &[nic("ens3", 3), nic("x", 4)]), ["ens3", "x"]);
}

#[test]
fn only_an_address_that_is_the_cards_own_is_remembered() {
    let config = config(TWO);
    let drawn = Nic { temporary_mac: true, ..nic("ens3", 3) };
    // On some hypervisors a virtual function has the address of the card in front of it.
    let present = [drawn, nic("ens4", 4), nic("enP1p0s2", 4)];
    assert!(RememberedCards::default().after(&config, &present).is_empty());
    assert_eq!(names(&config, &installed(&config), &present), ["ens3", "ens4"]);
    let cards = CardSelectors::of(&config, &installed(&config), &present);
    assert_eq!((cards.address("ens4"), cards.name("ens4")), (None, "ens4"), "the address would mean both");
}

#[test]
fn a_boot_adds_to_the_record_only_when_every_named_card_is_there_and_a_person_replaces_it() {
    let config = config(TWO);
    let none = RememberedCards::default();
    assert_eq!(none.completed(&config, &[nic("ens3", 3)]), none);
    let whole = [nic("ens3", 3), nic("ens4", 4)];
    assert_eq!(none.completed(&config, &whole), installed(&config));
    let replaced = [nic("ens3", 9), nic("ens4", 4)];
    let remembered = installed(&config);
    assert_eq!(remembered.completed(&config, &replaced), remembered);
    assert_eq!(
        remembered.after(&config, &replaced).address("ens3").unwrap().to_string(),
        "52:54:00:00:00:09"
    );
    // A card that is out for repair is kept, and one that the document no longer names is dropped.
    assert_eq!(remembered.after(&config, &[nic("ens3", 3)]), remembered);
    let one = super::tests::config("{name: ens4}");
    let after = remembered.after(&one, &whole);
    assert_eq!((after.address("ens3"), after.address("ens4")), (None, remembered.address("ens4")));
}

#[test]
fn the_record_is_read_as_it_was_written_and_another_version_refused() {
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("node.yaml");
    assert_eq!(RememberedCards::beside(&document).unwrap(), RememberedCards::default());
    let remembered = installed(&config(TWO));
    assert!(remembered.keep_beside(&document).unwrap());
    assert!(!remembered.keep_beside(&document).unwrap());
    assert_eq!(RememberedCards::beside(&document).unwrap(), remembered);
    let path = directory.path().join(record::FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "{\n  \"version\": 1,\n  \"cards\": {\n    \"ens3\": \"52:54:00:00:00:03\",\n    \"ens4\": \"52:54:00:00:00:04\"\n  }\n}\n"
    );
    std::fs::write(&path, text.replace(": 1,", ": 2,")).unwrap();
    assert!(format!("{:#}", RememberedCards::beside(&document).unwrap_err()).contains("version 2"));
}

#[test]
fn what_is_missing_is_told_with_its_address_and_network_and_with_the_cards_that_are_there() {
    let text = "install: {mode: install, management_interface: {interfaces: [{name: ens3}]}, \
                networks: [{name: storage, interfaces: [{hw_addr: '52:54:00:00:00:05'}]}]}";
    let config = parse(text, "f").unwrap();
    let remembered = installed(&config);
    assert_eq!(MissingCards::of(&config, &remembered, &[nic("a", 3), nic("b", 5)]), None);
    let idle = Nic { carrier: None, driver: None, ..nic("enp1s0", 9) };
    let missing = MissingCards::of(&config, &remembered, &[idle]).unwrap();
    assert_eq!(
        missing.lines()[..3],
        [
            "NETWORK CARDS MISSING: ens3 (52:54:00:00:00:03) of network mgmt",
            "NETWORK CARDS MISSING: 52:54:00:00:00:05 of network storage",
            "Card in this machine: enp1s0 52:54:00:00:00:09 (driver not known, link not known: the card is down)",
        ]
    );
    assert!(missing.of_network("mgmt").unwrap().contains("ens3 (52:54:00:00:00:03)"));
    assert_eq!(missing.of_network("vms"), None);
    let none = MissingCards::of(&config, &remembered, &[]).unwrap();
    assert_eq!(none.there(), ["none that the kernel has a driver for"]);
}

proptest! {
    #[test]
    fn no_card_is_found_twice(before in arrangement(), after in arrangement()) {
        let config = config("{name: n0}, {name: n1}, {hw_addr: '52:54:00:00:00:02'}, {name: n3}");
        let remembered = RememberedCards::default().after(&config, &before);
        let found: Vec<_> = names(&config, &remembered, &after).into_iter().filter(|name| name != "-").collect();
        let unique: BTreeSet<_> = found.iter().collect();
        prop_assert_eq!(unique.len(), found.len(), "{:?} {:?}", remembered, found);
        // A remembered card is found wherever it is.
        for (wanted, found) in find(&config, &remembered, &after) {
            let there = wanted.address(&remembered).filter(|address| {
                after.iter().any(|nic| nic.mac == address.to_string())
            });
            prop_assert!(there.is_none() || matches!(found, FoundCard::ByAddress(_)), "{:?} {:?}", wanted, found);
        }
    }
}

/// Cards with names and addresses in any order, each once.
fn arrangement() -> impl Strategy<Value = Vec<Nic>> {
    let addresses = Just((0..6_u8).collect::<Vec<_>>()).prop_shuffle();
    (addresses, 0..=5_usize)
        .prop_map(|(addresses, count)| (0..count).map(|at| nic(&format!("n{at}"), addresses[at])).collect())
}
