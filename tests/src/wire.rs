//! A network cable with many ends: frames that one machine sends arrive at all others.
//!
//! QEMU carries Ethernet frames in UDP datagrams. Its own multicast network returns a machine's own frames to it, which
//! a bridge takes for a loop; here they are not returned.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

const MAX_DATAGRAM_BYTES: usize = 1 << 16;

/// A wire; it is removed when dropped.
#[derive(Debug)]
pub struct Wire {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Wire {
    /// Creates a wire on 127.0.0.1.
    pub fn lay() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("laying a wire")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let (port, cut) = (socket.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&cut);
        thread::spawn(move || carry(&socket, &seen));
        Ok(Self { port, cut })
    }

    /// The UDP port that frames are sent to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A free port for one end.
    pub fn end() -> Result<u16> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
        Ok(socket.local_addr()?.port())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut.store(true, Ordering::Relaxed);
    }
}

/// Forwards frames. Every sender is added as an end of the wire.
fn carry(socket: &UdpSocket, cut: &AtomicBool) {
    let mut ends: Vec<SocketAddr> = Vec::new();
    let mut frame = vec![0; MAX_DATAGRAM_BYTES];
    while !cut.load(Ordering::Relaxed) {
        // Sending to a machine that has ended causes an error here; the others go on.
        let Ok((length, from)) = socket.recv_from(&mut frame) else { continue };
        if !ends.contains(&from) {
            ends.push(from);
        }
        for end in ends.iter().filter(|end| **end != from) {
            let _ = socket.send_to(&frame[..length], end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reaches_every_other_end_and_not_its_sender() {
        let wire = Wire::lay().unwrap();
        let ends: Vec<_> = (0..3).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        for end in &ends {
            end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            end.connect((Ipv4Addr::LOCALHOST, wire.port())).unwrap();
        }
        let heard = |end: &UdpSocket| {
            let mut frame = [0; 100];
            let length = end.recv(&mut frame).unwrap();
            frame[..length].to_vec()
        };
        ends[0].send(b"first").unwrap();
        ends[1].send(b"second").unwrap();
        assert_eq!(heard(&ends[0]), b"second");
        ends[2].send(b"third").unwrap();
        assert_eq!((heard(&ends[0]), heard(&ends[1])), (b"third".to_vec(), b"third".to_vec()));
        ends[0].send(b"fourth").unwrap();
        assert_eq!((heard(&ends[1]), heard(&ends[2])), (b"fourth".to_vec(), b"fourth".to_vec()));
    }
}
