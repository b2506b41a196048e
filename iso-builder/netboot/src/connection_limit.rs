//! The connection limit: how many connections there may be at a time, in all and from one client, and which of them is
//! closed where there is no room for a newcomer.
//!
//! A client may fill its own share only. Where its share or the server is full, a newcomer takes the place of
//!
//! 1. a connection that waits for a request, the longest waiting first, else
//! 2. one that its client keeps slow (see [`transfer_rate`](super::transfer_rate)), the slowest first,
//!
//! of the newcomer's own client where its share is full, else of the client that holds the most. A client loses slow
//! connections only to itself or to one that holds fewer. Where nothing can be closed, the newcomer is refused at once:
//! silence would leave a booting machine waiting.
//!
//! No socket is known here; [`net`](super::net) closes what is to be closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::transfer_rate::{TransferPhase, TransferVerdict};

/// Connections that were displaced and have not closed their sockets yet, at most; then newcomers wait for them. They have
/// files open beyond the limit.
pub const CLOSING: usize = 256;

/// What counts as one client: an IPv4 address, or a /64 of IPv6, which is the least that a subscriber has (RFC 6177).
/// Neighbours share one network of link-local addresses, so these count one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The client that has this address. A socket for IPv6 shows IPv4 addresses as mapped ones, which are taken for what
    /// they are.
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

/// Why there is no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The client has all that one may have.
    Client,
    /// There are as many as there may be.
    Server,
}

/// All connections.
#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    most_per_client: usize,
    state: Mutex<State>,
    /// A connection has been closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// The numbers of those in `open`; no client is without one.
    of_client: HashMap<ClientNetwork, BTreeSet<u64>>,
    /// What those did that were displaced and are not closed yet.
    closing: BTreeMap<u64, TransferPhase>,
}

/// A connection, by its number: the older, the smaller.
#[derive(Debug)]
struct Open {
    client: ClientNetwork,
    phase: TransferPhase,
    /// How often the phase has begun anew.
    turn: u64,
    since: Instant,
    /// Bytes a second, where the client keeps it slow.
    slow: Option<u64>,
    displaced: Arc<Notify>,
}

/// Which connections are displaced first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Waiting(Instant),
    Slow(u64),
}

impl Open {
    fn rank(&self) -> Option<Rank> {
        match self.phase {
            TransferPhase::Waiting => Some(Rank::Waiting(self.since)),
            TransferPhase::Receiving | TransferPhase::Answering => self.slow.map(Rank::Slow),
        }
    }
}

impl ConnectionLimit {
    /// At most `most` connections, and `most_per_client` from one client; each at least one.
    #[must_use]
    pub fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        let (most, most_per_client) = (most.max(1), most_per_client.max(1));
        Arc::new(Self { most, most_per_client, state: Mutex::default(), closed: Notify::new() })
    }

    /// Lets a connection of `client` in, which waits for a request, or refuses it. Another may be displaced for it.
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
        let open = Open { client, phase, turn: 0, since: now, slow, displaced: Arc::clone(&displaced) };
        state.open.insert(number, open);
        state.of_client.entry(client).or_default().insert(number);
        drop(state);
        Ok(ConnectionPermit { limit: Arc::clone(self), number, displaced })
    }

    /// How many connections there are, without those that are to be closed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Waits until few connections that were displaced are still to be closed.
    pub async fn settled(&self) {
        self.until(|state| state.closing.len() < CLOSING).await;
    }

    /// Waits until there is no connection.
    pub async fn empty(&self) {
        self.until(|state| state.open.is_empty() && state.closing.is_empty()).await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            // Before looking, so that no change in between is missed.
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

    /// Which connection of `client` is displaced first; none of those that are in use, unless `slow` ones count.
    fn victim(&self, client: ClientNetwork, slow: bool) -> Option<u64> {
        let numbers = self.of_client.get(&client)?.iter();
        let ranked = numbers.filter_map(|number| Some((self.open.get(number)?.rank()?, *number)));
        ranked.filter(|(rank, _)| slow || matches!(rank, Rank::Waiting(_))).min().map(|(_, number)| number)
    }

    /// Which connection of all is displaced for one of `newcomer`.
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

    fn remove(&mut self, number: u64) -> Option<Open> {
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

/// The right of one connection to be open, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    number: u64,
    displaced: Arc<Notify>,
}

impl ConnectionPermit {
    /// Returns when the connection is to be closed for another: whether it was in use.
    pub async fn displaced(&self) -> bool {
        self.displaced.notified().await;
        self.limit.lock().closing.get(&self.number).is_some_and(|phase| *phase != TransferPhase::Waiting)
    }

    /// What the connection is doing, and how often it has begun something; none where it was displaced.
    #[must_use]
    pub fn phase(&self) -> Option<(TransferPhase, u64)> {
        self.limit.lock().open.get(&self.number).map(|open| (open.phase, open.turn))
    }

    /// The connection begins something.
    pub fn enter(&self, phase: TransferPhase) {
        if let Some(open) = self.limit.lock().open.get_mut(&self.number) {
            (open.phase, open.since, open.slow) = (phase, Instant::now(), None);
            open.turn += 1;
        }
    }

    /// Keeps how fast the connection has been in this turn of late; one that is over says nothing of the next.
    pub fn rated(&self, turn: u64, verdict: TransferVerdict) {
        let mut state = self.limit.lock();
        if let Some(open) = state.open.get_mut(&self.number).filter(|open| open.turn == turn) {
            open.slow = match verdict {
                TransferVerdict::Slow(rate) => Some(rate),
                TransferVerdict::Fine | TransferVerdict::TooSlow => None,
            };
        }
    }

    /// A request has come. Until what this returns is dropped, it is being answered.
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

/// A connection on which a request is being answered.
#[derive(Debug)]
pub struct AnsweringGuard(Arc<ConnectionPermit>);

impl AnsweringGuard {
    /// The connection.
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

    /// Connections of `client`, each of which has waited longer than the next.
    fn waiting(limit: &Arc<ConnectionLimit>, from: u8, count: usize) -> Vec<Arc<ConnectionPermit>> {
        (0..count).map(|_| Arc::new(limit.admit(client(from), Instant::now()).unwrap())).collect()
    }

    /// The same, of which each is being answered, at this rate.
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
        // What waits goes before what is slow.
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
        // Of those that hold no more than it does, nobody loses anything in use to a newcomer.
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
