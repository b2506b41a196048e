//! A browser that a test drives as a person does: with keys, at any width, and with what the page shows read back. It speaks the
//! DevTools protocol (<https://chromedevtools.github.io/devtools-protocol/>) over the pipes of Chromium's
//! `--remote-debugging-pipe`: messages of JSON that end with a zero byte, which Chromium reads from its file 3 and writes to
//! its file 4.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// For anything that a page has to do; a slow machine runs a browser slowly.
const LIMIT: Duration = Duration::from_secs(120);

/// A page of a browser, which ends when it is dropped.
pub(crate) struct Tab {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    session: Option<String>,
    last: u64,
    /// Events that came while the answer to a command was waited for.
    events: Vec<Value>,
    _home: tempfile::TempDir,
}

impl Tab {
    pub(crate) fn open(chromium: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let [commands, answers] = ["commands", "answers"].map(|name| home.path().join(name));
        let made = Command::new("mkfifo").args([&commands, &answers]).status().unwrap();
        assert!(made.success());
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" "$@" 3<"$COMMANDS" 4>"$ANSWERS""#])
            .arg(chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .env("COMMANDS", &commands)
            .env("ANSWERS", &answers)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        // Each waits until the shell opens the other end, in the same order.
        let commands = File::options().write(true).open(commands).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        let mut tab =
            Self { child, commands, answers, session: None, last: 0, events: Vec::new(), _home: home };
        let target = tab.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().unwrap();
        let session = tab.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        tab.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        tab.call("Page.enable", json!({}));
        tab.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        tab
    }

    /// Sends a command; returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.ask(method, parameters).unwrap_or_else(|answer| panic!("{method}: {answer}"))
    }

    /// Sends a command; returns its result, or the answer that tells its error.
    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.last {
                let result = message.get("result").cloned();
                return result.ok_or(message);
            }
            self.events.push(message);
        }
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    fn await_event(&mut self, is_it: impl Fn(&Value) -> bool) {
        if let Some(place) = self.events.iter().position(&is_it) {
            self.events.drain(..=place);
            return;
        }
        while !is_it(&self.message()) {}
    }

    /// Sets the size of the window in pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", feature);
    }

    /// Opens a page, and waits until it and what belongs to it are loaded.
    pub(crate) fn visit(&mut self, url: &str) {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        // The event of an earlier page can still come.
        let loader = answer["loaderId"].clone();
        self.await_event(|event| {
            let told = &event["params"];
            event["method"] == "Page.lifecycleEvent" && told["name"] == "load" && told["loaderId"] == loader
        });
    }

    /// The value of an expression of JavaScript in the page, or that of its promise.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|answer| panic!("{expression}: {answer}"))
    }

    /// The value of an expression, or the answer that tells its exception, or that the page was left meanwhile.
    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", parameters)?;
        if answer.get("exceptionDetails").is_some() {
            return Err(answer);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until a page is loaded in which an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        // In a page that is being left or loaded, elements are missing, and expressions about them have exceptions.
        let loaded = format!("Boolean(document.readyState === 'complete' && ({expression}))");
        loop {
            let answer = self.evaluate(&loaded);
            if answer == Ok(true.into()) {
                return;
            }
            if begun.elapsed() > LIMIT {
                panic!("{expression}: {answer:?}: {}", self.value("document.documentElement.innerHTML"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key: `Tab`, `Enter`, `Space`, or a letter or digit.
    pub(crate) fn press(&mut self, key: &str) {
        let (name, code, text, number) = match key {
            "Tab" => ("Tab", "Tab", "", 9),
            "Enter" => ("Enter", "Enter", "\r", 13),
            "Space" => (" ", "Space", " ", 32),
            "Down" => ("ArrowDown", "ArrowDown", "", 40),
            letter => (letter, "", letter, u32::from(letter.to_uppercase().as_bytes()[0])),
        };
        let event = |kind: &str, text: &str| json!({ "type": kind, "key": name, "code": code, "text": text, "windowsVirtualKeyCode": number });
        self.call("Input.dispatchKeyEvent", event("keyDown", text));
        self.call("Input.dispatchKeyEvent", event("keyUp", ""));
    }

    /// Presses Tab until the focused element is `selector`.
    pub(crate) fn tab_to(&mut self, selector: &str) {
        for _ in 0..2000 {
            self.press("Tab");
            // A key before can have led to another page, which is being loaded.
            let is_there = self.evaluate(&format!("document.activeElement.matches({})", json!(selector)));
            if is_there == Ok(true.into()) {
                return;
            }
        }
        panic!("no Tab leads to {selector}");
    }

    /// Stores a picture of the whole page, or of the window only.
    pub(crate) fn picture(&mut self, file: &Path, whole: bool) {
        let answer =
            self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": whole }));
        std::fs::write(file, STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()).unwrap();
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The processes of the browser end with the first one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
