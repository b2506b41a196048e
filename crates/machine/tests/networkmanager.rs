//! The real NetworkManager reads every profile that `apply` writes and has nothing to complain about. It runs in a
//! network of its own, on a D-Bus of its own, with state that goes away with it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use machine::network;
use machine::nics::CardSelectors;
use model::config::{InstallConfig, parse};

/// Glue between two daemons: everything happens below the current directory. `/run` and `/var/lib` are hidden
/// because NetworkManager keeps state there whatever its arguments say.
const START: &str = r#"
set -eu
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir /run/NetworkManager /var/lib/NetworkManager
dbus-daemon --config-file=bus.conf --nofork --nopidfile --nosyslog 2>bus.log & bus=$!
waited=0
wait_for() { until "$@" >/dev/null 2>&1; do waited=$((waited + 1)); [ $waited -lt 600 ]; sleep 0.1; done; }
wait_for test -S bus
export DBUS_SYSTEM_BUS_ADDRESS="unix:path=$PWD/bus"
NetworkManager --debug --config="$PWD/nm.conf" --config-dir="$PWD/conf.d" --system-config-dir="$PWD/conf.d" \
  --intern-config="$PWD/intern.conf" --state-file="$PWD/state" >nm.log 2>&1 & manager=$!
wait_for nmcli general status
"#;

const STOP: &str = "\nkill $manager $bus\nwait\n";

