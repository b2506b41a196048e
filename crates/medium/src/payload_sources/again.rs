//! Retries of transfers whose content is damaged.

use anyhow::Result;

use base::failure::{Class, class_of};

const ATTEMPTS: usize = 3;

/// Retries `fetch` if the content is damaged: proxies truncate bodies, and the checksum of TCP misses about one damaged
/// packet in ten thousand. `told` is called with each failure but the last.
pub fn fetch_again<T>(
    mut fetch: impl FnMut() -> Result<T>,
    mut told: impl FnMut(&anyhow::Error),
) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match fetch() {
            Err(error) if class_of(&error) == Class::Verification => told(&error),
            done => return done,
        }
    }
    fetch()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::Failure;

    #[test]
    fn only_damage_is_fetched_again_and_not_forever() {
        for (class, damaged, calls, told) in [
            (Class::Verification, 0, 1, 0),
            (Class::Verification, 1, 2, 1),
            (Class::Verification, 2, 3, 2),
            (Class::Verification, 9, 3, 2),
            (Class::Network, 9, 1, 0),
            (Class::DiskIo, 9, 1, 0),
        ] {
            let (mut called, mut heard) = (0, 0);
            let fetch = || {
                called += 1;
                match called > damaged {
                    true => Ok(()),
                    false => Err(Failure::new(class, "no").into()),
                }
            };
            let done = fetch_again(fetch, |_| heard += 1);
            assert_eq!((done.is_ok(), called, heard), (damaged < calls, calls, told), "{class:?} {damaged}");
        }
    }
}
