//! How long a program that a step runs may take.

use std::time::Duration;

use base::command::Invocation;

/// Longer than any step of a sane build takes, on any machine.
const LONG: Duration = Duration::from_secs(4 * 3600);

/// A limit that no step of a sane build reaches.
pub(super) fn long(invocation: Invocation) -> Invocation {
    invocation.limit(LONG)
}
