//! One outcome of many answers.

use crate::preflight::check::CheckOutcome;
use crate::preflight::trouble::NetworkTrouble;

/// One outcome of many answers: each is a subject and what came of it. A finding outweighs what nobody could find
/// out, and that outweighs what is good.
pub(super) fn judge(answers: Vec<(String, Result<String, NetworkTrouble>)>, next: &str) -> CheckOutcome {
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    let mut good = Vec::new();
    for (subject, answer) in answers {
        match answer {
            Ok(detail) => good.push(format!("{subject} {detail}")),
            Err(NetworkTrouble::Silent(what)) => found.push(format!("{subject} {what}")),
            Err(NetworkTrouble::Unable(why)) => unknown.push(format!("{subject} {why}")),
        }
    }
    if !found.is_empty() {
        // What is not known is not a finding, and is told beside it.
        found.extend(unknown);
        CheckOutcome::found(found.join("; "), next)
    } else if !unknown.is_empty() {
        CheckOutcome::could_not_run(unknown.join("; "))
    } else {
        CheckOutcome::passed(good.join("; "))
    }
}
