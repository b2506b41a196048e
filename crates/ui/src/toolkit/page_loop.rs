//! The loop of a page on one or several consoles: it draws, waits for keys, events and the clock, and hands them to the page.
//!
//! With several consoles one leads: keys of the others count only after Enter there takes the lead. A console that is gone leaves
//! the others as they are.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use ratatui::Frame;

use super::capabilities::term_of_device;
use super::console::wait_for_keys;
use super::kernel_messages::{self, KernelMessages};
use super::{Console, Key, Keyboard, Screen, Theme};
use base::failure::{Class, Failure};

/// How long to wait while a slow terminal still takes a picture.
const SLOW_TERMINAL_TIMEOUT: Duration = Duration::from_millis(50);
/// The interval of sending the whole picture, whatever else was written over it.
const REDRAW_INTERVAL: Duration = Duration::from_secs(600);

/// A page: its state, its picture, and what its keys do.
pub trait InteractivePage {
    /// Sent by work on other threads.
    type Event;
    type End;
    /// The longest time between two ticks.
    const TICK_INTERVAL: Duration;

    fn draw(&mut self, context: &PictureContext<'_>, frame: &mut Frame<'_>, theme: Theme);

    /// Takes an input; `now` is the time since the beginning.
    fn take(&mut self, input: PageInput<Self::Event>, now: Duration) -> PageStep<Self::End>;

    /// Uses the console that [`PageStep::Lend`] has released on another thread; `None` if no console leads.
    fn lend(&mut self, _: Option<LentConsole>) {}
}

#[derive(Debug)]
pub enum PageInput<E> {
    Tick,
    Key(Key),
    Event(E),
}

/// The consequence of an input for the loop.
#[derive(Debug, PartialEq, Eq)]
pub enum PageStep<End> {
    /// The picture is still right.
    Stay,
    Draw,
    /// Release the console that leads.
    Lend,
    /// Take the console back that was lent.
    TakeBack,
    End(End),
}

#[derive(Debug)]
pub struct PictureContext<'a> {
    pub time: &'a str,
    /// The name of the console that leads, if this is another one.
    pub leader: Option<&'a str>,
}

#[derive(Debug)]
pub struct LentConsole {
    pub terminal: File,
    /// The type of the terminal (`TERM`).
    pub term: &'static str,
}

#[derive(Debug)]
pub struct EventSender<E> {
    events: mpsc::Sender<E>,
    wake: Arc<UnixStream>,
}

impl<E> Clone for EventSender<E> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<E> EventSender<E> {
    /// Sends an event; without effect after the end of the loop.
    pub fn send(&self, event: E) {
        let _ = self.events.send(event);
        // A full socket wakes the loop too.
        let _ = (&*self.wake).write(&[0]);
    }
}

#[derive(Debug)]
pub struct EventQueue<E> {
    events: mpsc::Receiver<E>,
    wake: UnixStream,
}

impl<E> EventQueue<E> {
    /// Waits for keys, an event, or `timeout`: see [`wait_for_keys`].
    pub(crate) fn wait(
        &self,
        keyboards: &mut [&mut Keyboard],
        timeout: Duration,
    ) -> io::Result<Vec<io::Result<Vec<Key>>>> {
        wait_for_keys(keyboards, self.wake.as_fd(), timeout)
    }

    pub(crate) fn take(&self) -> Vec<E> {
        let mut bytes = [0; 1024];
        while (&self.wake).read(&mut bytes).is_ok_and(|count| count > 0) {}
        self.events.try_iter().collect()
    }
}

/// # Errors
/// No sockets are left.
pub fn event_channel<E>() -> io::Result<(EventSender<E>, EventQueue<E>)> {
    let (sender, receiver) = mpsc::channel();
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    Ok((EventSender { events: sender, wake: Arc::new(wake) }, EventQueue { events: receiver, wake: woken }))
}

