//! Messages of the kernel and of the system.

use std::time::Duration;

use base::command::{Invocation, Runner};
use base::failure::causes;

/// How many bytes of each log are kept, from its end.
const KEPT: usize = 8 << 20;

/// The messages of the kernel, which tell of a broken disk or card. The kernel's command line is left out, since it may
/// hold tokens.
pub(super) fn kernel(runner: &dyn Runner) -> String {
    let messages = text(runner, &Invocation::new("dmesg").limit(Duration::from_secs(5)));
    let shown = messages.lines().filter(|line| !line.to_ascii_lowercase().contains("command line:"));
    shown.map(|line| format!("{line}\n")).collect()
}

pub(super) fn logs(runner: &dyn Runner) -> Vec<(&'static str, String)> {
    let kernel = Invocation::new("dmesg").limit(Duration::from_secs(20));
    let journal = Invocation::new("journalctl")
        .args(["--boot", "--no-pager", "--quiet", "--output=short-precise", "--lines=50000"])
        .limit(Duration::from_secs(60));
    vec![("kernel.txt", text(runner, &kernel)), ("journal.txt", text(runner, &journal))]
}

fn text(runner: &dyn Runner, invocation: &Invocation) -> String {
    match runner.run(invocation) {
        Ok(bytes) => {
            let start = bytes.len().saturating_sub(KEPT);
            String::from_utf8_lossy(&bytes[start..]).into_owned()
        }
        Err(error) => format!("This could not be collected.\n{}\n", causes(&error).join("\n")),
    }
}
