//! Echo requests of ICMP (RFC 792), whole: none of their packets is divided on its way.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use super::socket_errors::timed_out;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// Of IP without options and of ICMP.
const HEADER_BYTES: usize = 20 + ICMP_BYTES;
const ICMP_BYTES: usize = 8;
const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// The largest packet of IP.
const PACKET_BYTES_MAX: usize = 65_535;

/// The kernel call that needs `unsafe`.
mod probing {
    #![allow(unsafe_code)]

    use std::os::fd::{AsRawFd, OwnedFd};

    use nix::Result;
    use nix::errno::Errno;
    use nix::libc;

    /// Forbids to divide packets, and does not believe what the kernel has learned of their path (`IP_PMTUDISC_PROBE`, ip(7)).
    pub(super) fn set(socket: &OwnedFd) -> Result<()> {
        let value = libc::IP_PMTUDISC_PROBE;
        let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or_default();
        // SAFETY: the kernel reads one integer of ours, whose length is passed with it, during the call; the descriptor is borrowed.
        let done = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value, length)
        };
        Errno::result(done).map(drop)
    }
}

/// A socket for requests to one machine.
pub(super) struct EchoSocket {
    socket: UdpSocket,
    /// Whether it sees every ICMP packet of the machine, with the header of IP.
    raw: bool,
    /// What the replies to this socket have. The kernel puts its own into those that are not raw.
    id: u16,
}

impl EchoSocket {
    /// # Errors
    /// This process may not send them, or there is no route.
    pub(super) fn open(address: Ipv4Addr) -> io::Result<Self> {
        static IDS: AtomicU16 = AtomicU16::new(1);
        let open = |kind| socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp);
        // Whoever `net.ipv4.ping_group_range` names may have such a socket (icmp(7)), and root a raw one.
        let (socket, raw) = match open(SockType::Datagram) {
            Ok(socket) => (socket, false),
            Err(_) => (open(SockType::Raw)?, true),
        };
        probing::set(&socket)?;
        let socket = UdpSocket::from(socket);
        socket.connect(SocketAddrV4::new(address, 0))?;
        Ok(Self { socket, raw, id: IDS.fetch_add(1, Ordering::Relaxed) })
    }

    /// Sends a request whose packet has `bytes` bytes with the header of IP, and waits for its reply until `until`. Whether there was one:
    /// none, too, if the packet is too large for its path.
    ///
    /// # Errors
    /// It cannot be sent, or a machine on the way says that the other one cannot be reached.
    pub(super) fn exchange(&self, sequence: u16, bytes: usize, until: Instant) -> io::Result<bool> {
        let sent = self.socket.send(&request(self.id, sequence, bytes));
        if sent.as_ref().is_err_and(is_too_large) {
            return Ok(false);
        }
        sent?;
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut buffer) {
                Ok(length) if self.is_reply(&buffer[..length], sequence) => return Ok(true),
                Ok(_) => {}
                Err(error) if timed_out(&error) => {}
                Err(error) if is_too_large(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn is_reply(&self, packet: &[u8], sequence: u16) -> bool {
        let message = match self.raw {
            true => without_ip(packet),
            false => Some(packet),
        };
        let Some([kind, code, _, _, id @ .., high, low]) =
            message.and_then(|message| message.get(..ICMP_BYTES))
        else {
            return false;
        };
        let own = !self.raw || id == self.id.to_be_bytes();
        (*kind, *code) == (REPLY, 0) && own && u16::from_be_bytes([*high, *low]) == sequence
    }
}

fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EMSGSIZE as i32)
}

/// The message of ICMP in a packet of IP.
fn without_ip(packet: &[u8]) -> Option<&[u8]> {
    let words = usize::from(packet.first()? & 0x0f);
    packet.get(words * 4..)
}

/// A request in a packet of so many bytes, at least those of the headers.
fn request(id: u16, sequence: u16, bytes: usize) -> Vec<u8> {
    let mut message = vec![REQUEST, 0, 0, 0];
    message.extend(id.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.resize(ICMP_BYTES + bytes.saturating_sub(HEADER_BYTES), 0x5a);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Of the Internet protocols (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_length_of_its_packet_and_a_checksum_that_fits() {
        for bytes in [HEADER_BYTES, 29, 576, 1500] {
            let message = request(0x1234, 7, bytes);
            assert_eq!(message.len() + 20, bytes);
            assert_eq!(checksum(&message), 0, "the sum over a message with its checksum");
            assert_eq!(&message[4..8], [0x12, 0x34, 0, 7]);
        }
        assert_eq!(request(1, 1, 0).len(), ICMP_BYTES);
        // The example of RFC 1071, section 3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    fn socket_of(raw: bool) -> EchoSocket {
        EchoSocket { socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), raw, id: 0x1234 }
    }

    #[test]
    fn a_reply_is_known_by_its_number_and_where_all_are_seen_by_its_id() {
        let reply = |id: u16, sequence: u16| {
            let mut message = request(id, sequence, 64);
            message[0] = REPLY;
            message
        };
        let plain = socket_of(false);
        assert!(plain.is_reply(&reply(0x1234, 7), 7) && plain.is_reply(&reply(9, 7), 7));
        assert!(!plain.is_reply(&reply(0x1234, 8), 7) && !plain.is_reply(&request(0x1234, 7, 64), 7));
        let raw = socket_of(true);
        let in_ip = |message: Vec<u8>, words: u8| {
            let mut packet = vec![0; usize::from(words) * 4];
            packet[0] = 0x40 | words;
            [packet, message].concat()
        };
        assert!(
            raw.is_reply(&in_ip(reply(0x1234, 7), 5), 7) && raw.is_reply(&in_ip(reply(0x1234, 7), 15), 7)
        );
        assert!(!raw.is_reply(&in_ip(reply(0x1235, 7), 5), 7), "another program's");
        for cut in [&[][..], &[0x45], &[0x4f; 20]] {
            assert!(!raw.is_reply(cut, 7));
        }
    }
}
