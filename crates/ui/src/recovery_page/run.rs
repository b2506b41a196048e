//! One console.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::state::{RecoveryEffect, RecoveryPage};
use super::{KEYS, RecoveryPageEnd, draw};
use crate::toolkit::Console;
use node::recovery::RecoveryFacts;

const KEY_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval of looking at the node, which opens its disks.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of sending the whole picture. The kernel writes its messages over it.
const REDRAW_INTERVAL: Duration = Duration::from_secs(600);

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
    let (mut screen, mut keyboard) = console.take()?;
    let mut page = RecoveryPage { administrator, ..RecoveryPage::default() };
    let theme = screen.theme();
    let (mut touched, mut drawn) = (Instant::now(), Instant::now());
    let mut looked: Option<Instant> = None;
    let mut shown = String::new();
    loop {
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
            page.facts = Some(look().map_err(|error| format!("{error:#}")));
            looked = Some(Instant::now());
            shown.clear();
        }
        if drawn.elapsed() >= REDRAW_INTERVAL {
            drawn = Instant::now();
            screen.forget();
            shown.clear();
        }
        let time = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        if time != shown || screen.is_outdated() {
            screen.draw(|frame| draw::state(&mut page, &time, frame, theme))?;
            shown = time;
        }
        let keys = keyboard.wait(KEY_TIMEOUT)?;
        if !keys.is_empty() {
            touched = Instant::now();
            shown.clear();
            // For the service that would start a slot; that it cannot be told is no reason to stop.
            let _ = fs::write(Path::new(KEYS), b"");
        } else if idle.is_some_and(|idle| touched.elapsed() >= idle) {
            return Ok(RecoveryPageEnd::Quit);
        }
        for key in keys {
            match page.take(key) {
                Some(RecoveryEffect::End(end)) => return Ok(end),
                Some(RecoveryEffect::Look) => {
                    looked = None;
                    screen.forget();
                }
                None => {}
            }
        }
    }
}
