//! What Prometheus says of metrics.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::programs;

/// Checks that Prometheus reads the text of metrics, and finds nothing in it that is against its conventions
/// (<https://prometheus.io/docs/practices/naming/>).
pub fn accepts(test: &str, text: &str) {
    let Some(promtool) = programs::find("promtool") else {
        return programs::leave_out(test, "promtool is not on this machine");
    };
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = command.spawn().unwrap();
    checking.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = checking.wait_with_output().unwrap();
    let told = [checked.stdout, checked.stderr].map(|told| String::from_utf8(told).unwrap()).concat();
    assert!(checked.status.success() && told.is_empty(), "{told}{text}");
}
