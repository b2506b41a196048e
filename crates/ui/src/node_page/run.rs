//! One console, and threads for slow work.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::state::{NodePage, NodePageEffect, NodePageInput};
use super::{Action, NodeControl, NodePageEnd, draw};
use crate::toolkit::Console;
use base::failure::causes;

/// How long to wait for keys before other news is handled.
const KEY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same while a slow terminal still takes the picture.
const SLOW_TERMINAL_TIMEOUT: Duration = Duration::from_millis(50);
/// The interval of checking for signs of something new.
const SIGNS_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of observing the node, signs or not: an address can change, and a cluster can lose a node.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(60);
/// The interval of sending the whole picture. The kernel writes its messages over it.
const REDRAW_INTERVAL: Duration = Duration::from_secs(600);

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
    let (mut screen, mut keyboard) = console.take()?;
    let begin = Instant::now();
    let mut touched = begin;
    let mut page = NodePageLoop::new(node, NodePage::new(administrator));
    let theme = screen.theme();
    loop {
        if page.watch(begin.elapsed()) {
            screen.forget();
        }
        let time = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        if page.has_news(&time) | screen.is_outdated() {
            screen.draw(|frame| draw::state(&mut page.state, &time, frame, theme))?;
        }
        let keys = keyboard.wait(if screen.is_behind() { SLOW_TERMINAL_TIMEOUT } else { KEY_TIMEOUT })?;
        if !keys.is_empty() {
            touched = Instant::now();
        } else if idle.is_some_and(|idle| touched.elapsed() >= idle) {
            return Ok(NodePageEnd::Quit);
        }
        for input in keys.into_iter().map(NodePageInput::Key).chain(page.heard.try_iter().collect::<Vec<_>>())
        {
            match page.take(input) {
                NextPicture::Stay => {}
                NextPicture::Redraw => screen.forget(),
                NextPicture::End(end) => return Ok(end),
            }
        }
    }
}

/// What an input leads to on the screen.
enum NextPicture {
    Stay,
    Redraw,
    End(NodePageEnd),
}

/// The work of a console without its terminal. Times are since its beginning.
struct NodePageLoop {
    node: Arc<dyn NodeControl>,
    state: NodePage,
    tell: Sender<NodePageInput>,
    heard: Receiver<NodePageInput>,
    now: Duration,
    /// Whether an observation is running.
    looking: bool,
    looked: Option<Duration>,
    /// When the signs were read last, and the signs.
    signs: (Duration, String),
    drawn: Duration,
    /// Whether something has not been drawn, and the time of day on the picture.
    news: (bool, String),
}

impl NodePageLoop {
    fn new(node: Arc<dyn NodeControl>, state: NodePage) -> Self {
        let (tell, heard) = channel();
        let (now, signs) = (Duration::ZERO, (Duration::ZERO, node.signs()));
        Self {
            node,
            state,
            tell,
            heard,
            now,
            looking: false,
            looked: None,
            signs,
            drawn: now,
            news: (true, String::new()),
        }
    }

    /// Observes the node if it is time to; returns whether the picture is to be sent as a whole.
    fn watch(&mut self, now: Duration) -> bool {
        self.now = now;
        let mut due = self.looked.is_none_or(|looked| now - looked >= OBSERVATION_INTERVAL);
        if now - self.signs.0 >= SIGNS_INTERVAL {
            let signs = self.node.signs();
            due = due || signs != self.signs.1;
            self.signs = (now, signs);
        }
        let trial = self.node.trial();
        // Another network has other addresses.
        due = due || discriminant(&trial) != discriminant(&self.state.trial);
        self.news.0 |= trial != self.state.trial;
        self.state.take(NodePageInput::Trial(trial));
        if due {
            self.look();
        }
        let whole = now - self.drawn >= REDRAW_INTERVAL;
        if whole {
            self.drawn = now;
        }
        whole
    }

    /// Whether there is anything new to draw at this time of day. An unchanged picture is not drawn: once a second that would
    /// cost more than all the observations.
    fn has_news(&mut self, time: &str) -> bool {
        let news = std::mem::take(&mut self.news.0) || self.news.1 != time;
        time.clone_into(&mut self.news.1);
        news
    }

    fn look(&mut self) {
        if !self.looking {
            (self.looking, self.looked) = (true, Some(self.now));
            self.begin(|node| {
                NodePageInput::Seen(node.look().map(Box::new).map_err(|error| one_line(&error)))
            });
        }
    }

    /// Starts work on a thread of its own. The end of the console does not wait for it.
    fn begin(&self, work: impl FnOnce(&dyn NodeControl) -> NodePageInput + Send + 'static) {
        let (node, tell) = (Arc::clone(&self.node), self.tell.clone());
        std::thread::spawn(move || {
            let _ = tell.send(work(&*node));
        });
    }

