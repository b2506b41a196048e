//! A line to a server: it forwards connections, can be slow, cut or down, and counts what crosses it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use regex::bytes::Regex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::virtual_machine::PASSWORD;

/// Bytes that are forwarded at once.
const PIECE: usize = 64 << 10;
/// How often in a second a slow line forwards something.
const TICKS: usize = 20;
/// The digits of the number in a password.
const DIGITS: usize = 6;

/// How the line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    Open,
    /// Each connection gets so many bytes a second from the server.
    Slow(usize),
    /// Connections end at once.
    Down,
}

/// What has come from the server.
#[derive(Debug, Default)]
struct LineTraffic {
    bytes: u64,
    /// How often the configuration of each machine has crossed the line, by the secret in it.
    configurations: BTreeMap<u32, u32>,
}

/// A line that ends when this is dropped.
#[derive(Debug)]
pub struct Line {
    /// Where clients connect to.
    pub address: SocketAddr,
    /// With the number of cuts so far.
    state: watch::Sender<(LineState, u64)>,
    traffic: Arc<Mutex<LineTraffic>>,
    runtime: Option<Runtime>,
}

impl Line {
    /// An open line to `server`.
    pub fn to(server: SocketAddr) -> Result<Self> {
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.worker_threads(1).enable_all().build().context("starting a line")?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.context("starting a line")?;
        let address = listener.local_addr().context("starting a line")?;
        let (state, watched) = watch::channel((LineState::Open, 0));
        let traffic = Arc::<Mutex<LineTraffic>>::default();
        let counted = Arc::clone(&traffic);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, watched.clone(), Arc::clone(&counted)));
            }
        });
        Ok(Self { address, state, traffic, runtime: Some(runtime) })
    }

    pub fn set(&self, state: LineState) {
        self.state.send_modify(|now| now.0 = state);
    }

    /// Ends all connections; new ones are possible.
    pub fn cut(&self) {
        self.state.send_modify(|now| now.1 += 1);
    }

    /// Bytes that came from the server so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// How often the configuration of each machine has come from the server, whole or in part.
    #[must_use]
    pub fn configurations(&self) -> BTreeMap<u32, u32> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).configurations.clone()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Forwards one connection until it ends or is cut.
async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut state: watch::Receiver<(LineState, u64)>,
    traffic: Arc<Mutex<LineTraffic>>,
) {
    let (now, cuts) = *state.borrow();
    // Dropped without a word otherwise.
    let _ = client.set_zero_linger();
    if now == LineState::Down {
        return;
    }
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true), upstream.set_zero_linger());
    let slow = state.clone();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), upstream.into_split());
    let forwarding =
        async { tokio::join!(send(from_client, to_server), receive(from_server, to_client, slow, &traffic)) };
    tokio::select! {
        _ = forwarding => {}
        _ = state.wait_for(|(state, number)| *state == LineState::Down || *number != cuts) => {}
    }
}

async fn send(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

async fn receive(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<(LineState, u64)>,
    traffic: &Mutex<LineTraffic>,
) -> io::Result<()> {
    let pattern = pattern().map_err(io::Error::other)?;
    let mut piece = vec![0; PIECE];
    // A secret may be in two pieces.
    let mut tail = Vec::new();
    loop {
        let rate = match state.borrow().0 {
            LineState::Slow(rate) => Some(rate),
            _ => None,
        };
        let most = rate.map_or(PIECE, |rate| (rate / TICKS).clamp(1, PIECE));
        let count = from.read(&mut piece[..most]).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        tail.extend_from_slice(&piece[..count]);
        {
            let mut traffic = traffic.lock().unwrap_or_else(PoisonError::into_inner);
            traffic.bytes += count as u64;
            for number in secrets(&pattern, &mut tail) {
                *traffic.configurations.entry(number).or_default() += 1;
            }
        }
        to.write_all(&piece[..count]).await?;
        if let Some(rate) = rate {
            sleep(
                Duration::from_secs(1) * u32::try_from(count).unwrap_or(u32::MAX)
                    / u32::try_from(rate.max(1)).unwrap_or(u32::MAX),
            )
            .await;
        }
    }
}

/// The numbers of the machines whose whole secrets are in `bytes`, which keeps only what may be the beginning of another one.
fn secrets(pattern: &Regex, bytes: &mut Vec<u8>) -> Vec<u32> {
    let (mut found, mut end) = (Vec::new(), 0);
    for captures in pattern.captures_iter(bytes) {
        if let Some(digits) = captures.get(1) {
            found.extend(
                std::str::from_utf8(digits.as_bytes()).ok().and_then(|digits| digits.parse::<u32>().ok()),
            );
            end = digits.end();
        }
    }
    let longest = PASSWORD.len() + DIGITS - 1;
    bytes.drain(..end.max(bytes.len().saturating_sub(longest)));
    found
}

/// Finds the secrets of configurations.
fn pattern() -> Result<Regex> {
    Regex::new(&format!("{PASSWORD}([0-9]{{{DIGITS}}})")).context("the pattern of a secret")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener as Listener, TcpStream as Client};

    #[test]
    fn a_secret_is_counted_once_wherever_pieces_end() {
        let text = b"ab the-password-of-000012, the-password-of-000345,x";
        for cut in 0..text.len() {
            let mut kept = text[..cut].to_vec();
            let mut found = secrets(&pattern().unwrap(), &mut kept);
            kept.extend_from_slice(&text[cut..]);
            found.extend(secrets(&pattern().unwrap(), &mut kept));
            assert_eq!(found, [12, 345], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_forwards_counts_and_is_cut() {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let line = Line::to(listener.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"the-password-of-000007,");
                std::mem::forget(stream);
            }
        });
        let mut client = Client::connect(line.address).unwrap();
        client.read_exact(&mut [0; 23]).unwrap();
        assert_eq!((line.bytes(), line.configurations()), (23, BTreeMap::from([(7, 1)])));
        line.cut();
        assert!(!client.read(&mut [0; 1]).is_ok_and(|count| count > 0), "cut");
        let mut client = Client::connect(line.address).unwrap();
        client.read_exact(&mut [0; 23]).unwrap();
        line.set(LineState::Down);
        assert!(!client.read(&mut [0; 1]).is_ok_and(|count| count > 0), "down");
        let mut client = Client::connect(line.address).unwrap();
        assert!(!client.read(&mut [0; 1]).is_ok_and(|count| count > 0), "still down");
    }
}
