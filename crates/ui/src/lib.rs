//! The user interface on terminals and consoles.
//!
//! `toolkit` knows consoles, keys, pages and forms, and nothing of installing. `answers`, `fields` and `network_fields` hold the
//! answers; above them are `questions` (the screens of an install), `node_page` (the page of an installed node) and
//! `recovery_page`, which do not know each other. The installer's commands
//! start them.

pub mod answers;
mod fields;
mod missing_values;
mod network_fields;
pub mod node_page;
pub mod questions;
pub mod recovery_page;
pub mod toolkit;
