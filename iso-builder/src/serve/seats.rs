//! How many connections there may be. Each has a seat; one that waits for a request loses its seat to a newcomer where
//! all are taken, the longest waiting first. So clients that say nothing, however many, keep nobody out; those that are
//! being answered are never put out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All seats.
#[derive(Debug)]
pub struct Seats {
    limit: usize,
    state: Mutex<State>,
    /// Somebody has gone, or begun to wait.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    next: u64,
    /// Who waits for a request, in the order in which they began to.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Seats {
    /// `limit` seats, of which there is at least one.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { limit: limit.max(1), state, changed: Notify::new() })
    }

    /// A seat for a connection, at once unless all are being answered. Its holder waits for a request.
    pub async fn take(self: &Arc<Self>) -> Seat {
        loop {
            // Before looking, so that no change in between is missed.
            let changed = self.changed.notified();
            if let Some(seat) = self.try_take() {
                return seat;
            }
            changed.await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Seat> {
        let mut state = self.lock();
        if state.taken >= self.limit {
            // Who is put out has given the seat back by this, and gives nothing back on going.
            let (_, longest) = state.waiting.pop_first()?;
            longest.notify_one();
            state.taken -= 1;
        }
        state.taken += 1;
        let leave = Arc::new(Notify::new());
        let place = Mutex::new(Place::Waiting(state.wait(&leave)));
        Some(Seat { seats: Arc::clone(self), leave, place })
    }

    /// How many seats are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Waits until no seat is taken.
    pub async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.taken() == 0 {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, leave: &Arc<Notify>) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, Arc::clone(leave));
        self.next
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Waiting(u64),
    Answered,
    /// It was put out.
    Lost,
}

/// The seat of one connection.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    leave: Arc<Notify>,
    place: Mutex<Place>,
}

impl Seat {
    /// Returns when the connection is to be closed for another.
    pub async fn put_out(&self) {
        self.leave.notified().await;
    }

    /// A request has come. Until what this returns is dropped, the connection is not put out.
    #[must_use]
    pub fn answering(self: &Arc<Self>) -> Answering {
        let mut state = self.seats.lock();
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Waiting(number) = *place {
            *place = if state.waiting.remove(&number).is_some() { Place::Answered } else { Place::Lost };
        }
        drop((state, place));
        Answering(Arc::clone(self))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.seats.lock();
        let place = *self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match place {
            Place::Waiting(number) => state.waiting.remove(&number).is_some(),
            Place::Answered => true,
            Place::Lost => false,
        };
        if held {
            state.taken -= 1;
        }
        drop(state);
        self.seats.changed.notify_waiters();
    }
}

/// A connection that is being answered.
#[derive(Debug)]
pub struct Answering(Arc<Seat>);

impl Drop for Answering {
    fn drop(&mut self) {
        let seat = &self.0;
        let mut state = seat.seats.lock();
        let mut place = seat.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Answered = *place {
            *place = Place::Waiting(state.wait(&seat.leave));
        }
        drop((state, place));
        seat.seats.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Whether something happens soon. What shall not happen is given little time for it.
    async fn soon(what: impl Future<Output = ()>, limit: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(limit), what).await.is_ok()
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn a_newcomer_gets_the_seat_of_who_has_waited_longest() {
        run(async {
            let seats = Seats::new(2);
            let (first, second) = (Arc::new(seats.take().await), Arc::new(seats.take().await));
            // The first has been answered and begins to wait after the second.
            drop(first.answering());
            let third = seats.take().await;
            assert!(soon(second.put_out(), 5000).await);
            assert!(!soon(first.put_out(), 20).await);
            assert_eq!(seats.taken(), 2);
            drop((first, second, third));
            assert_eq!(seats.taken(), 0);
        });
    }

    #[test]
    fn who_is_being_answered_keeps_the_seat_and_newcomers_wait() {
        run(async {
            let seats = Seats::new(1);
            let seat = Arc::new(seats.take().await);
            let answering = seat.answering();
            assert!(!soon(async { drop(seats.take().await) }, 20).await);
            assert!(!soon(seat.put_out(), 20).await);
            drop(answering);
            assert!(soon(async { drop(seats.take().await) }, 5000).await);
            assert!(soon(seat.put_out(), 5000).await);
            drop(seat);
            assert!(soon(seats.empty(), 5000).await);
        });
    }

    #[test]
    fn who_was_put_out_while_a_request_came_gives_nothing_back_twice() {
        run(async {
            let seats = Seats::new(1);
            let lost = Arc::new(seats.take().await);
            let kept = Arc::new(seats.take().await);
            drop(lost.answering());
            drop(lost);
            assert_eq!(seats.taken(), 1);
            drop(kept);
            assert_eq!(seats.taken(), 0);
        });
    }
}
