//! The connection limit: how many connections may be open, in all and from one client, and which of them is closed when
//! there is no room for a new one.
//!
//! A client can fill only its own share. If its share or the server is full, a newcomer displaces
//!
//! 1. a connection that waits for a request, the longest waiting first, else
//! 2. one that its client keeps slow (see [`transfer_rate`](super::transfer_rate)), the slowest first,
//!
//! of the newcomer's own client if that has reached its share, else of the client that holds the most. A client loses slow
//! connections only to itself or to one that holds fewer. If nothing can be closed, the newcomer is refused at once: silence
//! would leave a booting machine waiting.
//!
//! This module has no sockets; [`accept`](super::accept) closes those of displaced connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::transfer_rate::{TransferPhase, TransferVerdict};

/// Displaced connections whose sockets may still be open; beyond this number newcomers wait. They have files open
/// beyond the limit.
pub const CLOSING: usize = 256;

/// The network of one client: an IPv4 address, or a /64 of IPv6, which is the least that a subscriber has (RFC 6177).
/// Link-local addresses count one by one, for neighbors share their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The client with this address. A socket for IPv6 shows IPv4 addresses as mapped ones; these count as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_unicast_link_local() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            address => address,
        })
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(address) if !address.is_unicast_link_local() => write!(f, "{address}/64"),
            address => write!(f, "{address}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The client has as many connections as one may have.
    Client,
    /// The server has as many connections as it may have.
    Server,
}

#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    most_per_client: usize,
    state: Mutex<State>,
    /// Notified when a connection has been closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, OpenConnection>,
    /// The numbers of each client's connections in `open`; no set is empty.
    of_client: HashMap<ClientNetwork, BTreeSet<u64>>,
    /// The phases of displaced connections that are not closed yet.
    closing: BTreeMap<u64, TransferPhase>,
}

#[derive(Debug)]
struct OpenConnection {
    client: ClientNetwork,
    phase: TransferPhase,
    /// How many phases have begun.
    turn: u64,
    since: Instant,
    /// Bytes per second, where the client keeps it slow.
    slow: Option<u64>,
    displaced: Arc<Notify>,
}

/// Orders connections by which is displaced first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Waiting(Instant),
    Slow(u64),
}

impl OpenConnection {
    fn rank(&self) -> Option<Rank> {
        match self.phase {
            TransferPhase::Waiting => Some(Rank::Waiting(self.since)),
            TransferPhase::Receiving | TransferPhase::Answering => self.slow.map(Rank::Slow),
        }
    }
}

impl ConnectionLimit {
    /// `most` connections in all, and `most_per_client` of one client; each is at least one.
    #[must_use]
    pub fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        let (most, most_per_client) = (most.max(1), most_per_client.max(1));
        Arc::new(Self { most, most_per_client, state: Mutex::default(), closed: Notify::new() })
    }

    /// Admits a connection of `client`, which waits for a request, or refuses it. Another connection may be displaced
    /// for it.
    pub fn admit(
        self: &Arc<Self>,
        client: ClientNetwork,
        now: Instant,
    ) -> Result<ConnectionPermit, ConnectionRefusal> {
        let mut state = self.lock();
        if state.count(client) >= self.most_per_client {
            let victim = state.victim(client, true).ok_or(ConnectionRefusal::Client)?;
            state.displace(victim);
        } else if state.open.len() >= self.most {
            let victim = state.victim_for(client).ok_or(ConnectionRefusal::Server)?;
            state.displace(victim);
        }
        let (number, displaced) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        let (phase, slow) = (TransferPhase::Waiting, None);
        let open =
            OpenConnection { client, phase, turn: 0, since: now, slow, displaced: Arc::clone(&displaced) };
        state.open.insert(number, open);
        state.of_client.entry(client).or_default().insert(number);
        drop(state);
        Ok(ConnectionPermit { limit: Arc::clone(self), number, displaced })
    }

    /// How many connections are open, without displaced ones.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Waits until fewer than [`CLOSING`] displaced connections are still to be closed.
    pub async fn settled(&self) {
        self.until(|state| state.closing.len() < CLOSING).await;
    }

    /// Waits until every connection is closed.
    pub async fn empty(&self) {
        self.until(|state| state.open.is_empty() && state.closing.is_empty()).await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            // Registered before the check, so that no change in between is missed.
            let closed = self.closed.notified();
            if reached(&self.lock()) {
                return;
            }
            closed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, client: ClientNetwork) -> usize {
        self.of_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// The connection of `client` that is displaced first: one that waits, or with `slow` also a slow one.
    fn victim(&self, client: ClientNetwork, slow: bool) -> Option<u64> {
        let numbers = self.of_client.get(&client)?.iter();
        let ranked = numbers.filter_map(|number| Some((self.open.get(number)?.rank()?, *number)));
        ranked.filter(|(rank, _)| slow || matches!(rank, Rank::Waiting(_))).min().map(|(_, number)| number)
    }

    /// The connection of any client that is displaced for one of `newcomer`.
    fn victim_for(&self, newcomer: ClientNetwork) -> Option<u64> {
        let own = self.count(newcomer);
        let mut clients: Vec<_> =
            self.of_client.iter().map(|(client, numbers)| (numbers.len(), *client)).collect();
        clients.sort_unstable_by(|one, other| other.cmp(one));
        clients.into_iter().find_map(|(count, client)| self.victim(client, client == newcomer || count > own))
    }

    fn displace(&mut self, number: u64) {
        if let Some(open) = self.remove(number) {
            self.closing.insert(number, open.phase);
            open.displaced.notify_one();
        }
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let open = self.open.remove(&number)?;
        if let Some(numbers) = self.of_client.get_mut(&open.client) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_client.remove(&open.client);
            }
        }
        Some(open)
    }
}

