//! Tests of the rules about all machines of a cluster.

use super::{findings, three, with};

#[test]
fn every_mistake_of_the_whole_is_told_in_its_place() {
    let worker = "  - {name: w, role: worker, machines: [{hostname: w1, ip: 192.0.2.21, macs: ['52:54:00:00:00:21']}]}\n";
    let witness = "  - {name: v, role: witness, machines: [{hostname: v1, ip: 192.0.2.31, macs: ['52:54:00:00:00:31']}]}\n";
    let n3 = "      - {hostname: n3, ip: 192.0.2.13, macs: ['52:54:00:00:00:13']}\n";
    let n2 = "      - {hostname: n2, ip: 192.0.2.12, macs: ['52:54:00:00:00:12']}\n";
    let replicas =
        |count: u32| format!("automatic: true\n    harvester: {{storage_class: {{replica_count: {count}}}}}");
    let cases: Vec<(String, &[&str])> = vec![
        // Names.
        (three(&[("hostname: n2", "hostname: n1")]), &["duplicate-name 21 pools[0].machines[1].hostname"]),
        (three(&[("hostname: n2, ", "")]), &["missing-value 21 pools[0].machines[1].hostname"]),
        (three(&[("  name: east\n", "")]), &["missing-value 2 cluster.name"]),
        (with("  - {name: control, role: worker}\n"), &["duplicate-name 23 pools[1].name"]),
        (with("  - {machines: []}\n"), &["missing-value 23 pools[1].name", "missing-value 23 pools[1].role"]),
        // Addresses.
        (three(&[("2.12", "2.11")]), &["duplicate-address 21 pools[0].machines[1].ip"]),
        (three(&[("00:12", "00:11")]), &["duplicate-hardware-address 21 pools[0].machines[1].macs[0]"]),
        (three(&[("vip: 192.0.2.10", "vip: 192.0.2.12")]), &["unusable-vip 10 cluster.install.vip"]),
        (three(&[("vip: 192.0.2.10", "vip: 192.0.2.11")]), &["unusable-vip 10 cluster.install.vip"]),
        (three(&[("vip: 192.0.2.10", "vip: 192.0.3.10")]), &["~vip-elsewhere 10 cluster.install.vip"]),
        (
            three(&[("gateway: 192.0.2.1}", "gateway: 192.0.2.13}")]),
            &["gateway-unreachable 11 cluster.install.management_interface.gateway"],
        ),
        (three(&[("    vip: 192.0.2.10\n", "")]), &["missing-value 9 cluster.install.vip"]),
        (
            three(&[("  token", "  server_url: https://east.example.org\n  token")]),
            &["uncertified-name 3 cluster.server_url"],
        ),
        (
            three(&[("  token", "  server_url: https://192.0.2.12\n  token")]),
            &["unusable-address 3 cluster.server_url"],
        ),
        // One plan.
        (
            three(&[("ip: 192.0.2.12", "ip: 192.0.3.12")]),
            &[
                "gateway-unreachable 11 cluster.install.management_interface.gateway",
                "different-subnet 21 pools[0].machines[1].ip",
            ],
        ),
        (
            three(&[(
                n2,
                "      - {hostname: n2, ip: 192.0.2.12, macs: ['52:54:00:00:00:12'], \
                          overrides: {install: {management_interface: {mtu: 1400}}}}\n",
            )]),
            &["different-mtu 21 pools[0].machines[1].overrides.install.management_interface.mtu"],
        ),
        (
            three(&[(
                n2,
                "      - {hostname: n2, ip: 192.0.2.12, macs: ['52:54:00:00:00:12'], \
                          overrides: {install: {management_interface: {vlan_id: 7}}}}\n",
            )]),
            &["~different-vlan 21 pools[0].machines[1].overrides.install.management_interface.vlan_id"],
        ),
        // Counts.
        (
            three(&[(n3, "")]),
            &[
                "~even-members 16 pools",
                "~too-many-copies 9 cluster.install.harvester.storage_class.replica_count",
            ],
        ),
        (three(&[(n3, ""), ("automatic: true", &replicas(2))]), &["~even-members 17 pools"]),
        (three(&[(n3, ""), ("automatic: true", &replicas(2))]) + witness, &[]),
        (
            three(&[(n3, ""), (n2, ""), ("automatic: true", &replicas(1))]) + witness,
            &["~misfit-witness 22 pools[1].role"],
        ),
        (with(witness), &["~misfit-witness 23 pools[1].role"]),
        (with(worker), &[]),
        (
            with(
                "  - {name: x, role: management, machines: [{hostname: n4, ip: 192.0.2.14, macs: ['52:54:00:00:00:14']}]}\n",
            ),
            &["~even-members 16 pools"],
        ),
        (three(&[("role: management", "role: worker")]), &["no-creator 16 pools"]),
        (
            three(&[
                ("{hostname: n1", "{create: true, hostname: n1"),
                ("{hostname: n3", "{create: true, hostname: n3"),
            ]),
            &["two-creators 22 pools[0].machines[2].create"],
        ),
        (
            with(&worker.replace("{hostname", "{create: true, hostname")),
            &["wrong-role 23 pools[1].machines[0].create"],
        ),
        // Templates.
        (three(&[("template: large", "template: larg")]), &["unknown-template 18 pools[0].template"]),
        ("pools: []\n".to_owned(), &["missing-value 1 cluster.name", "missing-value 1 pools"]),
    ];
    let mut different = Vec::new();
    for (text, expected) in cases {
        let mut found = findings(&text);
        let mut expected: Vec<_> = expected.iter().map(|line| (*line).to_owned()).collect();
        found.sort();
        expected.sort();
        if found != expected {
            different.push(format!("{text}{found:#?}, not {expected:#?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn rarer_mistakes_of_the_whole_are_told_too() {
    let override_of_n2 = |network: &str| {
        let own = format!("ip: 192.0.2.12, overrides: {{install: {{management_interface: {{{network}}}}}}},");
        three(&[("ip: 192.0.2.12,", &own)])
    };
    let many: String = (4..9)
        .map(|n| format!("      - {{hostname: n{n}, ip: 192.0.2.4{n}, macs: ['52:54:00:00:00:4{n}']}}\n"))
        .collect();
    let hardware = three(&[
        ("vip: 192.0.2.10", "vip_mode: dhcp\n    vip_hw_addr: 52:54:00:00:00:13"),
        ("  token", "  server_url: https://c.example.org\n  sans: [c.example.org]\n  token"),
    ]);
    // Where the first node has its address from DHCP, only the others tell the network.
    let dhcp = three(&[
        ("ip: 192.0.2.11, ", ""),
        ("subnet_mask: 255.255.255.0, gateway: 192.0.2.1", ""),
        ("ip: 192.0.2.13, ", ""),
        (
            "ip: 192.0.2.12,",
            "ip: 192.0.3.12, overrides: {install: {management_interface: {subnet_mask: 255.255.255.0, \
             gateway: 192.0.3.1}}},",
        ),
    ]);
    let same_card = three(&[
        (
            "{device: /dev/disk/by-id/a}",
            "{management_interface: {interfaces: [{hw_addr: 52:54:00:00:00:99}]}}",
        ),
        (", macs: ['52:54:00:00:00:11']", ""),
        (", macs: ['52:54:00:00:00:12']", ""),
        (", macs: ['52:54:00:00:00:13']", ""),
    ]);
    let cases = [
        (with(&many), vec!["~many-members pools"]),
        (override_of_n2("gateway: 192.0.2.13"), vec!["duplicate-address pools[0].machines[2].ip"]),
        (hardware, vec!["duplicate-hardware-address cluster.install.vip_hw_addr"]),
        (dhcp, vec!["unusable-vip cluster.install.vip", "~mixed-methods pools[0].machines[1].ip"]),
        (
            same_card,
            vec![
                "duplicate-hardware-address templates.large.install.management_interface.interfaces[0].hw_addr",
            ],
        ),
        (
            three(&[
                ("ip: 192.0.2.11,", "create: false, ip: 192.0.2.11,"),
                ("hostname: n2", "create: false, hostname: n2"),
            ]),
            vec![],
        ),
    ];
    for (text, expected) in cases {
        let found: Vec<_> = findings(&text)
            .iter()
            .map(|line| {
                let words: Vec<_> = line.split(' ').collect();
                format!("{} {}", words[0], words[2])
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn two_witnesses_are_one_too_many() {
    let text = three(&[("      - {hostname: n3, ip: 192.0.2.13, macs: ['52:54:00:00:00:13']}\n", "")])
        + "  - name: v\n    role: witness\n    machines:\n\
           \x20     - {hostname: v1, ip: 192.0.2.31, macs: ['52:54:00:00:00:31']}\n\
           \x20     - {hostname: v2, ip: 192.0.2.32, macs: ['52:54:00:00:00:32']}\n";
    assert!(
        findings(&text).contains(&"second-witness 26 pools[1].machines[1].hostname".to_owned()),
        "{:?}",
        findings(&text)
    );
}
