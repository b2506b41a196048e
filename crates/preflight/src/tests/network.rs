//! The network of this machine, against servers on its loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread;

use super::*;
use crate::SystemNetwork;
use crate::{dns, ntp};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(300)
}

/// A server that gives `replies` to each datagram it gets, until it has served `count`. Returns its port.
fn serve(count: usize, replies: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> u16 {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 600];
        for _ in 0..count {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            for reply in replies(&buffer[..length]) {
                socket.send_to(&reply, from).unwrap();
            }
        }
        // A closed port would be another answer.
        thread::sleep(Duration::from_secs(10));
    });
    port
}

fn network(dns_port: u16, ntp_port: u16) -> SystemNetwork {
    SystemNetwork { dns_port, ntp_port, ..SystemNetwork::default() }
}

/// A port without a listener.
fn closed() -> u16 {
    UdpSocket::bind((HERE, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn a_name_server_is_asked_and_datagrams_that_answer_something_else_are_passed_over() {
    let port = serve(1, |asked| {
        let mut stranger = dns::tests::reply(asked, 3, &[]);
        stranger[0] ^= 0xff;
        vec![b"noise".to_vec(), stranger, dns::tests::reply(asked, 0, &[[192, 0, 2, 9]])]
    });
    let answer = network(port, 0).lookup(HERE, "a.example.org", soon());
    assert_eq!(answer, Ok(DnsAnswer::Addresses(vec![[192, 0, 2, 9].into()])));
}

#[test]
fn a_question_that_gets_lost_is_asked_again() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let port = serve(2, move |asked| {
        let first = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if first { vec![] } else { vec![dns::tests::reply(asked, 3, &[])] }
    });
    let until = Instant::now() + Duration::from_secs(10);
    assert_eq!(network(port, 0).lookup(HERE, "a.example.org", until), Ok(DnsAnswer::NoSuchName));
}

#[test]
fn silence_ends_in_time_and_a_closed_port_at_once() {
    let begun = Instant::now();
    let answer = network(serve(2, |_| vec![]), 0).lookup(HERE, "a.b", soon());
    assert_eq!(answer, silent());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let answer = network(closed(), 0).lookup(HERE, "a.b", Instant::now() + Duration::from_secs(10));
    assert_eq!(answer, Err(NetworkTrouble::Silent("refuses connections".into())));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn what_this_system_has_no_way_to_reach_is_not_silent() {
    // Broadcasts need a socket that allows them, so the kernel refuses.
    let answer = network(53, 123).lookup(Ipv4Addr::BROADCAST, "a.b", soon());
    assert!(matches!(answer, Err(NetworkTrouble::Unable(_))), "{answer:?}");
}

#[test]
fn a_time_server_is_asked_for_the_offset() {
    let port = serve(1, |asked| {
        vec![vec![0; 48], ntp::tests::reply(asked, 2, SystemTime::now() + Duration::from_secs(3600))]
    });
    let Ok(TimeAnswer::Offset(offset)) = network(0, port).time(HERE, soon()) else { panic!("no offset") };
    assert!(offset.behind && offset.by.as_secs().abs_diff(3600) <= 2, "{offset:?}");
    let port = serve(1, |asked| vec![ntp::tests::reply(asked, 0, SystemTime::now())]);
    assert_eq!(network(0, port).time(HERE, soon()), Ok(TimeAnswer::Unsynchronised));
    assert_eq!(network(0, serve(2, |_| vec![])).time(HERE, soon()), silent());
}

#[test]
fn nobody_is_called_silent_who_was_not_waited_for() {
    let (network, over) = (network(closed(), closed()), Instant::now());
    let unable =
        |trouble| matches!(trouble, NetworkTrouble::Unable(why) if why.contains("the time for all checks"));
    assert!(unable(network.lookup(HERE, "a.b", over).unwrap_err()));
    assert!(unable(network.time(HERE, over).unwrap_err()));
    assert!(unable(network.proxy((HERE, closed()).into(), false, over).unwrap_err()));
    assert!(unable(network.holder([192, 0, 2, 77].into(), "lo", over).unwrap_err()));
}

/// A server that sends `words` on one connection. Returns its port.
fn tcp(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(words);
    });
    address
}

#[test]
fn a_proxy_is_what_answers_in_http() {
    let network = SystemNetwork::default();
    assert_eq!(network.proxy(tcp(b"HTTP/1.1 400 Bad Request\r\n\r\n"), false, soon()), Ok(()));
    for words in [&b"SSH-2.0-OpenSSH\r\n"[..], b"", b"HT"] {
        let answer = network.proxy(tcp(words), false, soon());
        assert_eq!(answer, Err(NetworkTrouble::Silent("accepts connections but does not speak HTTP".into())));
    }
    assert_eq!(network.proxy(tcp(b""), true, soon()), Ok(()));
    let closed = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap();
    assert_eq!(
        network.proxy(closed, false, soon()),
        Err(NetworkTrouble::Silent("refuses connections".into()))
    );
}

#[test]
fn the_system_s_name_servers_are_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "# a\nsearch b\nnameserver 192.0.2.1\nnameserver ::1\nnameserver\t192.0.2.2\n")
        .unwrap();
    let network = SystemNetwork { resolv_conf: file.path().into(), ..SystemNetwork::default() };
    assert_eq!(network.resolvers(), [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
    let network = SystemNetwork { resolv_conf: "/nonexistent".into(), ..SystemNetwork::default() };
    assert!(network.resolvers().is_empty());
}

#[test]
fn an_address_of_this_system_is_its_own_and_a_card_that_is_not_there_cannot_be_asked() {
    let network = SystemNetwork::default();
    assert_eq!(network.holder(HERE, "lo", soon()), Ok(AddressHolder::Own));
    let answer = network.holder([192, 0, 2, 77].into(), "nonexistent0", soon());
    assert!(matches!(answer, Err(NetworkTrouble::Unable(_))), "{answer:?}");
}

#[test]
fn neighbours_are_told_apart_by_card_and_by_whether_they_have_answered() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let table = "IP address HW type Flags HW address Mask Device\n\
        192.0.2.7 0x1 0x2 52:54:00:aa:bb:cc * ens1\n\
        192.0.2.8 0x1 0x0 00:00:00:00:00:00 * ens1\n\
        192.0.2.9 0x1 0x2 52:54:00:aa:bb:cc * ens2\n";
    fs::write(file.path(), table).unwrap();
    let network = SystemNetwork { neighbours: file.path().into(), ..SystemNetwork::default() };
    let of = |last| network.neighbour([192, 0, 2, last].into(), "ens1");
    assert_eq!(of(7), Some(Some("52:54:00:aa:bb:cc".into())));
    assert_eq!(of(8), Some(None));
    assert_eq!(of(9), None);
}

