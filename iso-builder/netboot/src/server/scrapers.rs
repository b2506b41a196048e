//! Who may read the metrics while the state cannot be read.

use std::sync::{Mutex, PoisonError};

use base::digest::Digest;

/// The most credentials that are remembered.
const MOST: usize = 16;

/// The credentials that this server has accepted at a scrape. While the state cannot be read, whether a token is still valid
/// cannot be known, and metrics are needed most: these go on to read metrics, and nothing else.
#[derive(Debug, Default)]
pub struct AcceptedScrapers(Mutex<Vec<Digest>>);

impl AcceptedScrapers {
    pub fn add(&self, credentials: Digest) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| *known != credentials);
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(credentials);
    }

    pub fn remove(&self, credentials: Digest) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != credentials);
    }

    #[must_use]
    pub fn has(&self, credentials: Digest) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_credentials_are_remembered_and_a_refused_one_is_not() {
        let accepted = AcceptedScrapers::default();
        let digest = |number: usize| Digest::of(number.to_string().as_bytes());
        (0..=MOST).for_each(|number| accepted.add(digest(number)));
        assert!(!accepted.has(digest(0)) && accepted.has(digest(1)) && accepted.has(digest(MOST)));
        accepted.add(digest(1));
        accepted.add(digest(100));
        assert!(accepted.has(digest(1)), "it was used again");
        accepted.remove(digest(1));
        assert!(!accepted.has(digest(1)));
    }
}
