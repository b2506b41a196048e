//! The time limit of programs that a step runs.

use std::time::Duration;

use base::command::Invocation;

/// No step of a sane build takes longer, on any machine.
const STEP_TIME_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Sets a limit that no step of a sane build reaches.
pub(super) fn long(invocation: Invocation) -> Invocation {
    invocation.limit(STEP_TIME_LIMIT)
}
