//! Questions to servers and neighbours, each with a time limit, behind a trait that tests replace.
//!
//! There are three results: an answer, no good answer ([`NetworkTrouble::Silent`], which is a finding), or that this system was
//! not able to ask ([`NetworkTrouble::Unable`], which is none: a live system without an address says nothing about a name
//! server).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::ifaddrs::InterfaceAddress;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{setsockopt, sockopt};

pub use super::dns::DnsAnswer;
pub use super::ntp::TimeAnswer;
pub use super::path::{PathMtu, RoundTrips};
use super::socket_errors::{in_time, left, timed_out, trouble};
use super::{dns, ntp, path};
use base::files::read_text;
use cluster::join_query;
use cluster::join_query::{ClusterAnswers, JoinQuery};
use machine::network_trouble::NetworkTrouble;
use model::config::Cidr;

/// The machine that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressHolder {
    Nobody,
    Own,
    /// The machine with this hardware address.
    Other(String),
}

/// Asks servers and neighbours. Every question ends by `until`.
pub trait Network: Sync {
    /// The name servers from DHCP.
    fn resolvers(&self) -> Vec<Ipv4Addr>;
    /// The networks that this system is in, each with its device.
    fn networks(&self) -> Vec<(String, Cidr)>;
    fn lookup(&self, server: Ipv4Addr, name: &str, until: Instant) -> Result<DnsAnswer, NetworkTrouble>;
    fn time(&self, server: Ipv4Addr, until: Instant) -> Result<TimeAnswer, NetworkTrouble>;
    /// Connects to a proxy, and unless it uses TLS, waits for an answer in HTTP.
    fn proxy(&self, address: SocketAddr, tls: bool, until: Instant) -> Result<(), NetworkTrouble>;
    /// Asks the machines behind a card who has an address.
    fn holder(&self, address: Ipv4Addr, card: &str, until: Instant) -> Result<AddressHolder, NetworkTrouble>;
    /// Asks the cluster that a node is to join.
    fn cluster(&self, question: &JoinQuery, until: Instant) -> ClusterAnswers;
    /// Measures the way to a machine and back, by connections to `ports` if it answers no echo requests.
    fn round_trips(
        &self,
        address: Ipv4Addr,
        ports: &[u16],
        until: Instant,
    ) -> Result<RoundTrips, NetworkTrouble>;
    /// Looks for the largest packet that reaches a machine and comes back whole.
    fn path_mtu(&self, address: Ipv4Addr, until: Instant) -> Result<PathMtu, NetworkTrouble>;
}

/// The network of another machine, which cannot be asked from here.
#[derive(Clone, Copy, Debug)]
pub struct Offline;

impl Offline {
    fn trouble() -> NetworkTrouble {
        NetworkTrouble::Unable("can only be asked from the machine itself".into())
    }

    fn unable<T>() -> Result<T, NetworkTrouble> {
        Err(Self::trouble())
    }
}

impl Network for Offline {
    fn resolvers(&self) -> Vec<Ipv4Addr> {
        Vec::new()
    }

    fn networks(&self) -> Vec<(String, Cidr)> {
        Vec::new()
    }

    fn lookup(&self, _: Ipv4Addr, _: &str, _: Instant) -> Result<DnsAnswer, NetworkTrouble> {
        Self::unable()
    }

    fn time(&self, _: Ipv4Addr, _: Instant) -> Result<TimeAnswer, NetworkTrouble> {
        Self::unable()
    }

    fn proxy(&self, _: SocketAddr, _: bool, _: Instant) -> Result<(), NetworkTrouble> {
        Self::unable()
    }

    fn holder(&self, _: Ipv4Addr, _: &str, _: Instant) -> Result<AddressHolder, NetworkTrouble> {
        Self::unable()
    }

    fn cluster(&self, question: &JoinQuery, _: Instant) -> ClusterAnswers {
        ClusterAnswers::nothing(question, Self::trouble())
    }

