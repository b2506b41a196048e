//! Network cards of the configuration against those of the machine.

use super::*;
use machine::inventory::Nic;

fn refused(cards: &str, nics: &[Nic]) -> Option<(Class, String)> {
    let text = format!("{{install: {{mode: install, profile: trial, {cards}}}}}");
    let config = model::config::parse(&text, "f").unwrap();
    let inventory = Inventory {
        disks: vec![disk("vda", ByteSize::gib(16))],
        nics: nics.to_vec(),
        ..Inventory::default()
    };
    let error = plan(&config, &inventory, &release().into(), GUID).err()?;
    Some((class_of(&error), render(&error)))
}

fn nic(name: &str, mac: &str) -> Nic {
    Nic {
        name: name.into(),
        mac: mac.into(),
        carrier: Some(true),
        speed: None,
        driver: Some("igb".into()),
        temporary_mac: false,
    }
}

fn nics() -> [Nic; 3] {
    [nic("ens3", "52:54:00:00:00:03"), nic("ens4", "52:54:00:00:00:04"), nic("ens5", "52:54:00:00:00:05")]
}

#[test]
fn a_card_that_is_named_and_given_by_its_address_is_a_mistake_wherever_it_stands() {
    for cards in [
        "management_interface: {interfaces: [{name: ens3}]}, \
         networks: [{name: store, interfaces: [{hw_addr: '52:54:00:00:00:03'}]}]",
        "management_interface: {interfaces: [{hw_addr: '52:54:00:00:00:03'}]}, \
         networks: [{name: store, interfaces: [{name: ens3}]}]",
        "management_interface: {interfaces: [{name: ens3}, {hw_addr: '52:54:00:00:00:03'}]}",
    ] {
        let (class, text) = refused(cards, &nics()).unwrap_or_else(|| panic!("{cards}"));
        assert_eq!(class, Class::Invalid);
        assert!(text.contains("ens3 (52:54:00:00:00:03, igb) is in two places: in network"), "{text}");
        assert!(text.contains("Other cards: ens4 (52:54:00:00:00:04, igb), ens5"), "{text}");
    }
    let apart = "management_interface: {interfaces: [{name: ens3}, {hw_addr: '52:54:00:00:00:04'}]}, \
                 networks: [{name: store, interfaces: [{name: ens5}]}]";
    assert_eq!(refused(apart, &nics()), None);
    // A card that is missing is not another one.
    assert_eq!(refused("management_interface: {interfaces: [{name: ens9}]}", &nics()), None);
}

#[test]
fn an_address_of_two_cards_is_refused_and_the_name_is_taken() {
    let twins = [nic("eth0", "00:15:5d:00:00:10"), nic("enP1p0s2", "00:15:5d:00:00:10")];
    let (class, text) =
        refused("management_interface: {interfaces: [{hw_addr: '00:15:5D:00:00:10'}]}", &twins).unwrap();
    assert_eq!(class, Class::Invalid);
    assert!(text.contains("2 network cards have the address 00:15:5d:00:00:10: eth0 ("), "{text}");
    assert!(text.contains("in place of hw_addr: {name: eth0} or {name: enP1p0s2}."), "{text}");
    for name in ["eth0", "enP1p0s2"] {
        assert_eq!(
            refused(&format!("management_interface: {{interfaces: [{{name: {name}}}]}}"), &twins),
            None
        );
    }
}