/// Shows a page until it ends; `None` if there was no key for `idle`.
///
/// # Errors
/// No console can be set up, or all are gone (class [`Class::Cancelled`]).
pub fn run<P: InteractivePage>(
    consoles: Vec<Console>,
    page: &mut P,
    events: &EventQueue<P::Event>,
    idle: Option<Duration>,
) -> Result<Option<P::End>> {
    let (mut taken, mut error) = (Vec::new(), None);
    for console in consoles {
        match LoopConsole::take(console) {
            Ok(console) => taken.push(console),
            // The kernel names serial lines that the machine does not have.
            Err(refused) => error = Some(refused),
        }
    }
    if let Some(error) = error.filter(|_| taken.is_empty()) {
        return Err(error);
    }
    let of_kernel = taken.iter().any(|console| kernel_messages::writes_on(&console.device));
    let mut page_loop = PageLoop {
        page,
        consoles: taken,
        lead: None,
        begin: Instant::now(),
        changed: true,
        kernel: of_kernel.then(KernelMessages::begin).flatten(),
    };
    let mut picture = PictureClock::default();
    let mut touched = Instant::now();
    loop {
        if let Some(end) = page_loop.take(PageInput::Tick) {
            return Ok(Some(end));
        }
        page_loop.draw(&mut picture);
        if page_loop.consoles.iter().all(LoopConsole::is_gone) {
            return Err(Failure::new(Class::Cancelled, "the console is gone").into());
        }
        let keys = page_loop.wait(events)?;
        if !keys.is_empty() {
            touched = Instant::now();
        } else if idle.is_some_and(|idle| touched.elapsed() >= idle) {
            return Ok(None);
        }
        let keys: Vec<_> =
            keys.into_iter().flat_map(|(console, keys)| page_loop.leading(console, keys)).collect();
        let inputs =
            keys.into_iter().map(PageInput::Key).chain(events.take().into_iter().map(PageInput::Event));
        // All inputs that have arrived make one picture.
        for input in inputs {
            if let Some(end) = page_loop.take(input) {
                return Ok(Some(end));
            }
        }
    }
}

/// A console as the loop has it.
struct LoopConsole {
    device: PathBuf,
    /// `None` while the console is lent, and after it is gone.
    terminal: Option<(Screen, Keyboard)>,
    lent: bool,
}

impl LoopConsole {
    fn take(console: Console) -> Result<Self> {
        Ok(Self { device: console.name().to_owned(), terminal: Some(console.take()?), lent: false })
    }

    fn is_gone(&self) -> bool {
        self.terminal.is_none() && !self.lent
    }
}

struct PageLoop<'a, P> {
    page: &'a mut P,
    consoles: Vec<LoopConsole>,
    /// The number of the console that leads: the first one that is used.
    lead: Option<usize>,
    begin: Instant,
    /// Whether the last picture is out of date.
    changed: bool,
    /// The messages that the kernel may write over it.
    kernel: Option<KernelMessages>,
}