/// Counts one connection as open until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    number: u64,
    displaced: Arc<Notify>,
}

impl ConnectionPermit {
    /// Completes when the connection is to be closed for another. Returns whether it was in use.
    pub async fn displaced(&self) -> bool {
        self.displaced.notified().await;
        self.limit.lock().closing.get(&self.number).is_some_and(|phase| *phase != TransferPhase::Waiting)
    }

    /// The phase of the connection and how many phases have begun; none where it was displaced.
    #[must_use]
    pub fn phase(&self) -> Option<(TransferPhase, u64)> {
        self.limit.lock().open.get(&self.number).map(|open| (open.phase, open.turn))
    }

    pub fn enter(&self, phase: TransferPhase) {
        if let Some(open) = self.limit.lock().open.get_mut(&self.number) {
            (open.phase, open.since, open.slow) = (phase, Instant::now(), None);
            open.turn += 1;
        }
    }

    /// Stores the verdict about the phase number `turn`; a verdict about an earlier phase is ignored.
    pub fn rated(&self, turn: u64, verdict: TransferVerdict) {
        let mut state = self.limit.lock();
        if let Some(open) = state.open.get_mut(&self.number).filter(|open| open.turn == turn) {
            open.slow = match verdict {
                TransferVerdict::Slow(rate) => Some(rate),
                TransferVerdict::Fine | TransferVerdict::TooSlow => None,
            };
        }
    }

    /// A request has come; it is being answered until the guard is dropped.
    #[must_use]
    pub fn answering(self: &Arc<Self>) -> AnsweringGuard {
        self.enter(TransferPhase::Answering);
        AnsweringGuard(Arc::clone(self))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.limit.lock();
        if state.remove(self.number).is_none() {
            state.closing.remove(&self.number);
        }
        drop(state);
        self.limit.closed.notify_waiters();
    }
}

#[derive(Debug)]
pub struct AnsweringGuard(Arc<ConnectionPermit>);

