//! One webhook with its placeholders filled in, and its delivery.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::redirect::Policy;

use base::failure::causes;
use model::config::formats::webhook::{Escape, Values, is_json, render};
use model::config::webhook::{Event, HttpMethod, Webhook};
use transfer::download::{client, reason};

/// How long and how often a delivery is tried.
#[derive(Clone, Copy, Debug)]
pub struct WebhookRetry {
    /// For one answer.
    pub timeout: Duration,
    /// So often.
    pub tries: u32,
    /// Between two tries.
    pub pause: Duration,
    /// How long the end of an install waits for calls that are still on their way.
    pub flush: Duration,
    /// How long it then waits for its own calls.
    pub last: Duration,
}

impl Default for WebhookRetry {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { timeout: seconds(15), tries: 4, pause: seconds(5), flush: seconds(30), last: seconds(80) }
    }
}

/// What is sent. Has no `Debug`: most of it may be secret.
#[allow(missing_debug_implementations)]
pub(super) struct Call {
    hook: Webhook,
    url: String,
    body: String,
    json: bool,
}

impl Call {
    pub(super) fn new(hook: &Webhook, values: &Values) -> Self {
        let types = hook.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind: String = types.flat_map(|(_, values)| values).map(|v| v.expose().to_lowercase()).collect();
        let json =
            kind.contains("json") || kind.is_empty() && !hook.payload.is_empty() && is_json(&hook.payload);
        let escape = match kind.contains("form-urlencoded") {
            true => Escape::Percent,
            false if json || is_json(&hook.payload) => Escape::Json,
            false => Escape::Plain,
        };
        Self {
            url: render(&hook.url, values, Escape::Percent),
            body: render(&hook.payload, values, escape),
            json: json && kind.is_empty(),
            hook: hook.clone(),
        }
    }

    /// The event and the server. Paths of webhooks are often secrets, so that none is shown.
    pub(super) fn shown(&self) -> String {
        let origin = reqwest::Url::parse(&self.url).map(|url| url.origin().ascii_serialization());
        format!("webhook {} to {}", name(self.hook.event), origin.unwrap_or_default())
    }

    /// Sends until there is an answer that ends the matter, the tries are over, or `stop` is set.
    pub(super) fn deliver(
        &self,
        authorities: &[String],
        retry: &WebhookRetry,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let builder = || {
            // A redirect would carry header fields and the body to a server that the document does not name.
            let builder = Client::builder().timeout(retry.timeout).redirect(Policy::none());
            let builder = builder.user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")));
            builder.tls_danger_accept_invalid_certs(self.hook.insecure)
        };
        let client = client(&self.url, authorities, builder).map_err(|error| last_cause(&error))?;
        let mut trouble = String::new();
        for attempt in 1..=retry.tries {
            if attempt > 1 && !pause(retry.pause, stop) {
                return Err(format!("{trouble}; no more time after {} attempts", attempt - 1));
            }
            trouble = match self.send(&client) {
                Ok(answer) if answer.status().is_success() || answer.status().is_redirection() => {
                    return Ok(());
                }
                Ok(answer) if !answer.status().is_server_error() => {
                    return Err(format!("the server answered {}", answer.status()));
                }
                Ok(answer) => format!("the server answered {}", answer.status()),
                Err(error) if error.is_builder() => return Err("a header field cannot be sent".into()),
                Err(error) if error.is_timeout() => "the server did not answer in time".into(),
                Err(error) => reason(&error),
            };
        }
        Err(format!("{trouble}; gave up after {} attempts", retry.tries))
    }

    fn send(&self, client: &Client) -> reqwest::Result<Response> {
        let mut request = client.request(method(self.hook.method), &self.url);
        if self.json {
            request = request.header("Content-Type", "application/json");
        }
        for (name, values) in &self.hook.headers {
            for value in values {
                request = request.header(name, value.expose());
            }
        }
        if let Some(auth) = &self.hook.basic_auth {
            request = request.basic_auth(&*auth.user, Some(auth.password.expose()));
        }
        if !self.body.is_empty() {
            request = request.body(self.body.clone());
        }
        request.send()
    }
}

/// Why, without the URL that the errors around it name.
fn last_cause(error: &anyhow::Error) -> String {
    causes(error).pop().unwrap_or_default()
}

/// Waits in small pieces; false once `stop` is set.
fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = std::time::Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    false
}

/// The name of an event as documents write it.
pub(super) fn name(event: Event) -> &'static str {
    match event {
        Event::Started => "STARTED",
        Event::Step => "STEP",
        Event::Succeeded => "SUCCEEDED",
        Event::Failed => "FAILED",
    }
}

fn method(method: HttpMethod) -> reqwest::Method {
    use reqwest::Method;
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Connect => Method::CONNECT,
        HttpMethod::Options => Method::OPTIONS,
        HttpMethod::Trace => Method::TRACE,
    }
}
