//! What an error of a socket, or a time that is over, says about the machine that was asked.

use std::io;
use std::time::{Duration, Instant};

use machine::network_trouble::NetworkTrouble;

/// A server that there is no time to wait for does not count as silent.
pub(super) fn in_time(until: Instant) -> Result<(), NetworkTrouble> {
    let over = || NetworkTrouble::Unable("was not asked: the time for all checks was over".into());
    if Instant::now() < until { Ok(()) } else { Err(over()) }
}

/// The remaining time; never zero, which means no limit for sockets.
pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

pub(super) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Whether this system could not ask, or there was no answer.
#[allow(clippy::needless_pass_by_value)]
pub(super) fn trouble(error: io::Error) -> NetworkTrouble {
    use io::ErrorKind::{AddrNotAvailable, NetworkDown, NetworkUnreachable, PermissionDenied};
    match error.kind() {
        NetworkUnreachable | AddrNotAvailable => {
            NetworkTrouble::Unable("cannot be reached: this system has no route to it".into())
        }
        NetworkDown => NetworkTrouble::Unable("cannot be reached: the network is down".into()),
        PermissionDenied => NetworkTrouble::Unable(format!("cannot be asked: {error}")),
        _ if timed_out(&error) => NetworkTrouble::Silent("does not answer".into()),
        io::ErrorKind::ConnectionRefused => NetworkTrouble::Silent("refuses connections".into()),
        _ => NetworkTrouble::Silent(format!("cannot be reached: {error}")),
    }
}
