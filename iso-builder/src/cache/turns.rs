//! Turns: builds that run side by side do not make the same thing at the same time; whoever comes second finds it made.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

use base::parallel::locked;

/// What is being worked on, by name.
#[derive(Debug, Default)]
pub(super) struct Turns {
    busy: Mutex<BTreeSet<String>>,
    ended: Condvar,
}

/// The turn on one name; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    name: &'t str,
}

impl Turns {
    /// Waits until nobody else works on `name`. Whoever has a turn may take one on what its work needs, and not on what needs it.
    pub(super) fn take<'t>(&'t self, name: &'t str) -> Turn<'t> {
        let mut busy = locked(&self.busy);
        while busy.contains(name) {
            busy = self.ended.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(name.to_owned());
        Turn { turns: self, name }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        locked(&self.turns.busy).remove(self.name);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn one_works_on_a_name_at_a_time_and_another_name_does_not_wait() {
        let (turns, inside, most) = (Turns::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let other = turns.take("other");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _turn = turns.take("step");
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        drop(other);
        assert_eq!(most.into_inner(), 1);
        assert!(locked(&turns.busy).is_empty());
    }
}