/// Loads the profiles. The state says that the network is off, so that no device is made of them.
const LOAD: &str = r#"
nmcli connection load "$PWD"/profiles/* >load.log 2>&1
nmcli --terse --fields FILENAME connection >loaded
"#;

/// Three cards with the addresses of the test, under names that no document has. NetworkManager waits for udev,
/// which is not there, unless `/sys` cannot be written to, as in a container.
const CARDS: &str = r#"
set -eu
mount -t sysfs -o ro none /sys
for card in 6 7 8; do
  ip link add renamed$card type veth peer name far$card
  ip link set renamed$card address 52:54:00:12:34:5$card
  ip link set far$card up
done
"#;

/// Waits until NetworkManager has tried both cards of the document and looked at the third one.
const TRY: &str = r#"
seen() { grep -q "$1" nm.log; }
wait_for seen "device (renamed6): Activation: .*nqrust-mgmt-port0"
wait_for seen "device (renamed7): Activation: .*nqrust-mgmt-port1"
wait_for seen "device (renamed8): state change: unavailable -> disconnected"
ip -json address show dev renamed8 >further
"#;

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><limit name="max_replies_per_connection">50000</limit><type>system</type><listen>unix:path=DIR/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/><allow user="*"/></policy></busconfig>
"#;

/// A command in a network and mounts of its own, as root there.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::Uid::effective().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child"]);
    command.stdin(Stdio::null());
    command
}

/// Why NetworkManager cannot run here.
fn missing() -> Option<String> {
    for program in ["NetworkManager", "nmcli", "dbus-daemon", "unshare", "ip"] {
        if testing::programs::find(program).is_none() {
            return Some(format!("{program} is not on this machine"));
        }
    }
    let able = apart().args(["mount", "-t", "tmpfs", "none", "/run"]).output().unwrap();
    (!able.status.success()).then(|| String::from_utf8_lossy(&able.stderr).trim().to_owned())
}

/// Writes profiles and lets a NetworkManager of their own do something with them; returns the directory of it all.
fn run(profiles: &[(String, Vec<u8>)], networking: bool, script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for name in ["profiles", "conf.d"] {
        fs::create_dir(path.join(name)).unwrap();
    }
    for (name, bytes) in profiles {
        let path = path.join("profiles").join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }
    let files = network::files(&InstallConfig::default(), &CardSelectors::default());
    let settings = files.iter().find(|file| file.path == "etc/NetworkManager/conf.d/10-nqrust.conf").unwrap();
    fs::write(path.join("conf.d/10-nqrust.conf"), &settings.bytes).unwrap();
    fs::write(path.join("bus.conf"), BUS.replace("DIR", &path.display().to_string())).unwrap();
    let config = format!(
        "[main]\nplugins=keyfile\ndns=none\nrc-manager=unmanaged\nauth-polkit=false\n\
         [keyfile]\npath={}/profiles\n[logging]\nlevel=INFO\n",
        path.display()
    );
    fs::write(path.join("nm.conf"), config).unwrap();
    fs::write(path.join("state"), format!("[main]\nNetworkingEnabled={networking}\n")).unwrap();
    let output = apart()
        .args(["sh", "-c", script])
        .env("PATH", std::env::join_paths(testing::programs::directories()).unwrap())
        .env("LC_ALL", "C.UTF-8")
        .current_dir(path)
        .output()
        .unwrap();
    let log = fs::read_to_string(path.join("nm.log")).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{log}");
    assert!(log.contains("Loaded settings plugin: keyfile"), "{said}\n{log}");
    directory
}

/// What NetworkManager complains about when it loads the profiles.
fn complaints(profiles: &[(String, Vec<u8>)]) -> Vec<String> {
    let directory = run(profiles, false, &format!("{START}set +e{LOAD}{STOP}exit 0"));
    let path = directory.path();
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    let mut complaints: BTreeSet<String> = read("nm.log")
        .lines()
        .filter(|line| line.contains("<warn>") && (line.contains("keyfile") || line.contains("settings:")))
        .map(|line| {
            line.split_once("] ").map_or(line, |(_, text)| text).replace(&*path.to_string_lossy(), "")
        })
        .collect();
    complaints.extend(read("load.log").lines().map(str::to_owned));
    let loaded = read("loaded");
    for (name, _) in profiles {
        if !loaded.lines().any(|line| line.ends_with(&format!("/{name}"))) {
            complaints.insert(format!("{name} is not loaded"));
        }
    }
    complaints.into_iter().collect()
}

/// The profiles of a document, named by the case. Each gets identities of its own, so that all cases fit into one
/// NetworkManager.
fn profiles(case: &str, document: &str) -> Vec<(String, Vec<u8>)> {
    let config = parse(document, case).unwrap_or_else(|error| panic!("{case}: {error}\n{document}"));
    let files = network::files(&config, &CardSelectors::default());
    let files = files.iter().filter(|file| file.path.ends_with(".nmconnection"));
    files
        .map(|file| {
            assert_eq!(file.mode, 0o600, "{case}: NetworkManager passes over what others can read");
            let name = file.path.rsplit('/').next().unwrap();
            let text = String::from_utf8(file.bytes.clone()).unwrap();
            let lines = text.lines().map(|line| match line.strip_prefix("uuid=") {
                Some(uuid) => {
                    let uuid: uuid::Uuid = uuid.parse().unwrap();
                    format!("uuid={}\n", uuid::Uuid::new_v5(&uuid, case.as_bytes()))
                }
                None => format!("{line}\n"),
            });
            (format!("{case}-{name}"), lines.collect::<String>().into_bytes())
        })
        .collect()
}

const DNS: &str = "os: {dns_nameservers: [192.0.2.53, 192.0.2.54]}\n";
const STATIC: &str =
    "    method: static\n    ip: 192.0.2.11\n    subnet_mask: 255.255.255.0\n    gateway: 192.0.2.1\n";

/// Documents that differ in everything a profile depends on.
fn cases() -> Vec<(String, String)> {
    let cards = "    interfaces: [{hw_addr: '52:54:00:12:34:56'}, {name: ens4}]\n";
    let management = |rest: &str| format!("install:\n  management_interface:\n{cards}{rest}");
    let bond = |options: &str| management(&format!("    bond_options: {{{options}}}\n"));
    let mut cases = vec![
        ("nothing".to_owned(), "{}".to_owned()),
        ("dns".to_owned(), DNS.to_owned() + &management(STATIC)),
        ("vlan".to_owned(), management("    vlan_id: 100\n    mtu: 9000\n")),
        (
            "static-vlan".to_owned(),
            DNS.to_owned() + &management(&format!("{STATIC}    vlan_id: 4094\n    mtu: 1500\n")),
        ),
        (
            "bond-arp".to_owned(),
            bond(
                "mode: 1, primary: ens4, primary_reselect: 2, arp_interval: 500, arp_ip_target: '192.0.2.1,192.0.2.2', \
                 arp_validate: 6, arp_all_targets: 1, num_grat_arp: 3, num_unsol_na: 3, all_slaves_active: 1, \
                 resend_igmp: 2, use_carrier: 0",
            ),
        ),
        (
            "bond-lacp".to_owned(),
            bond(
                "mode: 4, lacp_rate: 1, xmit_hash_policy: 5, ad_select: 1, min_links: 1, ad_actor_sys_prio: 4096, \
                 ad_actor_system: '52:54:00:aa:00:02', ad_user_port_key: 7, peer_notif_delay: 200",
            ),
        ),
        ("bond-in-turn".to_owned(), bond("mode: 0, packets_per_slave: 4")),
        ("bond-unsolicited".to_owned(), bond("mode: 1, num_unsol_na: 4, peer_notif_delay: 300")),
        ("bond-tlb".to_owned(), bond("mode: 5, tlb_dynamic_lb: 0, lp_interval: 2, xmit_hash_policy: 1")),
    ];
    for mode in
        ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]
    {
        let delays = "miimon: 50, updelay: 100, downdelay: 200";
        cases.push((format!("mode-{mode}"), bond(&format!("mode: {mode}"))));
        cases.push((format!("delays-{mode}"), bond(&format!("mode: {mode}, {delays}"))));
    }
    for mode in ["active-backup", "balance-tlb", "balance-alb"] {
        cases.push((format!("primary-{mode}"), bond(&format!("mode: {mode}, primary: ens4"))));
    }
    for policy in ["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac"] {
        for mode in ["balance-xor", "802.3ad", "balance-tlb"] {
            let options = format!("mode: {mode}, xmit_hash_policy: {policy}");
            cases.push((format!("hash-{mode}-{policy}"), bond(&options)));
        }
    }
    for rate in ["slow", "fast"] {
        cases.push((format!("rate-{rate}"), bond(&format!("mode: 802.3ad, lacp_rate: {rate}"))));
    }
    let mut further = management("");
    for (name, rest) in [
        ("vms", "method: none"),
        ("storage", "method: static, ip: 198.51.100.2, subnet_mask: 255.255.255.0, mtu: 9000"),
        ("backup", "method: dhcp, vlan_id: 7"),
    ] {
        let separator = if further.contains("networks:") { "" } else { "  networks:\n" };
        let _ = writeln!(further, "{separator}  - {{name: {name}, interfaces: [{{name: {name}0}}], {rest}}}");
    }
    cases.push(("further".to_owned(), further));
    cases
}

#[test]
fn networkmanager_loads_every_profile_without_complaint() {
    if let Some(why) = missing() {
        return testing::programs::leave_out("networkmanager_loads_every_profile_without_complaint", &why);
    }
    let profiles: Vec<_> = cases().iter().flat_map(|(case, document)| profiles(case, document)).collect();
    assert!(profiles.len() > 100, "{} profiles", profiles.len());
    assert_eq!(complaints(&profiles), Vec::<String>::new());
}

#[test]
fn networkmanager_complains_where_a_profile_is_wrong() {
    if let Some(why) = missing() {
        return testing::programs::leave_out("networkmanager_complains_where_a_profile_is_wrong", &why);
    }
    let damaged: Vec<_> = profiles("damaged", &cases()[2].1)
        .into_iter()
        .map(|(name, bytes)| {
            let text = String::from_utf8(bytes).unwrap();
            let text = text
                .replace("miimon=", "miimoon=")
                .replace("52:54:", "zz:54:")
                .replace("parent=mgmt-br", "parent=");
            (name, text.into_bytes())
        })
        .collect();
    let told = complaints(&damaged).join("\n");
    for part in ["miimoon", "mac-address", "nqrust-mgmt-vlan.nmconnection is not loaded"] {
        assert!(told.contains(part), "{part} in:\n{told}");
    }
}

#[test]
fn a_card_is_found_by_its_address_whatever_its_name_and_a_further_card_is_up_without_an_address() {
    let able =
        || apart().args(["sh", "-c", CARDS]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
    let why = missing().or_else(|| {
        let able = able();
        (!able.status.success()).then(|| String::from_utf8_lossy(&able.stderr).trim().to_owned())
    });
    if let Some(why) = why {
        return testing::programs::leave_out("a_card_is_found_by_its_address_whatever_its_name_...", &why);
    }
    let document = "install:\n  management_interface:\n    interfaces:\n    - {hw_addr: '52:54:00:12:34:56'}\n    \
                    - {hw_addr: '52:54:00:12:34:57'}\n";
    let directory = run(&profiles("cards", document), true, &format!("{CARDS}{START}{TRY}{STOP}exit 0"));
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let further: serde_json::Value = serde_json::from_str(&read("further")).unwrap();
    let flags = further[0]["flags"].as_array().unwrap();
    assert!(flags.contains(&"UP".into()), "{further}");
    assert_eq!(further[0]["addr_info"].as_array().unwrap().len(), 0, "{further}");
    assert!(!read("nm.log").contains("(renamed8): Activation"), "no profile is for the third card");
}
