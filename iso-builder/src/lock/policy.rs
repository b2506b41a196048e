//! How a build treats its lock file and the network.

use std::path::Path;

use base::failure::{Class, Failure};

/// How a build treats its lock file.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockPolicy {
    /// Refuse a lock that is absent or does not fit.
    pub locked: bool,
    /// Use no network.
    pub offline: bool,
}

/// A lock that does not fit, `why`, where nothing may be resolved.
pub(crate) fn unfit(lock: &Path, policy: LockPolicy, why: &str) -> anyhow::Error {
    let option = if policy.locked { "--locked" } else { "--offline" };
    let what = format!("{} is absent or does not fit the definition, and {option} was given", lock.display());
    Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("{why}"))
        .hint("Make it anew with `iso-builder lock DEFINITION`.")
        .into()
}