    fn round_trips(&self, _: Ipv4Addr, _: &[u16], _: Instant) -> Result<RoundTrips, NetworkTrouble> {
        Self::unable()
    }

    fn path_mtu(&self, _: Ipv4Addr, _: Instant) -> Result<PathMtu, NetworkTrouble> {
        Self::unable()
    }
}

/// How long one datagram is waited for; it is sent twice.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a proxy may take to answer.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel asks for a neighbour three times, a second apart (arp(7), `mcast_solicit` and `retrans_time_ms`).
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_millis(3200);

#[derive(Clone, Debug)]
pub struct SystemNetwork {
    pub resolv_conf: PathBuf,
    pub neighbours: PathBuf,
    /// The kernel's directory of network devices.
    pub devices: PathBuf,
    pub dns_port: u16,
    pub ntp_port: u16,
}

impl Default for SystemNetwork {
    fn default() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            neighbours: "/proc/net/arp".into(),
            devices: "/sys/class/net".into(),
            dns_port: 53,
            ntp_port: 123,
        }
    }
}

impl Network for SystemNetwork {
    fn resolvers(&self) -> Vec<Ipv4Addr> {
        let text = read_text(&self.resolv_conf).unwrap_or_default();
        let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse().ok());
        servers.collect()
    }

    fn networks(&self) -> Vec<(String, Cidr)> {
        let cards = nix::ifaddrs::getifaddrs().into_iter().flatten();
        let cards = cards.filter(|card| !card.flags.contains(InterfaceFlags::IFF_LOOPBACK));
        let network = |card: InterfaceAddress| {
            let (address, mask) =
                (card.address?.as_sockaddr_in()?.ip(), card.netmask?.as_sockaddr_in()?.ip());
            let length = u8::try_from(u32::from(mask).leading_ones()).ok()?;
            Some((card.interface_name, Cidr::containing(address, length)))
        };
        cards.filter_map(network).collect()
    }

    fn lookup(&self, server: Ipv4Addr, name: &str, until: Instant) -> Result<DnsAnswer, NetworkTrouble> {
        // An answer with another number is dropped, so any number that changes will do.
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let id = u16::try_from(clock.subsec_nanos() >> 8 & 0xffff).unwrap_or_default();
        let query = dns::query(id, name)
            .ok_or_else(|| NetworkTrouble::Unable(format!("{name} is not a valid name")))?;
        let server = (server, self.dns_port).into();
        ask(server, until, || query.clone(), dns::answer)
    }

    fn time(&self, server: Ipv4Addr, until: Instant) -> Result<TimeAnswer, NetworkTrouble> {
        let sent = std::cell::Cell::new(SystemTime::now());
        let query = || {
            sent.set(SystemTime::now());
            ntp::query(sent.get()).to_vec()
        };
        let read = |asked: &[u8], got: &[u8]| ntp::answer(asked, got, sent.get(), SystemTime::now());
        ask((server, self.ntp_port).into(), until, query, read)
    }

    fn proxy(&self, address: SocketAddr, tls: bool, until: Instant) -> Result<(), NetworkTrouble> {
        in_time(until)?;
        let timeout = left(until.min(Instant::now() + TCP_TIMEOUT));
        let mut stream = TcpStream::connect_timeout(&address, timeout).map_err(trouble)?;
        if tls {
            return Ok(());
        }
        stream.set_read_timeout(Some(timeout)).map_err(trouble)?;
        stream.set_write_timeout(Some(timeout)).map_err(trouble)?;
        // A proxy answers this request in HTTP in any case; the request has no effect.
        let request = format!("OPTIONS * HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(trouble)?;
        let mut beginning = [0; 5];
        let http = stream.read_exact(&mut beginning).is_ok() && beginning == *b"HTTP/";
        if http {
            Ok(())
        } else {
            Err(NetworkTrouble::Silent("accepts connections but does not speak HTTP".into()))
        }
    }

    fn holder(&self, address: Ipv4Addr, card: &str, until: Instant) -> Result<AddressHolder, NetworkTrouble> {
        if is_own(address) {
            return Ok(AddressHolder::Own);
        }
        in_time(until)?;
        poke(address, card)
            .map_err(|error| NetworkTrouble::Unable(format!("cannot be asked for: {error}")))?;
        let until = until.min(Instant::now() + NEIGHBOUR_TIMEOUT);
        let mut asked = false;
        loop {
            match self.neighbour(address, card) {
                Some(Some(holder)) => return Ok(AddressHolder::Other(holder)),
                Some(None) => asked = true,
                None => {}
            }
            if Instant::now() >= until {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let unasked =
            || NetworkTrouble::Unable(format!("was not asked for: the kernel sends no ARP on {card}"));
        if asked { Ok(AddressHolder::Nobody) } else { Err(unasked()) }
    }

    fn cluster(&self, question: &JoinQuery, until: Instant) -> ClusterAnswers {
        join_query::ask(question, until)
    }

    fn round_trips(
        &self,
        address: Ipv4Addr,
        ports: &[u16],
        until: Instant,
    ) -> Result<RoundTrips, NetworkTrouble> {
        path::round_trips(address, ports, until)
    }

    fn path_mtu(&self, address: Ipv4Addr, until: Instant) -> Result<PathMtu, NetworkTrouble> {
        path::path_mtu(&self.devices, address, until)
    }
}

impl SystemNetwork {
    /// The kernel's entry for a neighbour (proc_net(5)): its hardware address once it has answered.
    pub(super) fn neighbour(&self, address: Ipv4Addr, card: &str) -> Option<Option<String>> {
        /// The entry is complete (`ATF_COM`).
        const COMPLETE: u32 = 2;
        let text = read_text(&self.neighbours).ok()?;
        let lines = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let entry = |line: Vec<&str>| match line[..] {
            [ip, _, flags, mac, _, device] if ip == address.to_string() && device == card => {
                let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
                Some((flags & COMPLETE != 0).then(|| mac.to_owned()))
            }
            _ => None,
        };
        lines.into_iter().find_map(entry)
    }
}

/// Whether a card of this system has the address.
fn is_own(address: Ipv4Addr) -> bool {
    let mut own = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|card| card.address);
    own.any(|own| own.as_sockaddr_in().is_some_and(|own| own.ip() == address))
}

/// Makes the kernel ask who has `address`, whatever its routes are.
///
/// A datagram on a socket that is bound to a card and does not route goes to a neighbour even when this system has no address
/// (`ip_route_output_key_hash_rcu` in the kernel's net/ipv4/route.c); the ARP request is then the probe of RFC 5227, with a
/// sender of 0.0.0.0. If a machine has the address, an empty datagram reaches its discard port.
fn poke(address: Ipv4Addr, card: &str) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(card))?;
    setsockopt(&socket, sockopt::DontRoute, &true)?;
    socket.send_to(&[], (address, 9)).map(drop)
}

/// Sends a datagram at most twice and waits for one that `read` accepts as the answer.
fn ask<T>(
    server: SocketAddr,
    until: Instant,
    query: impl Fn() -> Vec<u8>,
    read: impl Fn(&[u8], &[u8]) -> Option<T>,
) -> Result<T, NetworkTrouble> {
    in_time(until)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(trouble)?;
    // A connected socket gets errors for unreachable ports and drops datagrams from other senders.
    socket.connect(server).map_err(trouble)?;
    let mut buffer = [0; 1500];
    for _ in 0..2 {
        let asked = query();
        socket.send(&asked).map_err(trouble)?;
        let until = until.min(Instant::now() + DATAGRAM_TIMEOUT);
        while Instant::now() < until {
            socket.set_read_timeout(Some(left(until))).map_err(trouble)?;
            match socket.recv(&mut buffer) {
                Ok(length) => match read(&asked, &buffer[..length]) {
                    Some(answer) => return Ok(answer),
                    None => continue,
                },
                Err(error) if timed_out(&error) => break,
                Err(error) => return Err(trouble(error)),
            }
        }
    }
    Err(NetworkTrouble::Silent("does not answer".into()))
}
