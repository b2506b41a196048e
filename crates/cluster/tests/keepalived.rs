//! The real keepalived reads the configuration that a node gets, and moves the address when the API server of its holder ends.
//! Nodes are networks of their own on a bridge, with an API server that says no more than that it is ready.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::process::{Command, Stdio};

/// What a node of the document of golden files gets; its device is `mgmt-br.100`, the virtual address 192.0.2.10.
const CONFIGURATION: &str = include_str!("../src/configuration/golden/keepalived.conf");
const ALONE: &str = include_str!("../src/configuration/golden/keepalived-alone.conf");
const RELAXED: &str = include_str!("../src/configuration/golden/keepalived-relaxed.conf");

/// Two nodes, 192.0.2.11 and 192.0.2.12, as networks of these numbers.
const NODES: &str = r#"
set -eu
mount -t tmpfs none /run
mkdir /run/netns
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 1 \
  -subj /CN=test 2>openssl.log
ip link add br0 type bridge
ip link set br0 up
for node in 11 12; do
  ip netns add $node
  ip link add port$node type veth peer name mgmt-br.100 netns $node
  ip link set port$node master br0 up
  ip -n $node link set lo up
  ip -n $node link set mgmt-br.100 up
  ip -n $node address add 192.0.2.$node/24 dev mgmt-br.100
done
serve() {
  ip netns exec $1 openssl s_server -quiet -www -accept 6443 -key key.pem -cert cert.pem >/dev/null 2>&1 </dev/null &
  echo $! >server$1
}
carry() {
  ip netns exec $1 keepalived --dont-fork --log-console --vrrp --use-file keepalived$1.conf --pid /run/main$1 \
    --vrrp_pid /run/vrrp$1 >keepalived$1.log 2>&1 &
}
holds() { ip -n $1 -oneline address show dev mgmt-br.100 | grep -q '192\.0\.2\.10/32'; }
holder() { for node in 11 12; do if holds $node; then echo $node; fi; done; }
# Waits up to $1 tenths of a second until the holder is as the rest says.
await() {
  tenths=$1
  shift
  until [ "$(holder)" "$@" ]; do
    tenths=$((tenths - 1))
    [ $tenths -gt 0 ] || { echo "the holder is [$(holder)], not $*" >&2; cat keepalived*.log >&2; exit 1; }
    sleep 0.1
  done
}
reload() { cp $2.conf keepalived$1.conf; kill -HUP $(cat /run/main$1); }
# The holder is $1 for $2 tenths of a second.
stays() {
  tenths=$2
  while [ $tenths -gt 0 ]; do await 1 = $1; tenths=$((tenths - 1)); sleep 0.1; done
}
"#;

/// A command in a network and mounts of its own, as root there.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::Uid::effective().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.env("PATH", std::env::join_paths(testing::programs::directories()).unwrap());
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// Why keepalived cannot run here.
fn missing() -> Option<String> {
    for program in ["keepalived", "unshare", "ip", "openssl"] {
        if testing::programs::find(program).is_none() {
            return Some(format!("{program} is not on this machine"));
        }
    }
    let able = apart().args(["ip", "link", "add", "br0", "type", "bridge"]).output().unwrap();
    (!able.status.success()).then(|| String::from_utf8_lossy(&able.stderr).trim().to_owned())
}

/// What keepalived complains about. Its exit status says nothing: it ends itself by a signal when it has looked.
fn complaints(configuration: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("keepalived.conf"), configuration).unwrap();
    let script = "ip link add mgmt-br.100 type veth peer name other && keepalived --config-test --use-file keepalived.conf";
    let output = apart().args(["sh", "-c", script]).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| *line != "Terminated").collect::<Vec<_>>().join("\n")
}

#[test]
fn keepalived_has_nothing_to_complain_about() {
    if let Some(why) = missing() {
        return testing::programs::leave_out("keepalived_has_nothing_to_complain_about", &why);
    }
    for configuration in [CONFIGURATION, ALONE, RELAXED] {
        assert_eq!(complaints(configuration), "");
    }
    // It would say so.
    for (damaged, complaint) in [
        (CONFIGURATION.replace("nopreempt", "nopreemption"), "Unknown keyword 'nopreemption'"),
        (CONFIGURATION.replace("router_id 10", "router_id 256"), "outside range [1, 255]"),
    ] {
        let said = complaints(&damaged);
        assert!(said.contains(complaint), "{said}");
    }
}

#[test]
fn the_address_follows_ready_api_servers_and_stays_where_it_is() {
    let script = r#"
cp several.conf keepalived11.conf
cp several.conf keepalived12.conf
carry 11
carry 12
sleep 5
await 1 = ""
serve 11
await 150 = 11
serve 12
sleep 3
kill $(cat server11)
await 80 = 12
serve 11
sleep 5
await 1 = 12
ip link set port12 down
kill -KILL $(cat /run/main12) $(cat /run/vrrp12)
# The second of them may have ended by itself and taken the address away.
ip -n 12 address flush to 192.0.2.10/32 dev mgmt-br.100
await 80 = 11
"#;
    run_nodes("the_address_follows_ready_api_servers_and_stays_where_it_is", script);
}

#[test]
fn the_only_server_keeps_the_address_until_a_second_one_can_take_it() {
    let script = r#"
cp alone.conf keepalived11.conf
cp several.conf keepalived12.conf
carry 11
await 80 = 11
serve 11
sleep 3
kill $(cat server11)
stays 11 60
serve 11
sleep 3
# A second server joins, and the address stays where it is.
reload 11 several
stays 11 20
carry 12
serve 12
stays 11 40
kill $(cat server11)
await 80 = 12
# The first one leaves.
reload 12 alone
stays 12 20
kill $(cat server12)
stays 12 60
"#;
    run_nodes("the_only_server_keeps_the_address_until_a_second_one_can_take_it", script);
}

/// Runs the script beside two nodes, with the configurations of the only server and of one of several.
fn run_nodes(test: &str, script: &str) {
    // The check runs as a user whom a namespace of an unprivileged user does not have.
    let why = missing().or_else(|| {
        (!nix::unistd::Uid::effective().is_root()).then(|| "only root can start it as on a node".to_owned())
    });
    if let Some(why) = why {
        return testing::programs::leave_out(test, &why);
    }
    let directory = tempfile::tempdir().unwrap();
    for (name, configuration) in [("several.conf", CONFIGURATION), ("alone.conf", ALONE)] {
        fs::write(directory.path().join(name), configuration).unwrap();
    }
    let output = apart()
        .args(["sh", "-c", &format!("{NODES}{script}")])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
