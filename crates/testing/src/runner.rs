//! The double for [`Runner`]: scripted replies, and a record of the commands.

use std::fmt;
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use base::command::{Invocation, Runner};

type Reply = Arc<dyn Fn(&Invocation) -> Result<Vec<u8>> + Send + Sync>;

struct Script {
    /// Part of the command line. The empty text fits every command.
    text: String,
    reply: Reply,
    /// How often it still replies.
    left: usize,
}

/// Replies to commands by their command lines ([`Invocation::display`]). Of several scripts that fit, the last one replies.
/// A command that no script fits panics with its command line.
///
/// ```ignore
/// let runner = ScriptedRunner::new()
///     .answer("systemctl show", "ActiveState=active\n")
///     .fail("systemctl restart", "timed out").times(1);
/// ```
#[derive(Default)]
pub struct ScriptedRunner {
    scripts: Mutex<Vec<Script>>,
    invocations: Mutex<Vec<Invocation>>,
}

impl ScriptedRunner {
    /// Every command is unexpected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every command succeeds and prints nothing.
    pub fn silent() -> Self {
        Self::new().answer("", "")
    }

    /// Every command fails with `error`.
    pub fn failing(error: &str) -> Self {
        Self::new().fail("", error)
    }

    /// Commands with `text` in their command line print `output`.
    #[must_use]
    pub fn answer(self, text: &str, output: impl Into<Vec<u8>>) -> Self {
        self.set_answer(text, output);
        self
    }

    /// Commands with `text` in their command line fail with `error`.
    #[must_use]
    pub fn fail(self, text: &str, error: &str) -> Self {
        self.set_failure(text, error);
        self
    }

    /// `reply` is called for commands with `text` in their command line.
    #[must_use]
    pub fn reply(
        self,
        text: &str,
        reply: impl Fn(&Invocation) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.add(text, Arc::new(reply));
        self
    }

    /// The script added last replies `count` times; after that those before it do.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        if let Some(script) = self.scripts.lock().unwrap().last_mut() {
            script.left = count;
        }
        self
    }

    /// [`Self::answer`] in the middle of a test.
    pub fn set_answer(&self, text: &str, output: impl Into<Vec<u8>>) {
        let output = output.into();
        self.add(text, Arc::new(move |_| Ok(output.clone())));
    }

    /// [`Self::fail`] in the middle of a test.
    pub fn set_failure(&self, text: &str, error: &str) {
        let error = error.to_owned();
        self.add(text, Arc::new(move |_| Err(anyhow!("{error}"))));
    }

    fn add(&self, text: &str, reply: Reply) {
        self.scripts.lock().unwrap().push(Script { text: text.to_owned(), reply, left: usize::MAX });
    }

    fn reply_for(&self, line: &str) -> Option<Reply> {
        let mut scripts = self.scripts.lock().unwrap();
        let script =
            scripts.iter_mut().rev().find(|script| script.left > 0 && line.contains(&script.text))?;
        script.left -= 1;
        Some(script.reply.clone())
    }

    /// The command lines so far, failed ones too.
    pub fn commands(&self) -> Vec<String> {
        self.invocations().iter().map(Invocation::display).collect()
    }

    /// The command lines since the last call.
    pub fn take_commands(&self) -> Vec<String> {
        std::mem::take(&mut *self.invocations.lock().unwrap()).iter().map(Invocation::display).collect()
    }

    /// Like [`Self::commands`], with standard input, environment and limits.
    pub fn invocations(&self) -> Vec<Invocation> {
        self.invocations.lock().unwrap().clone()
    }
}

impl fmt::Debug for ScriptedRunner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.commands()).finish()
    }
}

impl Runner for ScriptedRunner {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let line = invocation.display();
        self.invocations.lock().unwrap().push(invocation.clone());
        let reply = self.reply_for(&line).unwrap_or_else(|| panic!("unexpected command: {line}"));
        reply(invocation)
    }
}
