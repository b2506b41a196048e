//! One console: its screen, the thread that waits for its keys, and a shell that borrows it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Result;

use super::loop_event::LoopEvent;
use crate::questions::{InstallMachine, ShownTrouble};
use crate::toolkit::capabilities::term_of_device;
use crate::toolkit::{Console, Keyboard, Screen};
use model::config::Secret;

/// How soon a thread that waits for keys notices the end, or that a shell wants the console.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// A console as the loop has it.
pub(super) struct LoopConsole {
    name: String,
    /// `None` while a shell has the console, and after it is gone.
    screen: Option<Screen>,
    gone: bool,
    shell: Sender<Secret>,
}

/// The thread that waits for its keys.
pub(super) struct Listener {
    number: usize,
    device: PathBuf,
    keyboard: Keyboard,
    shell: Receiver<Secret>,
}

impl LoopConsole {
    /// Takes a console; its news carries the number.
    pub(super) fn take(console: Console, number: usize) -> Result<(Self, Listener)> {
        let device = console.name().to_owned();
        let (screen, keyboard) = console.take()?;
        let (sender, shell) = channel();
        let seat =
            Self { name: device.display().to_string(), screen: Some(screen), gone: false, shell: sender };
        Ok((seat, Listener { number, device, keyboard, shell }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn screen(&mut self) -> Option<&mut Screen> {
        self.screen.as_mut()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn lose(&mut self) {
        (self.screen, self.gone) = (None, true);
    }

    /// Lends the console to a shell, if it exists; returns whether it did. It comes back with [`LoopEvent::Back`].
    pub(super) fn lend(&mut self, password: Secret) -> bool {
        let Some(mut screen) = self.screen.take() else { return false };
        screen.leave();
        // Without a listener the console is gone, and that has been reported.
        self.shell.send(password).is_ok()
    }

    pub(super) fn come_back(&mut self, screen: Screen) {
        self.screen = Some(screen);
    }
}

impl Listener {
    /// Sends the keys until the end.
    pub(super) fn listen(
        mut self,
        sender: &Sender<LoopEvent>,
        over: &AtomicBool,
        machine: &dyn InstallMachine,
    ) {
        while !over.load(Ordering::Relaxed) {
            let heard = match self.shell.try_recv() {
                Ok(password) => self.shell(machine, &password),
                Err(_) => match self.keyboard.wait(KEY_TIMEOUT) {
                    Ok(keys) if keys.is_empty() => continue,
                    Ok(keys) => LoopEvent::Keys(self.number, keys),
                    Err(_) => LoopEvent::Gone(self.number),
                },
            };
            let gone = matches!(heard, LoopEvent::Gone(_) | LoopEvent::Back(_, None, _));
            if sender.send(heard).is_err() || gone {
                return;
            }
        }
    }

    /// Lends the console to a shell, and takes it again.
    fn shell(&mut self, machine: &dyn InstallMachine, password: &Secret) -> LoopEvent {
        let lent = self.keyboard.lend().map_err(anyhow::Error::from);
        let came = lent.and_then(|terminal| machine.shell(terminal, term_of_device(&self.device), password));
        let came = came.map_err(|error| ShownTrouble::of(&error, None));
        // The end of a session hangs its terminal up, for this program too.
        let screen = match Console::open(&self.device).and_then(Console::take) {
            Ok((screen, keyboard)) => {
                self.keyboard = keyboard;
                Some(Box::new(screen))
            }
            Err(_) => None,
        };
        LoopEvent::Back(self.number, screen, came)
    }
}
