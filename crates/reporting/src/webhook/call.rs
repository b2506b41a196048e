//! One webhook with its placeholders filled in.

use std::sync::Mutex;
use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder};

use base::parallel::locked;
use model::config::formats::webhook::{Escape, WebhookValues, is_json, render};
use model::config::webhook::{Event, HttpMethod, Webhook};
use transfer::download::is_temporary;
use transfer::outbox::{SendError, request};

/// A call that may be made several times. Has no `Debug`: most of it may be secret.
#[allow(missing_debug_implementations)]
pub(super) struct WebhookCall {
    hook: Webhook,
    url: String,
    body: String,
    /// Whether the body is JSON and no header field says so.
    json: bool,
    client: Result<Client, String>,
    trouble: Mutex<Option<SendError>>,
}

impl WebhookCall {
    pub(super) fn new(
        hook: &Webhook,
        values: &WebhookValues,
        timeout: Duration,
        authorities: &[String],
    ) -> Self {
        let types = hook.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind: String = types.flat_map(|(_, values)| values).map(|v| v.expose().to_lowercase()).collect();
        let json =
            kind.contains("json") || kind.is_empty() && !hook.payload.is_empty() && is_json(&hook.payload);
        let escape = match kind.contains("form-urlencoded") {
            true => Escape::Percent,
            false if json || is_json(&hook.payload) => Escape::Json,
            false => Escape::Plain,
        };
        let url = render(&hook.url, values, Escape::Percent);
        let builder = || Client::builder().timeout(timeout).tls_danger_accept_invalid_certs(hook.insecure);
        Self {
            client: request::client(&url, authorities, builder),
            url,
            body: render(&hook.payload, values, escape),
            json: json && kind.is_empty(),
            hook: hook.clone(),
            trouble: Mutex::default(),
        }
    }

    /// The event and the server. Paths of webhooks are often secrets, so that none is shown.
    pub(super) fn shown(&self) -> String {
        format!("webhook {} to {}", name(self.hook.event), request::origin(&self.url))
    }

    /// Why the last attempt failed; `None` before one did.
    pub(super) fn trouble(&self) -> Option<SendError> {
        locked(&self.trouble).clone()
    }

    /// Makes one attempt. A redirect counts as arrived: following it would carry header fields and the body to a server that
    /// the document does not name.
    pub(super) fn send(&self) -> Result<(), SendError> {
        let client = self.client.as_ref().map_err(|why| SendError::Refused(why.clone()))?;
        let result = request::send(self.request(client)).and_then(|answer| match answer.status() {
            status if status.is_success() || status.is_redirection() => Ok(()),
            status if is_temporary(status) => Err(request::busy(&answer)),
            status => Err(SendError::Refused(format!("the server answered {status}"))),
        });
        if let Err(error) = &result {
            *locked(&self.trouble) = Some(error.clone());
        }
        result
    }

    fn request(&self, client: &Client) -> RequestBuilder {
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
        match self.body.is_empty() {
            true => request,
            false => request.body(self.body.clone()),
        }
    }
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
