//! The page on one console.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ratatui::Frame;

use super::state::{RecoveryEffect, RecoveryPage};
use super::{KEYS, RecoveryPageEnd, draw};
use crate::toolkit::page_loop::{self, InteractivePage, PageInput, PageStep, PictureContext};
use crate::toolkit::{Console, Theme};
use node::recovery::RecoveryFacts;

/// The interval of reading the facts, which opens the disks.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Shows the recovery system until the user ends it, or for `idle` after the last key. An `administrator` gets further actions.
///
/// # Errors
/// The terminal is gone, or cannot be set up.
pub fn run(
    console: Console,
    look: &dyn Fn() -> Result<RecoveryFacts>,
    administrator: bool,
    idle: Option<Duration>,
) -> Result<RecoveryPageEnd> {
    let state = RecoveryPage { administrator, ..RecoveryPage::default() };
    let (_sender, events) = page_loop::event_channel()?;
    let end =
        page_loop::run(vec![console], &mut RecoveryConsole { state, look, looked: None }, &events, idle)?;
    Ok(end.unwrap_or(RecoveryPageEnd::Quit))
}

struct RecoveryConsole<'a> {
    state: RecoveryPage,
    look: &'a dyn Fn() -> Result<RecoveryFacts>,
    /// When the facts were read last.
    looked: Option<Duration>,
}

impl InteractivePage for RecoveryConsole<'_> {
    type Event = ();
    type End = RecoveryPageEnd;
    const TICK_INTERVAL: Duration = Duration::from_secs(1);

    fn draw(&mut self, context: &PictureContext<'_>, frame: &mut Frame<'_>, theme: Theme) {
        draw::state(&mut self.state, context.time, frame, theme);
    }

    fn take(&mut self, input: PageInput<()>, now: Duration) -> PageStep<RecoveryPageEnd> {
        if let PageInput::Key(key) = input {
            // For the service that would start a slot; if it cannot be told, the page still works.
            let _ = fs::write(Path::new(KEYS), b"");
            match self.state.take(key) {
                Some(RecoveryEffect::End(end)) => return PageStep::End(end),
                Some(RecoveryEffect::Look) => self.looked = None,
                None => {}
            }
            return PageStep::Draw;
        }
        if self.looked.is_some_and(|looked| now - looked < LOOK_INTERVAL) {
            return PageStep::Stay;
        }
        self.state.facts = Some((self.look)().map_err(|error| format!("{error:#}")));
        self.looked = Some(now);
        PageStep::Draw
    }
}
