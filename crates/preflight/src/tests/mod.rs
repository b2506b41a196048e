//! A machine made of files, a network made of answers.

mod checks;
mod cluster_networks;
mod join;
mod limits;
mod members;
mod network;
mod page;
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use super::network::{AddressHolder, DnsAnswer, Network, PathMtu, RoundTrips, TimeAnswer};
use super::{CHECKS, Check, CheckOutcome, CheckSubject, MachineFacts, PlannedNode};
use base::size::ByteSize;
use cluster::join_query::{ClusterAnswers, ClusterPeer, JoinQuery};
use machine::clock::ClockOffset;
use machine::inventory::{Inventory, Nic, Roots};
use machine::network_trouble::NetworkTrouble;
use model::config::{Cidr, Interface, Profile};
use testing::disks::disk;

/// A machine made of files.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A machine that passes every check of a production node.
    fn fit() -> Self {
        let machine = Self::new();
        machine.file("sys/devices/system/cpu/online", "0-31\n");
        machine.bytes("sys/firmware/dmi/tables/DMI", &super::dmi::tests::table(&[0x7000, 0x7000, 0x7000]));
        machine.file("proc/meminfo", "MemTotal:       87241523 kB\nMemFree: 1 kB\n");
        machine.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx ssse3\n");
        machine.file("dev/kvm", "");
        machine.file("sys/firmware/efi/fw_platform_size", "64\n");
        machine.file("sys/class/dmi/id/product_uuid", "4c4c4544-0042-3510-8052-b4c04f4a5a32\n");
        machine.file("sys/class/dmi/id/product_name", "Server 9\n");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.0.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    fn facts(&self) -> MachineFacts {
        MachineFacts::scan(&self.roots(), inventory())
    }

    fn roots(&self) -> Roots {
        let root = self.0.path();
        Roots::below(root)
    }
}

/// A solid-state disk of 960 GB and two cards, of which the first is fast and the second has no cable.
fn inventory() -> Inventory {
    let nics = vec![nic("ens1", 1, Some(true), Some(25_000)), nic("ens2", 2, Some(false), None)];
    Inventory { disks: vec![disk("sda", ByteSize::bytes(960_000_000_000))], nics, ..Inventory::default() }
}

fn nic(name: &str, number: u8, carrier: Option<bool>, speed: Option<u32>) -> Nic {
    let mac = format!("52:54:00:00:00:{number:02x}");
    Nic { name: name.into(), mac, carrier, speed, driver: None, temporary_mac: false }
}

/// A network with these answers, and no others.
#[derive(Default)]
struct Answers {
    resolvers: Vec<Ipv4Addr>,
    networks: Vec<(String, Cidr)>,
    lookup: BTreeMap<(Ipv4Addr, String), Result<DnsAnswer, NetworkTrouble>>,
    time: BTreeMap<Ipv4Addr, Result<TimeAnswer, NetworkTrouble>>,
    proxy: Option<Result<(), NetworkTrouble>>,
    holder: BTreeMap<(Ipv4Addr, String), Result<AddressHolder, NetworkTrouble>>,
    /// The nodes of the cluster to join, if it answers.
    members: Option<Vec<ClusterPeer>>,
    trips: BTreeMap<Ipv4Addr, Result<RoundTrips, NetworkTrouble>>,
    mtu: BTreeMap<Ipv4Addr, Result<PathMtu, NetworkTrouble>>,
    /// The questions, in words.
    asked: Mutex<Vec<String>>,
}

fn silent<T>() -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Silent("does not answer".into()))
}

fn unable<T>() -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Unable("cannot be reached".into()))
}

impl Network for Answers {
    fn resolvers(&self) -> Vec<Ipv4Addr> {
        self.resolvers.clone()
    }

    fn networks(&self) -> Vec<(String, Cidr)> {
        self.networks.clone()
    }

