//! One outcome of many answers.

use crate::check::CheckOutcome;
use machine::network_trouble::NetworkTrouble;

/// One outcome of many answers: each is a subject and its result. A finding outweighs an unanswered question, and that outweighs
/// a good answer.
pub(super) fn judge(answers: Vec<(String, Result<String, NetworkTrouble>)>, next: &str) -> CheckOutcome {
    let mut found = Vec::new();
    let mut lasting = false;
    let mut unknown = Vec::new();
    let mut good = Vec::new();
    for (subject, answer) in answers {
        match answer {
            Ok(detail) => good.push(format!("{subject} {detail}")),
            Err(NetworkTrouble::Silent(what)) => {
                lasting = true;
                found.push(format!("{subject} {what}"));
            }
            Err(NetworkTrouble::NotYet(what)) => found.push(format!("{subject} {what}")),
            Err(NetworkTrouble::Unable(why)) => unknown.push(format!("{subject} {why}")),
        }
    }
    if !found.is_empty() {
        // An unanswered question is not a finding, and is reported beside it.
        found.extend(unknown);
        let outcome = CheckOutcome::found(found.join("; "), next);
        if lasting { outcome } else { outcome.awaited() }
    } else if !unknown.is_empty() {
        CheckOutcome::could_not_run(unknown.join("; "))
    } else {
        CheckOutcome::passed(good.join("; "))
    }
}
