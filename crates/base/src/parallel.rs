//! The same work for many things, several at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use crate::failure::{Class, Failure};

/// Does `work` for every item, `threads` at a time and in order. The first failure lets what is under way end, begins
/// nothing more, and is returned.
pub fn for_each<'a, T: Sync>(
    items: &'a [T],
    threads: usize,
    work: impl Fn(&'a T) -> Result<()> + Sync,
) -> Result<()> {
    for_each_interruptible(items, threads, |item, _| work(item))
}

/// Does the same with work that has results, which come in the order of the items. `E` is [`std::convert::Infallible`] for
/// work that cannot fail.
pub fn map<'a, T: Sync, R: Send, E: Send>(
    items: &'a [T],
    threads: usize,
    work: impl Fn(&'a T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let places: Vec<_> = items.iter().map(|item| (item, Mutex::new(None))).collect();
    for_each_interruptible(&places, threads, |(item, place), _| {
        *locked(place) = Some(work(item)?);
        Ok(())
    })?;
    let made = |(_, place): (_, Mutex<Option<R>>)| place.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(places.into_iter().filter_map(made).collect())
}

/// Does the same with work that can end early: it gets a function that returns an error after a failure elsewhere.
pub fn for_each_interruptible<'a, T: Sync, E: Send>(
    items: &'a [T],
    threads: usize,
    work: impl Fn(&'a T, &dyn Fn() -> Result<(), Failure>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, stop, failure) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
    let go_on = || match stop.load(Ordering::Relaxed) {
        true => Err(Failure::new(Class::Cancelled, "stopped after a failure elsewhere")),
        false => Ok(()),
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1).min(items.len()) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    if let Err(error) = work(item, &go_on) {
                        // Stored before the flag is set: failures that follow from it come later.
                        let mut first = locked(&failure);
                        stop.store(true, Ordering::Relaxed);
                        first.get_or_insert(error);
                    }
                }
            });
        }
    });
    let failure = locked(&failure).take();
    failure.map_or(Ok(()), Err)
}

/// Does two things side by side. Both end; of two failures the first one's is returned.
pub fn both<A: Send, B>(
    first: impl FnOnce() -> Result<A> + Send,
    second: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    let (first, second) = beside(first, second);
    Ok((first?, second?))
}

/// Does two things side by side that have no failures in common.
pub fn beside<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second)
    })
}

/// The content of a mutex, even where a thread panicked while it held it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;

    #[test]
    fn two_things_run_at_the_same_time_and_a_failure_of_the_first_is_told_first() {
        let met = std::sync::Barrier::new(2);
        let meet = |value: u32| {
            met.wait();
            Ok(value)
        };
        assert_eq!(both(|| meet(1), || meet(2)).unwrap(), (1, 2));
        let fail = |what: &'static str| -> Result<()> { Err(anyhow::anyhow!(what)) };
        assert_eq!(both(|| fail("first"), || fail("second")).unwrap_err().to_string(), "first");
        assert_eq!(both(|| Ok(()), || fail("second")).unwrap_err().to_string(), "second");
    }

    #[test]
    fn results_come_in_the_order_of_the_items_whatever_takes_longest() {
        let waits = [30, 0, 20, 0];
        let wait = |milliseconds: &u64| {
            thread::sleep(Duration::from_millis(*milliseconds));
            Ok::<_, Infallible>(*milliseconds)
        };
        let Ok(waited) = map(&waits, 4, wait);
        assert_eq!(waited, waits);
        let error = map(&waits, 2, |wait| if *wait == 20 { anyhow::bail!("twenty") } else { Ok(()) });
        assert_eq!(error.unwrap_err().to_string(), "twenty");
    }

    #[test]
    fn everything_is_done_once_or_the_first_failure_is_told() {
        let items: Vec<usize> = (0..100).collect();
        let done = Mutex::new(Vec::new());
        for_each(&items, 4, |item| {
            locked(&done).push(*item);
            Ok(())
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, items);
        let count = AtomicUsize::new(0);
        let error = for_each(&items, 2, |item| {
            count.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(*item != 10, "ten");
            // An error takes time to make where it holds a backtrace.
            thread::sleep(Duration::from_millis(if *item > 10 { 20 } else { 0 }));
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "ten");
        assert!(count.into_inner() < 100, "what comes after a failure is not begun");
    }
}