    fn take(&mut self, input: NodePageInput) -> NextPicture {
        self.news.0 = true;
        if matches!(input, NodePageInput::Seen(_)) {
            self.looking = false;
        }
        match self.state.take(input) {
            None => {}
            Some(NodePageEffect::LogIn) => return NextPicture::End(NodePageEnd::LogIn),
            Some(NodePageEffect::Quit) => return NextPicture::End(NodePageEnd::Quit),
            Some(NodePageEffect::Redraw) => return NextPicture::Redraw,
            Some(NodePageEffect::Look) => {
                self.look();
                return NextPicture::Redraw;
            }
            Some(NodePageEffect::Logs) => {
                self.begin(|node| NodePageInput::Logs(node.logs().map_err(|error| one_line(&error))))
            }
            Some(NodePageEffect::Act(action)) => {
                self.begin(move |node| NodePageInput::Done(act(node, action)))
            }
            Some(NodePageEffect::Sticks) => {
                self.begin(|node| NodePageInput::Sticks(node.sticks().map_err(|error| one_line(&error))));
            }
            Some(NodePageEffect::Network) => self.begin(|node| NodePageInput::Network(boxed(node.network()))),
            Some(NodePageEffect::Propose(networks)) => {
                self.begin(move |node| NodePageInput::Proposed(boxed(node.propose(&networks))));
            }
            Some(NodePageEffect::Try(networks, accepted)) => self.begin(move |node| {
                NodePageInput::Began(node.try_networks(&networks, accepted).map_err(|error| one_line(&error)))
            }),
        }
        NextPicture::Stay
    }
}

fn boxed<T>(result: Result<T>) -> Result<Box<T>, String> {
    result.map(Box::new).map_err(|error| one_line(&error))
}

fn act(node: &dyn NodeControl, action: Action) -> Result<String, String> {
    match action {
        Action::Power(power) => node.power(power).map(|()| "The machine is being stopped.".to_owned()),
        Action::Confirm => node.confirm(),
        Action::Revert => node.revert(),
        Action::Bundle(volume) => node.bundle(volume.as_ref()),
    }
    .map_err(|error| one_line(&error))
}

/// An error in one line.
fn one_line(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}

#[cfg(test)]
mod tests {
    use super::super::network::{PresentNetwork, Proposal};
    use super::super::tests::ready;
    use super::super::{NodePageFacts, Power};
    use super::*;
    use crate::toolkit::output::{Output, USUAL};
    use crate::toolkit::{Capabilities, Theme};
    use install::usb_stick::{StickSurvey, StickVolume};
    use node::network_trial::{Networks, TrialStatus};
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

        fn look(&self) -> Result<NodePageFacts> {
            self.looks.fetch_add(1, Ordering::Relaxed);
            Ok(ready())
        }

        fn trial(&self) -> TrialStatus {
            TrialStatus::None
        }

        fn logs(&self) -> Result<Vec<String>> {
            anyhow::bail!("nobody asks")
        }

        fn sticks(&self) -> Result<StickSurvey> {
            anyhow::bail!("nobody asks")
        }

        fn bundle(&self, _: Option<&StickVolume>) -> Result<String> {
            anyhow::bail!("nobody asks")
        }

        fn power(&self, _: Power) -> Result<()> {
            anyhow::bail!("nobody asks")
        }

        fn network(&self) -> Result<PresentNetwork> {
            anyhow::bail!("nobody asks")
        }

        fn propose(&self, _: &Networks) -> Result<Proposal> {
            anyhow::bail!("nobody asks")
        }

        fn try_networks(&self, _: &Networks, _: bool) -> Result<()> {
            anyhow::bail!("nobody asks")
        }

        fn confirm(&self) -> Result<String> {
            anyhow::bail!("nobody asks")
        }

        fn revert(&self) -> Result<String> {
            anyhow::bail!("nobody asks")
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
        let mut page = NodePageLoop::new(Arc::clone(&node) as Arc<dyn NodeControl>, NodePage::new(false));
        let (mut first, mut pictures) = (0, 0);
        for second in 0..3600 {
            if page.watch(Duration::from_secs(second)) {
                terminal.clear().unwrap();
            }
            if page.looking {
                let seen = page.heard.recv().unwrap();
                assert!(matches!(page.take(seen), NextPicture::Stay));
            }
            let time = format!("2026-03-02 10:{:02} UTC", second / 60);
            let theme = Theme::of(capabilities);
            if page.has_news(&time) {
                pictures += 1;
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
