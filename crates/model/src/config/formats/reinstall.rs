//! When an install may go over a finished node.

use crate::config::reinstall::Reinstall;
use document::format::{Fault, FormatResult};

/// `false`, `true` or `once:WORD`.
pub(super) fn rule(text: &str) -> FormatResult {
    text.parse::<Reinstall>().map(drop).map_err(|error| Fault::new(error.to_string()))
}
