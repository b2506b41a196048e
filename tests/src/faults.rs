//! A relay on 127.0.0.1 between a client and a server that injects faults: cuts, stalls, changed bytes.
//!
//! It knows nothing of HTTP: a fault is an offset in what the server sends on one connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It ends after the server has sent so many bytes.
    Cut(u64),
    /// It stays open, but nothing comes after so many bytes.
    Stall(u64),
    /// The lowest bit of the byte at this offset is flipped.
    Corrupt(u64),
}

/// A running relay; it ends when dropped.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    to: u16,
    faults: Mutex<Vec<Fault>>,
    always: Mutex<Option<Fault>>,
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Relay {
    /// Relays from any free port to the port `to` of this host.
    pub fn start(to: u16) -> Result<Self> {
        Self::start_on(0, to)
    }

    /// As [`Relay::start`], from the port `port`.
    pub fn start_on(port: u16, to: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(ProxyState {
            to,
            faults: Mutex::default(),
            always: Mutex::default(),
            sent: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let relay = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || drop(shared.relay(stream)));
            }
        });
        Ok(relay)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next connections get these faults, one each.
    pub fn next(&self, faults: &[Fault]) {
        let mut waiting = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = faults.iter().rev().copied().collect();
    }

    /// Every further connection gets this fault.
    pub fn always(&self, fault: Option<Fault>) {
        *self.shared.always.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Bytes sent to clients since the last call.
    pub fn sent(&self) -> u64 {
        self.shared.sent.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // A last connection wakes the listener, which then ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl ProxyState {
    fn relay(&self, client: TcpStream) -> io::Result<()> {
        let waiting = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fault = waiting.or(*self.always.lock().unwrap_or_else(PoisonError::into_inner));
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to))?;
        let (mut asking, mut asked) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut asking, &mut asked);
            let _ = asked.shutdown(Shutdown::Write);
        });
        let passed = self.answer(server, client.try_clone()?, fault);
        let _ = client.shutdown(Shutdown::Both);
        passed
    }

    fn answer(&self, mut server: TcpStream, mut client: TcpStream, fault: Option<Fault>) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        let mut position = 0_u64;
        loop {
            let count = server.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let mut bytes = &mut buffer[..count];
            let end = position + count as u64;
            match fault {
                Some(Fault::Cut(place) | Fault::Stall(place)) if place < end => {
                    let left = usize::try_from(place.saturating_sub(position)).unwrap_or(0);
                    bytes = &mut bytes[..left];
                }
                Some(Fault::Corrupt(place)) if (position..end).contains(&place) => {
                    bytes[usize::try_from(place - position).unwrap_or(0)] ^= 1;
                }
                _ => {}
            }
            client.write_all(bytes)?;
            self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            match fault {
                Some(Fault::Cut(place)) if place < end => return Ok(()),
                Some(Fault::Stall(place)) if place < end => {
                    while !self.ended.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(50));
                    }
                    return Ok(());
                }
                _ => position = end,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a client reads through a relay with this fault, from a server that sends `content`.
    fn through(fault: Option<Fault>, content: &'static [u8]) -> Vec<u8> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(listener.local_addr().unwrap().port()).unwrap();
        thread::spawn(move || listener.accept().unwrap().0.write_all(content));
        relay.next(&fault.into_iter().collect::<Vec<_>>());
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got);
        assert_eq!(relay.sent(), got.len() as u64);
        got
    }

    #[test]
    fn traffic_passes_unchanged_or_with_the_requested_fault() {
        assert_eq!(through(None, b"abcdef"), b"abcdef");
        assert_eq!(through(Some(Fault::Cut(2)), b"abcdef"), b"ab");
        assert_eq!(through(Some(Fault::Stall(3)), b"abcdef"), b"abc");
        assert_eq!(through(Some(Fault::Corrupt(4)), b"abcdef"), b"abcddf");
    }
}