    fn lookup(&self, server: Ipv4Addr, name: &str, _: Instant) -> Result<DnsAnswer, NetworkTrouble> {
        self.asked.lock().unwrap().push(format!("lookup {server} {name}"));
        self.lookup.get(&(server, name.to_owned())).cloned().unwrap_or_else(silent)
    }

    fn time(&self, server: Ipv4Addr, _: Instant) -> Result<TimeAnswer, NetworkTrouble> {
        self.time.get(&server).cloned().unwrap_or_else(silent)
    }

    fn proxy(&self, address: SocketAddr, tls: bool, _: Instant) -> Result<(), NetworkTrouble> {
        self.asked.lock().unwrap().push(format!("proxy {address} {tls}"));
        self.proxy.clone().unwrap()
    }

    fn holder(&self, address: Ipv4Addr, card: &str, _: Instant) -> Result<AddressHolder, NetworkTrouble> {
        let answer = self.holder.get(&(address, card.to_owned())).cloned();
        if answer.is_none() && card.contains("-br") {
            return Err(NetworkTrouble::Unable("has no such device".into()));
        }
        self.asked.lock().unwrap().push(format!("holder {address} {card}"));
        answer.unwrap_or(Ok(AddressHolder::Nobody))
    }

    fn cluster(&self, question: &JoinQuery, _: Instant) -> ClusterAnswers {
        let silent = ClusterAnswers::nothing(question, NetworkTrouble::Silent("does not answer".into()));
        match &self.members {
            Some(members) => ClusterAnswers { server: Ok(()), members: Ok(members.clone()), ..silent },
            None => silent,
        }
    }

    fn round_trips(
        &self,
        address: Ipv4Addr,
        ports: &[u16],
        _: Instant,
    ) -> Result<RoundTrips, NetworkTrouble> {
        self.asked.lock().unwrap().push(format!("round trips {address} {ports:?}"));
        self.trips.get(&address).cloned().unwrap_or_else(silent)
    }

    fn path_mtu(&self, address: Ipv4Addr, _: Instant) -> Result<PathMtu, NetworkTrouble> {
        self.mtu.get(&address).cloned().unwrap_or_else(unable)
    }
}

/// The middle of the year 2027.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_814_400_000)
}

fn offset(seconds: u64, behind: bool) -> Result<TimeAnswer, NetworkTrouble> {
    Ok(TimeAnswer::Offset(ClockOffset { by: Duration::from_secs(seconds), behind }))
}

fn check(name: &str) -> &'static Check {
    CHECKS.iter().find(|check| check.name == name).unwrap()
}

/// The outcome of one check.
fn outcome(name: &str, facts: &MachineFacts, node: &PlannedNode, network: &dyn Network) -> CheckOutcome {
    let cluster = OnceLock::new();
    let until = Instant::now() + Duration::from_secs(1);
    let subject = CheckSubject { facts, node, network, cluster: &cluster, now: now(), until };
    (check(name).run)(&subject)
}

/// One word and the text.
fn told(outcome: &CheckOutcome) -> (&'static str, &str) {
    match outcome {
        CheckOutcome::Passed { detail } => ("passed", detail),
        CheckOutcome::Found(finding) if finding.mild => ("mild", &finding.message),
        CheckOutcome::Found(finding) => ("found", &finding.message),
        CheckOutcome::CouldNotRun { why } => ("could not run", why),
        CheckOutcome::Skipped { why } => ("skipped", why),
    }
}

#[track_caller]
fn expect(outcome: &CheckOutcome, word: &str, part: &str) {
    let (found, text) = told(outcome);
    assert!(found == word && text.contains(part), "{found}: {text}, not {word}: {part}");
}

fn trial() -> PlannedNode {
    PlannedNode { profile: Profile::Trial, ..PlannedNode::default() }
}

fn named(names: &[&str]) -> Vec<Interface> {
    names.iter().map(|name| Interface { name: Some(name.parse().unwrap()), hw_addr: None }).collect()
}
