//! The page on one console, and threads for slow work.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ratatui::Frame;

use super::state::{NodePage, NodePageEffect};
use super::{NodeControl, NodePageEnd, NodePageInput, NodeWork, draw};
use crate::toolkit::page_loop::{self, EventSender, InteractivePage, PageInput, PageStep, PictureContext};
use crate::toolkit::{Console, Theme};

/// The interval of checking for signs of something new.
const SIGNS_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of observing the node, signs or not: an address can change, and a cluster can lose a node.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(60);

/// Shows the node until the user ends it, or for `idle` after the last key. An `administrator` gets further actions.
///
/// # Errors
/// The terminal is gone, or cannot be set up.
pub fn run(
    console: Console,
    node: Arc<dyn NodeControl>,
    administrator: bool,
    idle: Option<Duration>,
) -> Result<NodePageEnd> {
    let (sender, events) = page_loop::event_channel()?;
    let mut page = NodeConsole::new(node, NodePage::new(administrator), sender);
    Ok(page_loop::run(vec![console], &mut page, &events, idle)?.unwrap_or(NodePageEnd::Quit))
}

struct NodeConsole {
    node: Arc<dyn NodeControl>,
    state: NodePage,
    sender: EventSender<NodePageInput>,
    /// Whether an observation is running.
    looking: bool,
    looked: Option<Duration>,
    /// When the signs were read last, and the signs.
    signs: (Duration, String),
}

impl InteractivePage for NodeConsole {
    type Event = NodePageInput;
    type End = NodePageEnd;
    const TICK_INTERVAL: Duration = Duration::from_secs(1);

    fn draw(&mut self, context: &PictureContext<'_>, frame: &mut Frame<'_>, theme: Theme) {
        draw::state(&mut self.state, context.time, frame, theme);
    }

    fn take(&mut self, input: PageInput<NodePageInput>, now: Duration) -> PageStep<NodePageEnd> {
        let input = match input {
            PageInput::Tick => return self.watch(now),
            PageInput::Key(key) => NodePageInput::Key(key),
            PageInput::Event(event) => event,
        };
        self.looking &= !matches!(input, NodePageInput::Seen(_));
        match self.state.take(input) {
            Some(NodePageEffect::End(end)) => return PageStep::End(end),
            Some(NodePageEffect::Work(NodeWork::Look)) => self.look(now),
            Some(NodePageEffect::Work(work)) => self.begin(work),
            None => {}
        }
        PageStep::Draw
    }
}

impl NodeConsole {
    fn new(node: Arc<dyn NodeControl>, state: NodePage, sender: EventSender<NodePageInput>) -> Self {
        let signs = (Duration::ZERO, node.signs());
        Self { node, state, sender, looking: false, looked: None, signs }
    }

    /// Observes the node if it is time to.
    fn watch(&mut self, now: Duration) -> PageStep<NodePageEnd> {
        let mut due = self.looked.is_none_or(|looked| now - looked >= OBSERVATION_INTERVAL);
        if now - self.signs.0 >= SIGNS_INTERVAL {
            let signs = self.node.signs();
            due |= signs != self.signs.1;
            self.signs = (now, signs);
        }
        let trial = self.node.trial();
        // Another network has other addresses.
        due |= discriminant(&trial) != discriminant(&self.state.trial);
        let step = if trial == self.state.trial { PageStep::Stay } else { PageStep::Draw };
        self.state.take(NodePageInput::Trial(trial));
        if due {
            self.look(now);
        }
        step
    }

    fn look(&mut self, now: Duration) {
        if !self.looking {
            (self.looking, self.looked) = (true, Some(now));
            self.begin(NodeWork::Look);
        }
    }

    /// Starts work on a thread of its own. The end of the console does not wait for it.
    fn begin(&self, work: NodeWork) {
        let (node, sender) = (Arc::clone(&self.node), self.sender.clone());
        std::thread::spawn(move || sender.send(node.carry_out(work)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ready;
    use super::*;
    use crate::toolkit::Capabilities;
    use crate::toolkit::output::{Output, USUAL};
    use crate::toolkit::page_loop::{PictureChange, PictureClock, PictureDue};
    use node::network_trial::TrialStatus;
    use ratatui::Terminal;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A node on which nothing happens, and the number of observations.
    #[derive(Default)]
    struct Quiet {
        looks: AtomicUsize,
        signs: AtomicUsize,
    }

    impl NodeControl for Quiet {
        fn signs(&self) -> String {
            self.signs.fetch_add(1, Ordering::Relaxed);
            String::new()
        }

        fn trial(&self) -> TrialStatus {
            TrialStatus::None
        }

        fn carry_out(&self, work: NodeWork) -> NodePageInput {
            assert_eq!(work, NodeWork::Look);
            self.looks.fetch_add(1, Ordering::Relaxed);
            NodePageInput::Seen(Ok(Box::new(ready())))
        }
    }

    /// Counts bytes.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.fetch_add(bytes.len(), Ordering::Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_hour_in_which_nothing_happens_costs_a_look_a_minute_and_next_to_nothing_to_draw() {
        let (node, sent) = (Arc::new(Quiet::default()), Counter::default());
        let capabilities = Capabilities::of_term("vt220", true);
        let output = Output::new(sent.clone(), capabilities, || Some(USUAL));
        let mut terminal = Terminal::new(output).unwrap();
        let (sender, events) = page_loop::event_channel().unwrap();
        let mut page =
            NodeConsole::new(Arc::clone(&node) as Arc<dyn NodeControl>, NodePage::new(false), sender);
        let mut clock = PictureClock::default();
        let (mut first, mut pictures) = (0, 0);
        for second in 0..3600 {
            let now = Duration::from_secs(second);
            let mut changed = page.take(PageInput::Tick, now) == PageStep::Draw || second == 0;
            while page.looking {
                events.wait(&mut [], Duration::from_secs(60)).unwrap();
                for event in events.take() {
                    assert_eq!(page.take(PageInput::Event(event), now), PageStep::Draw);
                    changed = true;
                }
            }
            let time = format!("2026-03-02 10:{:02} UTC", second / 60);
            let due = clock.due(PictureChange { page: changed, written_over: false }, now, &time);
            if due == PictureDue::Whole {
                terminal.clear().unwrap();
            }
            if due != PictureDue::None {
                pictures += 1;
                let theme = Theme::of(capabilities);
                terminal.draw(|frame| draw::state(&mut page.state, &time, frame, theme)).unwrap();
            }
            if second == 0 {
                first = sent.0.load(Ordering::Relaxed);
            }
        }
        let counted = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        assert_eq!((counted(&node.looks), counted(&node.signs)), (60, 720));
        assert!(pictures <= 120, "{pictures} pictures");
        // Five pictures as a whole, and a minute of the clock sixty times, of some dozen bytes each.
        let (all, most) = (counted(&sent.0), first * 6 + 60 * 40);
        println!("bytes: {first} for the first picture, {all} in an hour");
        assert!(first > 500 && all < most, "{first} for a picture, {all} in an hour");
    }
}