impl AnsweringGuard {
    #[must_use]
    pub fn permit(&self) -> &Arc<ConnectionPermit> {
        &self.0
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.enter(TransferPhase::Waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn client(last: u8) -> ClientNetwork {
        ClientNetwork::of([192, 0, 2, last].into())
    }

    /// Connections of one client, each of which has waited longer than the next.
    fn waiting(limit: &Arc<ConnectionLimit>, from: u8, count: usize) -> Vec<Arc<ConnectionPermit>> {
        (0..count).map(|_| Arc::new(limit.admit(client(from), Instant::now()).unwrap())).collect()
    }

    /// Connections of one client that are being answered at these rates.
    fn slow(
        limit: &Arc<ConnectionLimit>,
        from: u8,
        rates: &[u64],
    ) -> (Vec<Arc<ConnectionPermit>>, Vec<AnsweringGuard>) {
        let permits = waiting(limit, from, rates.len());
        let answering = permits.iter().map(ConnectionPermit::answering).collect();
        for (permit, rate) in permits.iter().zip(rates) {
            permit.rated(1, TransferVerdict::Slow(*rate));
        }
        (permits, answering)
    }

    fn admit(limit: &Arc<ConnectionLimit>, from: u8) -> Result<ConnectionPermit, ConnectionRefusal> {
        limit.admit(client(from), Instant::now())
    }

    fn gone(permits: &[Arc<ConnectionPermit>]) -> Vec<bool> {
        permits.iter().map(|permit| permit.phase().is_none()).collect()
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_connection_that_has_waited_longest() {
        let limit = ConnectionLimit::new(2, 2);
        let permits = waiting(&limit, 1, 2);
        // The first has been answered and begins to wait after the second.
        drop(permits[0].answering());
        let third = admit(&limit, 1).unwrap();
        assert_eq!(gone(&permits), [false, true]);
        assert_eq!(limit.open(), 2);
        drop((permits, third));
        assert_eq!(limit.open(), 0);
    }

    #[test]
    fn a_displaced_connection_is_told_and_gives_nothing_back_twice() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let limit = ConnectionLimit::new(1, 1);
            let displaced = waiting(&limit, 1, 1);
            let kept = admit(&limit, 1).unwrap();
            // A request that comes too late changes nothing.
            drop(displaced[0].answering());
            let soon = |what| tokio::time::timeout(Duration::from_secs(5), what);
            assert!(!soon(displaced[0].displaced()).await.unwrap(), "it was in no use");
            drop(displaced);
            assert_eq!(limit.open(), 1);
            drop(kept);
            tokio::time::timeout(Duration::from_secs(5), limit.empty()).await.unwrap();
        });
    }

    #[test]
    fn a_connection_in_use_at_a_good_rate_keeps_its_place_and_the_newcomer_is_refused() {
        let limit = ConnectionLimit::new(1, 1);
        let permits = waiting(&limit, 1, 1);
        let answering = permits[0].answering();
        assert_eq!(admit(&limit, 1).unwrap_err(), ConnectionRefusal::Client);
        assert_eq!(admit(&limit, 2).unwrap_err(), ConnectionRefusal::Server);
        permits[0].rated(1, TransferVerdict::Slow(5));
        permits[0].rated(1, TransferVerdict::Fine);
        permits[0].rated(0, TransferVerdict::Slow(5));
        assert_eq!(admit(&limit, 2).unwrap_err(), ConnectionRefusal::Server);
        drop(answering);
        assert!(admit(&limit, 2).is_ok());
    }

    #[test]
    fn a_client_fills_its_own_share_alone_and_loses_its_slowest_connection() {
        let limit = ConnectionLimit::new(10, 3);
        let (permits, _answering) = slow(&limit, 1, &[30, 10, 20]);
        let newcomer = admit(&limit, 1).unwrap();
        assert_eq!(gone(&permits), [false, true, false]);
        // Waiting connections are displaced before slow ones.
        let another = admit(&limit, 1).unwrap();
        assert_eq!(gone(&permits), [false, true, false]);
        assert!(newcomer.phase().is_none() && another.phase().is_some());
        assert!((2..=8).map(|from| admit(&limit, from).unwrap()).all(|permit| permit.phase().is_some()));
    }

    #[test]
    fn a_client_with_many_connections_makes_room_for_one_with_few() {
        let limit = ConnectionLimit::new(6, 6);
        let (few, _few) = slow(&limit, 1, &[1, 1]);
        let (many, _many) = slow(&limit, 2, &[8, 7, 9, 6]);
        let newcomer = Arc::new(admit(&limit, 3).unwrap());
        let _answering = newcomer.answering();
        assert_eq!((gone(&few), gone(&many)), (vec![false; 2], vec![false, false, false, true]));
        // A client that holds no more than the newcomer's loses no connection in use.
        let own = Arc::new(admit(&limit, 3).unwrap());
        assert_eq!(gone(&many), [false, true, false, true]);
        let _own = own.answering();
        assert_eq!(admit(&limit, 3).unwrap_err(), ConnectionRefusal::Server);
        assert_eq!(admit(&limit, 1).map(drop), Ok(()), "in the place of its own slowest");
        assert_eq!(gone(&many), [false, true, false, true]);
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_network_of_ipv6() {
        let of = |text: &str| ClientNetwork::of(text.parse().unwrap());
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("::ffff:192.0.2.1"), of("::ffff:192.0.2.2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::9"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_ne!(of("fe80::1"), of("fe80::2"));
        let shown = ["::ffff:192.0.2.1", "2001:db8:0:1::1", "fe80::1"].map(|text| of(text).to_string());
        assert_eq!(shown, ["192.0.2.1", "2001:db8:0:1::/64", "fe80::1"]);
    }
}
