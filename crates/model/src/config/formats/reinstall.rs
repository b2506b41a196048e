//! When an install may go over a finished node.

use crate::config::reinstall::Reinstall;
use document::format::{FormatFault, FormatResult};

/// `false`, `true` or `once:WORD`.
pub(super) fn rule(text: &str) -> FormatResult {
    text.parse::<Reinstall>().map(drop).map_err(|error| FormatFault::new(error.to_string()))
}
