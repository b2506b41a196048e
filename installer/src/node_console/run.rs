//! One console, and threads for what takes time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::state::{Effect, Input, State};
use super::{Action, End, Node, draw};
use crate::failure::causes;
use crate::terminal::{Console, Screen};

/// How long keys are waited for before there is a look at what else has come.
const TICK: Duration = Duration::from_secs(1);
/// How often there is a look whether the node shows signs of something new.
const SIGNS: Duration = Duration::from_secs(5);
/// How often the node is looked at, signs or not: an address can change, and a cluster can lose a node.
const LOOK: Duration = Duration::from_secs(30);
/// How often the picture is sent as a whole. The kernel writes its messages over it.
const REDRAW: Duration = Duration::from_secs(600);

/// Shows the node until somebody ends it. To an `administrator` it offers what only one may do.
///
/// # Errors
/// The terminal is gone, or cannot be set up.
pub fn run(console: Console, node: Arc<dyn Node>, administrator: bool) -> Result<End> {
    let (mut screen, mut keyboard) = console.take()?;
    let mut page = Loop::new(node, State::new(administrator));
    loop {
        page.watch(&mut screen)?;
        let keys = keyboard.wait(TICK)?;
        for input in keys.into_iter().map(Input::Key).chain(page.heard.try_iter().collect::<Vec<_>>()) {
            if let Some(end) = page.take(input, &mut screen)? {
                return Ok(end);
            }
        }
    }
}

struct Loop {
    node: Arc<dyn Node>,
    state: State,
    tell: Sender<Input>,
    heard: Receiver<Input>,
    /// Whether a look is under way.
    looking: bool,
    /// When the last look began.
    looked: Option<Instant>,
    signs: (Instant, String),
    drawn: Instant,
}

impl Loop {
    fn new(node: Arc<dyn Node>, state: State) -> Self {
        let (tell, heard) = channel();
        let signs = (Instant::now(), node.signs());
        Self { node, state, tell, heard, looking: false, looked: None, signs, drawn: Instant::now() }
    }

    /// Looks at the node if it is time to, and draws.
    fn watch(&mut self, screen: &mut Screen) -> Result<()> {
        let mut due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if self.signs.0.elapsed() >= SIGNS {
            let signs = self.node.signs();
            due = due || signs != self.signs.1;
            self.signs = (Instant::now(), signs);
        }
        if due {
            self.look();
        }
        if self.drawn.elapsed() >= REDRAW {
            self.drawn = Instant::now();
            screen.forget()?;
        }
        let theme = screen.theme();
        let time = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        screen.draw(|frame| draw::state(&mut self.state, &time, frame, theme))?;
        Ok(())
    }

    fn look(&mut self) {
        if !self.looking {
            self.looking = true;
            self.looked = Some(Instant::now());
            self.begin(|node| Input::Seen(node.look().map(Box::new).map_err(|error| told(&error))));
        }
    }

    /// Does work on a thread of its own. Nobody waits for it when the console ends.
    fn begin(&self, work: impl FnOnce(&dyn Node) -> Input + Send + 'static) {
        let (node, tell) = (Arc::clone(&self.node), self.tell.clone());
        std::thread::spawn(move || {
            let _ = tell.send(work(&*node));
        });
    }

    fn take(&mut self, input: Input, screen: &mut Screen) -> Result<Option<End>> {
        if matches!(input, Input::Seen(_)) {
            self.looking = false;
        }
        match self.state.take(input) {
            None => {}
            Some(Effect::LogIn) => return Ok(Some(End::LogIn)),
            Some(Effect::Quit) => return Ok(Some(End::Quit)),
            Some(Effect::Redraw) => screen.forget()?,
            Some(Effect::Look) => {
                screen.forget()?;
                self.look();
            }
            Some(Effect::Logs) => self.begin(|node| Input::Logs(node.logs().map_err(|error| told(&error)))),
            Some(Effect::Act(action)) => self.begin(move |node| Input::Done(act(node, action))),
        }
        Ok(None)
    }
}

fn act(node: &dyn Node, action: Action) -> Result<String, String> {
    match action {
        Action::Power(power) => node.power(power).map(|()| "The machine is being stopped.".to_owned()),
        Action::Bundle => node.bundle().map(|path| format!("It is in {}, for root alone.", path.display())),
    }
    .map_err(|error| told(&error))
}

/// An error in one line.
fn told(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}
