//! The path to another machine: how long packets take there and back, how many are lost, and how large they may be.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::echo::EchoSocket;
use super::socket_errors::{in_time, left, trouble};
use base::files::read_text;
use machine::network_trouble::NetworkTrouble;

/// How many requests are sent.
const REQUESTS: u16 = 20;
/// From one to the next.
const INTERVAL: Duration = Duration::from_millis(50);
/// A reply that takes longer counts as lost.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// A machine that has not answered so many requests does not answer at all.
const UNANSWERED: u16 = 3;
/// The bytes of a request, as ping(8) sends it.
const REQUEST_BYTES: usize = 84;
/// How many connections are made to a machine that answers no request.
const CONNECTIONS: usize = 5;
/// Every machine takes a packet of this size (RFC 791), in bytes.
const SMALLEST_MTU: usize = 576;
/// Larger packets are of no network, in bytes.
const LARGEST_MTU: usize = 9216;
/// For the reply to a packet that may be too large; it is sent twice.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// Packets that went to a machine and came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    pub sent: usize,
    /// In their order; those that are missing were lost.
    pub times: Vec<Duration>,
}

impl RoundTrips {
    #[must_use]
    pub fn lost(&self) -> usize {
        self.sent.saturating_sub(self.times.len())
    }

    /// Half of the packets took no longer.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

/// How large packets to a machine may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The network device that leads there.
    pub device: String,
    /// What the device sends at most, in bytes.
    pub sent: usize,
    /// What comes back, in bytes.
    pub carried: usize,
}

/// Sends echo requests to `address`; where none is answered, connects to the `ports` in turn. A connection that is refused is an answer.
pub(super) fn round_trips(
    address: Ipv4Addr,
    ports: &[u16],
    until: Instant,
) -> Result<RoundTrips, NetworkTrouble> {
    in_time(until)?;
    // A process that may not send requests can connect.
    let echoes = EchoSocket::open(address).and_then(|socket| echoes(&socket, until));
    match echoes {
        Ok(trips) if !trips.times.is_empty() => return Ok(trips),
        _ => {}
    }
    let mut last = NetworkTrouble::Silent("does not answer".into());
    for port in ports {
        match connections(SocketAddr::from((address, *port)), until) {
            Ok(trips) => return Ok(trips),
            Err(trouble) => last = trouble,
        }
    }
    Err(last)
}

fn echoes(socket: &EchoSocket, until: Instant) -> io::Result<RoundTrips> {
    let mut trips = RoundTrips { sent: 0, times: Vec::new() };
    for sequence in 0..REQUESTS {
        let begun = Instant::now();
        if begun >= until || trips.times.is_empty() && sequence == UNANSWERED {
            break;
        }
        trips.sent += 1;
        if socket.exchange(sequence, REQUEST_BYTES, until.min(begun + REPLY_TIMEOUT))? {
            trips.times.push(begun.elapsed());
        }
        thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
    }
    Ok(trips)
}

/// A connection takes the time of a packet there and back; one whose first packet was lost takes a second more (RFC 6298, 2).
fn connections(address: SocketAddr, until: Instant) -> Result<RoundTrips, NetworkTrouble> {
    let mut trips = RoundTrips { sent: 0, times: Vec::new() };
    for _ in 0..CONNECTIONS {
        in_time(until)?;
        let begun = Instant::now();
        let timeout = left(until.min(begun + 2 * REPLY_TIMEOUT));
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(trouble(error)),
        }
        trips.sent += 1;
        trips.times.extend(Some(begun.elapsed()).filter(|time| *time < REPLY_TIMEOUT));
    }
    Ok(trips)
}

/// Sends packets that may not be divided, the largest that the device sends first, and looks for the largest that comes back.
/// `devices` is `/sys/class/net`.
pub(super) fn path_mtu(devices: &Path, address: Ipv4Addr, until: Instant) -> Result<PathMtu, NetworkTrouble> {
    in_time(until)?;
    let (device, sent) = device_to(devices, address)?;
    let socket = EchoSocket::open(address).map_err(trouble)?;
    let mut sequence = 0_u16;
    let mut carries = |bytes: usize| -> Result<bool, NetworkTrouble> {
        for _ in 0..2 {
            in_time(until)?;
            sequence = sequence.wrapping_add(1);
            if socket.exchange(sequence, bytes, until.min(Instant::now() + PROBE_TIMEOUT)).map_err(trouble)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if !carries(SMALLEST_MTU.min(sent))? {
        return Err(NetworkTrouble::Unable("answers no echo requests, by which packets are measured".into()));
    }
    if carries(sent)? {
        return Ok(PathMtu { device, sent, carried: sent });
    }
    let (mut carried, mut lost) = (SMALLEST_MTU.min(sent), sent);
    while lost - carried > 1 {
        let middle = carried + (lost - carried) / 2;
        match carries(middle)? {
            true => carried = middle,
            false => lost = middle,
        }
    }
    Ok(PathMtu { device, sent, carried })
}

/// The device that leads to an address, and the largest packet that it sends, in bytes.
fn device_to(devices: &Path, address: Ipv4Addr) -> Result<(String, usize), NetworkTrouble> {
    let unable = |why: &str| NetworkTrouble::Unable(why.to_owned());
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(trouble)?;
    // Nothing is sent: the kernel chooses the address of the device to which its route leads.
    socket.connect((address, 9)).map_err(trouble)?;
    let own = socket.local_addr().map_err(trouble)?.ip();
    let cards = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut cards = cards.filter(|card| {
        card.address.is_some_and(|card| card.as_sockaddr_in().is_some_and(|card| own == card.ip()))
    });
    let card = cards.next().ok_or_else(|| unable("is reached by no network device of this system"))?;
    let mtu = read_text(&devices.join(&card.interface_name).join("mtu")).ok();
    let mtu = mtu.and_then(|mtu| mtu.trim().parse().ok());
    let mtu: usize = mtu.ok_or_else(|| unable("is reached by a device whose largest packet is unknown"))?;
    Ok((card.interface_name, mtu.min(LARGEST_MTU)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_packets_took_no_longer_and_those_without_a_time_were_lost() {
        let times = [3, 1, 900].map(Duration::from_millis).to_vec();
        let trips = RoundTrips { sent: 5, times };
        assert_eq!((trips.median(), trips.lost()), (Duration::from_millis(3), 2));
        assert_eq!(RoundTrips { sent: 3, times: Vec::new() }.median(), Duration::ZERO);
    }
}
