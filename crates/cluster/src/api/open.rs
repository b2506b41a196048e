//! Pages that need no credentials. The certificate of the server does not matter for them: nothing secret is sent.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};

use super::http::{self, Trust};

const TIMEOUT: Duration = Duration::from_secs(5);
/// In bytes. etcd's metrics have some hundred kilobytes.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// The client is made once: the console of a node asks as long as the machine runs. An error is a clause.
fn get(url: &str) -> Result<Response, String> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let client = match CLIENT.get() {
        Some(client) => client,
        None => {
            let client = http::client(Trust::All, TIMEOUT, None);
            let client = client.map_err(|why| format!("cannot be asked: {why}"))?;
            CLIENT.get_or_init(|| client)
        }
    };
    http::send(client.get(url)).map_err(|error| error.to_string())
}

/// Asks the service at `url` for the `page` that says whether it works.
///
/// # Errors
/// A sentence that begins with the URL.
pub(crate) fn ping(url: &str, page: &str) -> Result<(), String> {
    match get(&format!("{url}{page}")).map_err(|why| format!("{url} {why}"))?.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{url} answers {status}, like another service or one that is still starting")),
    }
}

/// Whether there is a web page at `url`, or a redirect to one: an ingress without one answers 404.
#[must_use]
pub fn serves(url: &str) -> bool {
    get(url).is_ok_and(|answer| answer.status().is_success() || answer.status().is_redirection())
}

/// The text at `url`, with whatever status.
pub(crate) fn text(url: &str) -> Result<String, String> {
    let answer = get(url).map_err(|why| format!("{url} {why}"))?;
    let bytes = http::body(answer, ANSWER_BYTES_MAX).map_err(|error| format!("{url} {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