impl<P: InteractivePage> PageLoop<'_, P> {
    /// Hands an input to the page; returns the end of the page.
    fn take(&mut self, input: PageInput<P::Event>) -> Option<P::End> {
        match self.page.take(input, self.begin.elapsed()) {
            PageStep::Stay => return None,
            PageStep::Draw => {}
            PageStep::Lend => self.lend(),
            PageStep::TakeBack => self.take_back(),
            PageStep::End(end) => return Some(end),
        }
        self.changed = true;
        None
    }

    fn draw(&mut self, picture: &mut PictureClock) {
        let time = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        let written_over = self.kernel.as_mut().is_some_and(KernelMessages::were_shown);
        let change = PictureChange { page: std::mem::take(&mut self.changed), written_over };
        let due = picture.due(change, self.begin.elapsed(), &time);
        let several = self.consoles.iter().filter(|console| !console.is_gone()).count() > 1;
        let lead = self.lead.filter(|_| several);
        let leader =
            lead.and_then(|lead| self.consoles.get(lead)).map(|console| console.device.display().to_string());
        for (number, console) in self.consoles.iter_mut().enumerate() {
            let Some((screen, _)) = &mut console.terminal else { continue };
            if due == PictureDue::Whole {
                screen.forget();
            }
            if due == PictureDue::None && !screen.is_outdated() {
                continue;
            }
            let theme = screen.theme();
            let leader = leader.as_deref().filter(|_| lead != Some(number));
            let context = PictureContext { time: &time, leader };
            if screen.draw(|frame| self.page.draw(&context, frame, theme)).is_err() {
                console.terminal = None;
            }
        }
    }

    /// Waits for keys, an event or the next tick; returns the keys by the numbers of their consoles.
    fn wait(&mut self, events: &EventQueue<P::Event>) -> io::Result<Vec<(usize, Vec<Key>)>> {
        let mut timeout = P::TICK_INTERVAL;
        let (mut numbers, mut keyboards) = (Vec::new(), Vec::new());
        for (number, console) in self.consoles.iter_mut().enumerate() {
            if let Some((screen, keyboard)) = &mut console.terminal {
                if screen.is_behind() {
                    timeout = SLOW_TERMINAL_TIMEOUT;
                }
                numbers.push(number);
                keyboards.push(keyboard);
            }
        }
        let read = events.wait(&mut keyboards, timeout)?;
        let mut pressed = Vec::new();
        for (number, keys) in numbers.into_iter().zip(read) {
            match keys {
                Ok(keys) if keys.is_empty() => {}
                Ok(keys) => pressed.push((number, keys)),
                Err(_) => self.consoles[number].terminal = None,
            }
        }
        self.lead = self.lead.filter(|lead| !self.consoles[*lead].is_gone());
        Ok(pressed)
    }

    /// The keys that are for the page: those of the console that leads.
    fn leading(&mut self, number: usize, keys: Vec<Key>) -> Vec<Key> {
        let leads = *self.lead.get_or_insert(number) == number;
        let mut keys = keys.into_iter();
        if !leads {
            if !keys.any(|key| key == Key::Enter) {
                return Vec::new();
            }
            (self.lead, self.changed) = (Some(number), true);
        }
        let keys: Vec<_> = keys.collect();
        // F5 reads the facts again: whoever presses it does not trust what is on the screen.
        if keys.iter().any(|key| matches!(key, Key::Control('l') | Key::Function(5))) {
            let terminals = self.consoles.iter_mut().filter_map(|console| console.terminal.as_mut());
            terminals.for_each(|(screen, _)| screen.forget());
        }
        keys
    }

    fn lend(&mut self) {
        let console = self.lead.and_then(|lead| self.consoles.get_mut(lead));
        let lent = console.and_then(|console| {
            let (mut screen, keyboard) = console.terminal.take()?;
            screen.leave();
            console.lent = true;
            Some(LentConsole { terminal: keyboard.into_terminal(), term: term_of_device(&console.device) })
        });
        self.page.lend(lent);
    }

    /// Opens the console again that was lent: the end of a session there hangs the terminal up, for this program too.
    fn take_back(&mut self) {
        for console in self.consoles.iter_mut().filter(|console| console.lent) {
            console.lent = false;
            console.terminal = Console::open(&console.device).and_then(Console::take).ok();
        }
    }
}

/// Decides when to draw. An unchanged picture is not drawn: at every tick that would cost more than all other work of a page.
#[derive(Debug, Default)]
pub(crate) struct PictureClock {
    time: String,
    /// When the whole picture was sent last.
    whole: Duration,
}

/// What has happened to the picture since it was drawn last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PictureChange {
    /// The page has another one now.
    pub(crate) page: bool,
    /// Something else was written over it.
    pub(crate) written_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PictureDue {
    None,
    Changes,
    Whole,
}

impl PictureClock {
    pub(crate) fn due(&mut self, change: PictureChange, now: Duration, time: &str) -> PictureDue {
        let new_time = self.time != time;
        time.clone_into(&mut self.time);
        if change.written_over || now - self.whole >= REDRAW_INTERVAL {
            self.whole = now;
            PictureDue::Whole
        } else if change.page || new_time {
            PictureDue::Changes
        } else {
            PictureDue::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_was_written_over_is_sent_as_a_whole() {
        let mut clock = PictureClock::default();
        let (same, second) = (PictureChange::default(), Duration::from_secs(1));
        assert_eq!(clock.due(PictureChange { page: true, ..same }, second, "10:00"), PictureDue::Changes);
        assert_eq!(clock.due(same, second * 2, "10:00"), PictureDue::None);
        let over = PictureChange { written_over: true, ..same };
        assert_eq!(clock.due(over, second * 3, "10:00"), PictureDue::Whole);
        assert_eq!(clock.due(same, second * 4, "10:00"), PictureDue::None);
        assert_eq!(clock.due(same, second * 4, "10:01"), PictureDue::Changes);
        // From the last whole picture on.
        assert_eq!(clock.due(same, second * 2 + REDRAW_INTERVAL, "10:01"), PictureDue::None);
        assert_eq!(clock.due(same, second * 3 + REDRAW_INTERVAL, "10:01"), PictureDue::Whole);
    }
}
