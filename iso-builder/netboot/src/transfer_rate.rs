//! Whether a connection moves fast enough, as curl's `speed-limit` and `speed-time` say it: an average over a window. Out
//! of what the kernel counts; sockets and clocks are others' business.
//!
//! What counts is what has arrived: bytes that the client has sent, and those of ours that it has acknowledged, not those
//! that wait in this host's buffers, which are megabytes. And a client is only called slow for what *it* holds up: while
//! its receive window is closed. A transfer that a shared or a bad network holds up, or this server's own disk, is none
//! of its doing; such a one ends when next to nothing arrives for [`TransferRates::floor`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPhase {
    /// It waits for a request: for its first byte, or for the rest of its head.
    Waiting,
    /// It receives the body of a request.
    Receiving,
    /// A request is being answered.
    Answering,
}

/// What the kernel has counted since the connection began (`struct tcp_info`, linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounters {
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client that it has acknowledged.
    pub acknowledged: u64,
    /// How long there was something to send, or something sent was not acknowledged.
    pub busy: Duration,
    /// How long of that the client's receive window kept it from being sent.
    pub window_limited: Duration,
}

impl ByteCounters {
    fn since(self, before: Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            acknowledged: self.acknowledged.saturating_sub(before.acknowledged),
            busy: self.busy.saturating_sub(before.busy),
            window_limited: self.window_limited.saturating_sub(before.window_limited),
        }
    }
}

/// A rate, as an average over a window.
#[derive(Clone, Copy, Debug)]
pub struct TransferRate {
    /// Bytes a second.
    pub bytes: u64,
    /// What the average is of.
    pub window: Duration,
}

impl TransferRate {
    /// Whether it is more than `bytes` in `elapsed`.
    fn is_above(self, bytes: u64, elapsed: Duration) -> bool {
        u128::from(bytes) * 1000 < u128::from(self.bytes) * elapsed.as_millis()
    }

    /// Whether a client has missed it by its own fault.
    fn is_missed(self, phase: TransferPhase, elapsed: Duration, moved: ByteCounters) -> bool {
        let its_fault = match phase {
            TransferPhase::Waiting | TransferPhase::Receiving => true,
            TransferPhase::Answering => moved.window_limited * 2 >= elapsed,
        };
        its_fault && self.is_above(phase.bytes(moved), elapsed)
    }
}

/// How fast a connection has to be.
#[derive(Clone, Copy, Debug)]
pub struct TransferRates {
    /// What sends or takes less than this by its own fault is closed.
    pub least: TransferRate,
    /// What takes less than this is closed, whatever the reason.
    pub floor: TransferRate,
    /// What sends or takes less than this by its own fault makes room for others where there is no room.
    pub ample: TransferRate,
}

impl Default for TransferRates {
    fn default() -> Self {
        Self {
            least: TransferRate { bytes: 4 << 10, window: Duration::from_secs(20) },
            floor: TransferRate { bytes: 1 << 10, window: Duration::from_secs(60) },
            ample: TransferRate { bytes: 32 << 10, window: Duration::from_secs(5) },
        }
    }
}

/// What is said of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferVerdict {
    /// It is fast enough, or it cannot be said yet.
    Fine,
    /// It is slow, by its client's fault: so many bytes a second.
    Slow(u64),
    /// It is to be closed.
    TooSlow,
}

/// Watches one connection.
#[derive(Debug)]
pub struct TransferMeter {
    rates: TransferRates,
    turn: u64,
    /// What was counted in this turn, the oldest first; in [`TransferPhase::Waiting`], since the first byte of a head.
    counted: VecDeque<(Instant, ByteCounters)>,
    /// What was counted before.
    before: ByteCounters,
}

impl TransferMeter {
    /// A meter for a new connection.
    #[must_use]
    pub fn new(rates: TransferRates) -> Self {
        Self { rates, turn: 0, counted: VecDeque::new(), before: ByteCounters::default() }
    }

    /// Takes in what is counted `now`. `turn` changes whenever a phase begins, which makes what was before irrelevant.
    pub fn judge(
        &mut self,
        phase: TransferPhase,
        turn: u64,
        now: Instant,
        counters: ByteCounters,
    ) -> TransferVerdict {
        if self.turn != turn {
            self.turn = turn;
            self.counted.clear();
            self.before = counters;
        }
        let idle = phase == TransferPhase::Waiting && counters.received == self.before.received;
        if !idle {
            self.counted.push_back((now, counters));
        }
        self.forget(now);
        if self.is_too_slow(phase, now, counters) {
            return TransferVerdict::TooSlow;
        }
        match self.over(self.rates.ample, now, counters) {
            Some((elapsed, moved)) if self.rates.ample.is_missed(phase, elapsed, moved) => {
                TransferVerdict::Slow(per_second(phase.bytes(moved), elapsed))
            }
            _ => TransferVerdict::Fine,
        }
    }

    fn is_too_slow(&self, phase: TransferPhase, now: Instant, counters: ByteCounters) -> bool {
        let missed = |rate: TransferRate| {
            let over = self.over(rate, now, counters);
            over.is_some_and(|(elapsed, moved)| rate.is_missed(phase, elapsed, moved))
        };
        let floor = self.rates.floor;
        let starved = self.over(floor, now, counters).is_some_and(|(elapsed, moved)| {
            moved.busy * 2 >= elapsed && floor.is_above(moved.acknowledged, elapsed)
        });
        missed(self.rates.least) || (phase == TransferPhase::Answering && starved)
    }

