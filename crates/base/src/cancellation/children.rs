//! The processes that this one has started, found in `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long killed processes may take to be gone: the kernel frees their memory meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);

/// Kills every child of this process and waits until all have ended. Processes in a PID namespace end with its first one.
pub(super) fn end_all() {
    if Pid::this().as_raw() == 1 {
        // As process 1 of a container: -1 reaches every other process of the container (kill(2)).
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let running = running();
        if running.is_empty() || Instant::now() > until {
            return;
        }
        for child in running {
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The children that have not ended. Empty if `/proc` belongs to another PID namespace: its numbers mean other processes.
fn running() -> Vec<Pid> {
    let own = Pid::this();
    let named = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    if named != Some(own.as_raw()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).filter(|pid| is_running_child(*pid, own)).collect()
}

/// proc_pid_stat(5): the name is in parentheses and may have any character in it; state and parent follow it.
fn is_running_child(pid: Pid, parent: Pid) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    let stat = String::from_utf8_lossy(&stat);
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let (state, above) = (fields.next(), fields.next());
    !matches!(state, Some("Z" | "X")) && above == Some(&parent.to_string())
}
