//! Judges whether a connection is fast enough, as curl's `speed-limit` and `speed-time` do: by an average over a window.
//! It uses counters of the kernel; it has no sockets and no clock.
//!
//! Only bytes that have arrived count: those from the client, and those to it that it has acknowledged, not those that wait
//! in this host's buffers, which are megabytes. And a client is only called slow for what *it* delays: while its receive window
//! is closed. It is not the cause if a shared or bad network or this server's own disk delays a transfer; such a transfer
//! ends when next to nothing arrives for the window of [`TransferRates::floor`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPhase {
    /// Waiting for the first byte of a request or for the rest of its head.
    Waiting,
    /// Receiving the body of a request.
    Receiving,
    Answering,
}

/// Counters of the kernel since the connection began (`struct tcp_info`, linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounters {
    /// Bytes received from the client.
    pub received: u64,
    /// Bytes that the client has acknowledged.
    pub acknowledged: u64,
    /// How long there was data to send or not yet acknowledged.
    pub busy: Duration,
    /// The part of `busy` in which the client's receive window was full.
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

/// An average over a window of time.
#[derive(Clone, Copy, Debug)]
pub struct TransferRate {
    /// Bytes per second.
    pub bytes: u64,
    pub window: Duration,
}

impl TransferRate {
    /// True if `bytes` in `elapsed` are less than this rate.
    fn is_above(self, bytes: u64, elapsed: Duration) -> bool {
        u128::from(bytes) * 1000 < u128::from(self.bytes) * elapsed.as_millis()
    }

    /// True if the rate was missed and the client is the cause.
    fn is_missed(self, phase: TransferPhase, elapsed: Duration, moved: ByteCounters) -> bool {
        let its_fault = match phase {
            TransferPhase::Waiting | TransferPhase::Receiving => true,
            TransferPhase::Answering => moved.window_limited * 2 >= elapsed,
        };
        its_fault && self.is_above(phase.bytes(moved), elapsed)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TransferRates {
    /// A connection that its client keeps below this rate is closed.
    pub least: TransferRate,
    /// A connection below this rate is closed, whatever the cause.
    pub floor: TransferRate,
    /// A connection that its client keeps below this rate is displaced where there is no room for others.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferVerdict {
    /// Fast enough, or not yet known.
    Fine,
    /// Kept slow by its client, in bytes per second.
    Slow(u64),
    /// To be closed.
    TooSlow,
}

/// Measures the rate of one connection.
#[derive(Debug)]
pub struct TransferMeter {
    rates: TransferRates,
    turn: u64,
    /// The counters of the present phase, the oldest first; in [`TransferPhase::Waiting`] since the first byte of a
    /// head.
    counted: VecDeque<(Instant, ByteCounters)>,
    before: ByteCounters,
}

impl TransferMeter {
    #[must_use]
    pub fn new(rates: TransferRates) -> Self {
        Self { rates, turn: 0, counted: VecDeque::new(), before: ByteCounters::default() }
    }

    /// Judges the connection by the counters of the moment `now`. A new `turn` means that a phase has begun; earlier
    /// counters do not matter for it.
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

    /// The time and the difference of the counters over the window of `rate`; none before so much time has passed.
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

    /// Drops counters that are older than every window.
    fn forget(&mut self, now: Instant) {
        let longest = self.rates.least.window.max(self.rates.floor.window).max(self.rates.ample.window);
        // The latest counters that are as old as the window are needed.
        while self.counted.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= longest) {
            self.counted.pop_front();
        }
    }
}

impl TransferPhase {
    /// The bytes that matter in this phase.
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

    /// The seconds at which a connection in `phase`, whose counters grow by `each` per second, is first slow and first
    /// too slow.
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

    /// A second in which the client takes `bytes`, with its receive window closed or open.
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
        // Four seconds of data at once, as a reader with a large buffer takes it.
        let in_bursts = |second: u32| taken(if second.is_multiple_of(4) { 256 << 10 } else { 0 }, true);
        assert_eq!(judged(TransferPhase::Answering, in_bursts, 1000), (None, None));
    }

    #[test]
    fn who_waits_for_the_network_or_for_this_server_is_not_called_slow() {
        // 200 machines that share a line of 5 Mbit/s.
        assert_eq!(judged(TransferPhase::Answering, |_| taken(3000, false), 1000), (None, None));
        // This server's disk stalls, so that there is nothing to send.
        assert_eq!(judged(TransferPhase::Answering, |_| ByteCounters::default(), 1000), (None, None));
        // Nothing arrives any more: the machine has lost its power.
        assert_eq!(judged(TransferPhase::Answering, |_| taken(0, false), 1000), (None, Some(60)));
        // A pause of half a minute is not its fault either.
        let paused = |second: u32| taken(if second % 60 < 30 { 0 } else { 100 << 10 }, false);
        assert_eq!(judged(TransferPhase::Answering, paused, 1000), (None, None));
    }

    #[test]
    fn bodies_and_heads_that_trickle_in_are_given_up_and_idle_connections_are_not_slow() {
        let received = |bytes| move |_| ByteCounters { received: bytes, ..ByteCounters::default() };
        assert_eq!(judged(TransferPhase::Receiving, received(1), 300), (Some(5), Some(20)));
        assert_eq!(judged(TransferPhase::Receiving, received(64 << 10), 300), (None, None));
        assert_eq!(judged(TransferPhase::Waiting, received(1), 300), (Some(6), Some(21)));
        // A connection without a request is not slow.
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