    /// What was counted over the window of `rate`, and how long that was; none before so much time has passed.
    fn over(
        &self,
        rate: TransferRate,
        now: Instant,
        counters: ByteCounters,
    ) -> Option<(Duration, ByteCounters)> {
        let mut before = self.counted.iter().rev().map(|(at, before)| (now.duration_since(*at), *before));
        before
            .find(|(elapsed, _)| *elapsed >= rate.window)
            .map(|(elapsed, before)| (elapsed, counters.since(before)))
    }

    /// Forgets what is older than any window.
    fn forget(&mut self, now: Instant) {
        let longest = self.rates.least.window.max(self.rates.floor.window).max(self.rates.ample.window);
        // One that is as old as the window has to stay.
        while self.counted.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= longest) {
            self.counted.pop_front();
        }
    }
}

impl TransferPhase {
    /// The bytes that count.
    fn bytes(self, moved: ByteCounters) -> u64 {
        match self {
            Self::Waiting | Self::Receiving => moved.received,
            Self::Answering => moved.acknowledged,
        }
    }
}

fn per_second(bytes: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a connection in `phase` is first slow and first too slow, in seconds, if it counts this much each second.
    fn judged(
        phase: TransferPhase,
        each: impl Fn(u32) -> ByteCounters,
        seconds: u32,
    ) -> (Option<u32>, Option<u32>) {
        let (mut meter, began) = (TransferMeter::new(TransferRates::default()), Instant::now());
        let (mut counters, mut slow) = (ByteCounters::default(), None);
        for second in 0..=seconds {
            let now = began + Duration::from_secs(second.into());
            match meter.judge(phase, 1, now, counters) {
                TransferVerdict::Fine => {}
                TransferVerdict::Slow(_) => slow = slow.or(Some(second)),
                TransferVerdict::TooSlow => return (slow, Some(second)),
            }
            let more = each(second);
            counters.received += more.received;
            counters.acknowledged += more.acknowledged;
            counters.busy += more.busy;
            counters.window_limited += more.window_limited;
        }
        (slow, None)
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A second in which the client takes `bytes`; it has closed its window if it is `closed`.
    fn taken(bytes: u64, closed: bool) -> ByteCounters {
        let window_limited = if closed { SECOND } else { Duration::ZERO };
        ByteCounters { acknowledged: bytes, busy: SECOND, window_limited, ..ByteCounters::default() }
    }

    #[test]
    fn a_reader_that_keeps_its_window_closed_is_closed_after_the_window_of_the_least_rate() {
        for bytes in [0, 100, 4000] {
            assert_eq!(
                judged(TransferPhase::Answering, |_| taken(bytes, true), 300),
                (Some(5), Some(20)),
                "{bytes}"
            );
        }
        assert_eq!(judged(TransferPhase::Answering, |_| taken(10_000, true), 300), (Some(5), None));
    }

    #[test]
    fn a_machine_that_takes_64_kib_a_second_is_never_slow_whatever_holds_it_up() {
        for closed in [true, false] {
            assert_eq!(judged(TransferPhase::Answering, |_| taken(64 << 10, closed), 1000), (None, None));
        }
        // All of four seconds at once, as a reader with a large buffer takes it.
        let in_bursts = |second: u32| taken(if second.is_multiple_of(4) { 256 << 10 } else { 0 }, true);
        assert_eq!(judged(TransferPhase::Answering, in_bursts, 1000), (None, None));
    }

    #[test]
    fn who_waits_for_the_network_or_for_this_server_is_not_called_slow() {
        // 200 machines that share a line of 5 Mbit/s.
        assert_eq!(judged(TransferPhase::Answering, |_| taken(3000, false), 1000), (None, None));
        // This server's disk gives nothing, so that there is nothing to send.
        assert_eq!(judged(TransferPhase::Answering, |_| ByteCounters::default(), 1000), (None, None));
        // Nothing arrives any more: the machine has lost its power.
        assert_eq!(judged(TransferPhase::Answering, |_| taken(0, false), 1000), (None, Some(60)));
        // A pause of half a minute is none of its doing either.
        let paused = |second: u32| taken(if second % 60 < 30 { 0 } else { 100 << 10 }, false);
        assert_eq!(judged(TransferPhase::Answering, paused, 1000), (None, None));
    }

    #[test]
    fn bodies_and_heads_that_trickle_in_are_given_up_and_idle_connections_are_not_slow() {
        let received = |bytes| move |_| ByteCounters { received: bytes, ..ByteCounters::default() };
        assert_eq!(judged(TransferPhase::Receiving, received(1), 300), (Some(5), Some(20)));
        assert_eq!(judged(TransferPhase::Receiving, received(64 << 10), 300), (None, None));
        assert_eq!(judged(TransferPhase::Waiting, received(1), 300), (Some(6), Some(21)));
        // Whoever has said nothing yet is in nobody's way.
        assert_eq!(judged(TransferPhase::Waiting, received(0), 300), (None, None));
    }

    #[test]
    fn a_new_request_is_judged_by_itself() {
        let (mut meter, began) = (TransferMeter::new(TransferRates::default()), Instant::now());
        for turn in 0..20 {
            for second in 0..4 {
                let now = began + Duration::from_secs(turn * 4 + second);
                let counters = ByteCounters { busy: SECOND * 100, ..ByteCounters::default() };
                assert_eq!(meter.judge(TransferPhase::Answering, turn, now, counters), TransferVerdict::Fine);
            }
        }
        assert!(meter.counted.len() <= 4);
    }
}
