//! The page of the fleet as people see it: its HTML in every state, and the page in a real browser.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod browser;
mod devtools;
mod golden;
mod large;
mod scene;
mod server;
