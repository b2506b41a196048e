//! How a build treats its lock file and the network.

use std::path::Path;

use base::failure::{Class, Failure};

/// How a build treats its lock file.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockPolicy {
    /// Fail if the lock is missing or does not match.
    pub locked: bool,
    pub offline: bool,
}

/// The failure of a lock that does not fit (the reason is `why`) and may not be changed.
pub(crate) fn unfit(lock: &Path, policy: LockPolicy, why: &str) -> anyhow::Error {
    let option = if policy.locked { "--locked" } else { "--offline" };
    let what =
        format!("{} is missing or does not match the definition, and {option} was given", lock.display());
    Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("{why}"))
        .hint("Make it anew with `iso-builder lock DEFINITION`.")
        .into()
}