/// Runs a script of commands, which has to succeed.
fn run(command: &str) {
    let status = std::process::Command::new("sh").args(["-ec", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

/// This thread in a network of its own, and a child, with its process ID, in another one.
fn two_networks() -> (std::process::Child, u32) {
    use nix::sched::{CloneFlags, unshare};
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let other = std::process::Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    let pid = other.id();
    (other, pid)
}

/// Two machines on one cable: this thread in a network of its own, with a card that has no address, and a child.
#[test]
#[ignore = "needs root and the program ip"]
fn the_kernel_asks_for_an_address_from_a_card_that_has_none() {
    let (mut other, pid) = two_networks();
    run(&format!(
        "ip link set lo up; ip link add name va type veth peer name vb; ip link set vb netns {pid}; ip link set va up
         nsenter -t {pid} -n ip link set vb up; nsenter -t {pid} -n ip addr add 192.0.2.7/24 dev vb"
    ));
    let neighbours = "/proc/thread-self/net/arp".into();
    let network = SystemNetwork { neighbours, ..SystemNetwork::default() };
    let of = |last| network.holder([192, 0, 2, last].into(), "va", Instant::now() + Duration::from_secs(5));
    let (taken, free) = (of(7), of(8));
    run("ip link set va down");
    let down = of(9);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(matches!(taken, Ok(AddressHolder::Other(_))), "{taken:?}");
    assert_eq!(free, Ok(AddressHolder::Nobody));
    assert!(matches!(down, Err(NetworkTrouble::Unable(_))), "{down:?}");
}

#[test]
fn a_machine_that_answers_no_echo_request_is_measured_by_connections() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let open = listener.local_addr().unwrap().port();
    let until = || Instant::now() + Duration::from_secs(20);
    // This machine answers echo requests, too, if this process may send them.
    for port in [open, closed()] {
        let trips = SystemNetwork::default().round_trips(HERE, &[port], until()).unwrap();
        assert!(trips.sent >= 5 && trips.lost() == 0, "{trips:?}");
        assert!(trips.median() < Duration::from_millis(500), "{trips:?}");
    }
    let over = SystemNetwork::default().round_trips(HERE, &[open], Instant::now());
    assert!(matches!(over, Err(NetworkTrouble::Unable(why)) if why.contains("the time for all checks")));
}

#[test]
fn the_largest_packet_of_a_device_is_not_known_without_its_file() {
    let devices = tempfile::tempdir().unwrap();
    let network = SystemNetwork { devices: devices.path().into(), ..SystemNetwork::default() };
    let answer = network.path_mtu(HERE, soon());
    assert!(matches!(answer, Err(NetworkTrouble::Unable(_))), "{answer:?}");
}

/// Two machines on one cable, of which the other one takes smaller packets and says nothing of it, as a switch port.
#[test]
#[ignore = "needs root and the program ip"]
fn the_largest_packet_that_arrives_is_found_where_nobody_tells() {
    let (mut other, pid) = two_networks();
    run(&format!(
        "ip link set lo up; ip link add name va type veth peer name vb; ip link set vb netns {pid}
         ip link set va up; ip addr add 192.0.2.1/24 dev va
         nsenter -t {pid} -n ip link set vb mtu 1400 up; nsenter -t {pid} -n ip addr add 192.0.2.7/24 dev vb"
    ));
    let devices = tempfile::tempdir().unwrap();
    fs::create_dir(devices.path().join("va")).unwrap();
    fs::write(devices.path().join("va/mtu"), "1500\n").unwrap();
    let network = SystemNetwork { devices: devices.path().into(), ..SystemNetwork::default() };
    let until = || Instant::now() + Duration::from_secs(30);
    let of = |last| network.path_mtu([192, 0, 2, last].into(), until());
    let (narrow, absent) = (of(7), of(9));
    run(&format!("nsenter -t {pid} -n ip link set vb mtu 1500"));
    let wide = of(7);
    let near = network.round_trips([192, 0, 2, 7].into(), &[], until());
    let silent = network.round_trips([192, 0, 2, 9].into(), &[6443], until());
    // A machine that drops echo requests has the port of the API only.
    run(&format!("nsenter -t {pid} -n sh -c 'echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all'"));
    let refused = network.round_trips([192, 0, 2, 7].into(), &[6443], until());
    let unmeasured = of(7);
    other.kill().unwrap();
    other.wait().unwrap();
    // The kernel lets frames with the tag of a VLAN through as well, four bytes.
    let PathMtu { device, sent, carried } = narrow.unwrap();
    assert_eq!((device.as_str(), sent), ("va", 1500));
    assert!((1400..=1404).contains(&carried), "{carried}");
    assert_eq!(wide, Ok(PathMtu { device: "va".into(), sent: 1500, carried: 1500 }));
    assert!(matches!(absent, Err(NetworkTrouble::Unable(_) | NetworkTrouble::Silent(_))), "{absent:?}");
    let near = near.unwrap();
    assert_eq!((near.sent, near.lost()), (20, 0));
    assert!(matches!(silent, Err(NetworkTrouble::Silent(_))), "{silent:?}");
    assert_eq!(refused.unwrap().sent, 5, "a refused connection is an answer");
    assert!(matches!(unmeasured, Err(NetworkTrouble::Unable(_))), "{unmeasured:?}");
}
