//! The parts of a full-screen program on a console.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`capabilities`] | the colors and characters of a terminal, by its `TERM` and locale or by its device |
//! | [`keys`] | bytes from a terminal as keys |
//! | [`console`] | opening a console, raw mode and restoring it, its size, waiting for keys |
//! | [`output`] | drawing: ratatui's cells as the few sequences that every terminal understands |
//! | [`outlet`] | bytes on their way to a terminal that may take none |
//! | [`theme`] | colors, attributes and characters |
//! | [`page`] | title line, body, line of messages, line of keys |
//! | `kernel_messages` | whether the kernel has written over a picture |
//! | [`page_loop`] | the loop of a page on consoles: keys, events and the clock |
//! | [`line`], [`form`] | a line that is typed; fields that are filled in |
//! | [`text`] | text to read and to scroll |
//! | [`qr`] | QR codes |
//!
//! Consoles are the video console, serial lines and, for rehearsals, any terminal on which the program was started. A serial line
//! knows neither its size nor its colors; 80 columns, 24 rows, ASCII and reverse video always work. Nothing here knows what an
//! install is.

pub mod capabilities;
pub mod console;
pub mod form;
mod kernel_messages;
pub mod keys;
pub mod line;
pub mod outlet;
pub mod output;
pub mod page;
pub mod page_loop;
pub mod qr;
pub mod text;
pub mod theme;

#[cfg(test)]
pub(crate) mod testing;

pub use capabilities::{Capabilities, Characters, Colors};
pub use console::{Console, Keyboard, Screen};
pub use keys::Key;
pub use theme::Theme;
