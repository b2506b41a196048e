//! When an install may go over a finished node.

use super::fault::{Checked, Fault};
use crate::config::reinstall::Reinstall;

/// `false`, `true` or `once:WORD`.
pub(super) fn rule(text: &str) -> Checked {
    text.parse::<Reinstall>().map(drop).map_err(|error| Fault::new(error.to_string()))
}
