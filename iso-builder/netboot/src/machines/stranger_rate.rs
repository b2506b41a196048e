//! How many requests to boot are recorded of machines that no configuration names. Anybody can invent such machines, and every
//! record is a turn of the one writer, for which configured machines wait.
//!
//! Beyond the rate a request is answered as always, from memory, and leaves no trace but a count.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::moment::Moment;
use transfer::server::connection_limit::ClientNetwork;

/// Requests of one client at once, and a second: a rack behind one address that is switched on together.
const OF_CLIENT: Rate = Rate { burst: 50, per_second: 1 };
/// Of all clients together.
const OF_ALL: Rate = Rate { burst: 250, per_second: 20 };
/// The most clients that are counted; beyond it new ones have to wait for a second.
const MOST_CLIENTS: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u64,
    per_second: u64,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u64,
    since: Moment,
}

impl Allowance {
    fn full(rate: Rate, now: Moment) -> Self {
        Self { left: rate.burst, since: now }
    }

    fn refill(&mut self, rate: Rate, now: Moment) {
        let seconds = now.0.saturating_sub(self.since.0);
        self.left = rate.burst.min(self.left.saturating_add(seconds.saturating_mul(rate.per_second)));
        // A clock that was set back starts anew.
        self.since = now;
    }
}

#[derive(Debug, Default)]
struct State {
    all: Option<Allowance>,
    clients: HashMap<ClientNetwork, Allowance>,
    /// Requests that were not recorded since one was.
    dropped: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct StrangerRate(Mutex<State>);

/// The decision about recording a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrangerVerdict {
    /// It is; so many before it were not.
    Recorded { dropped: u64 },
    /// It is not; whether it is the first of a series.
    Dropped { first: bool },
}

impl StrangerRate {
    /// Counts a request of the client at `peer`.
    pub fn count(&self, peer: IpAddr, now: Moment) -> StrangerVerdict {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if state.clients.len() >= MOST_CLIENTS {
            state.clients.retain(|_, allowance| {
                allowance.refill(OF_CLIENT, now);
                allowance.left < OF_CLIENT.burst
            });
        }
        let all = state.all.get_or_insert(Allowance::full(OF_ALL, now));
        all.refill(OF_ALL, now);
        let room = state.clients.len() < MOST_CLIENTS;
        let client = ClientNetwork::of(peer);
        let own = match state.clients.get_mut(&client) {
            Some(own) => Some(own),
            None if room => Some(state.clients.entry(client).or_insert(Allowance::full(OF_CLIENT, now))),
            None => None,
        };
        if let Some(own) = own {
            own.refill(OF_CLIENT, now);
            if own.left > 0 && all.left > 0 {
                (own.left, all.left) = (own.left - 1, all.left - 1);
                return StrangerVerdict::Recorded { dropped: std::mem::take(&mut state.dropped) };
            }
        }
        state.dropped += 1;
        StrangerVerdict::Dropped { first: state.dropped == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Moment = Moment(1_700_000_000);

    fn recorded(rate: &StrangerRate, peer: IpAddr, count: usize, now: Moment) -> usize {
        let one = |_: &usize| matches!(rate.count(peer, now), StrangerVerdict::Recorded { .. });
        (0..count).filter(one).count()
    }

    #[test]
    fn a_client_has_a_burst_and_a_rate_and_takes_nothing_from_another() {
        let rate = StrangerRate::default();
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        assert_eq!(recorded(&rate, one, 1000, NOW), 50);
        assert_eq!(rate.count(one, NOW), StrangerVerdict::Dropped { first: false });
        assert_eq!(rate.count(other, NOW), StrangerVerdict::Recorded { dropped: 951 });
        assert_eq!(rate.count(one, NOW), StrangerVerdict::Dropped { first: true });
        assert_eq!(recorded(&rate, one, 1000, NOW.plus(10)), 10);
    }

    proptest! {
        #[test]
        fn all_clients_together_stay_below_the_rate_of_all(
            requests in proptest::collection::vec((any::<u32>(), 0_u64..3), 1..2000)
        ) {
            let (rate, mut now, mut count) = (StrangerRate::default(), NOW, 0);
            for (address, later) in requests {
                now = now.plus(later / 2);
                count += recorded(&rate, std::net::Ipv4Addr::from(address).into(), 1, now) as u64;
            }
            prop_assert!(count <= 250 + 20 * (now.0 - NOW.0));
        }
    }
}
