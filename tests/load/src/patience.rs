//! Requests that are sent again while servers are away, as loaders and installers do.

use std::time::{Duration, Instant};

use base::digest::{Digest, Hasher};
use hyper::StatusCode;
use hyper::header::{IF_RANGE, RANGE};
use tokio::time::sleep;

use crate::http_client::{AnswerHead, ClientRequest, HttpClient, ReceivedFile};
use crate::measurements::{Measurements, RequestKind};

/// How long requests are sent again.
#[derive(Clone, Copy, Debug)]
pub struct RetryLimits {
    /// From the first attempt; after it the machine has failed.
    pub patience: Duration,
    /// Between two attempts, in place of the seconds that a server names.
    pub pause: Duration,
}

/// A client that does not give up at once, and measures.
pub(crate) struct PatientClient<'a> {
    client: HttpClient,
    limits: RetryLimits,
    measured: &'a Measurements,
}

/// Why a machine cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MachineFailure {
    #[error("{} of {path}: {why}", .kind.name())]
    NoAnswer { kind: RequestKind, path: String, why: String },
    #[error("{} of {path}: the server answered {status}", .kind.name())]
    Status { kind: RequestKind, path: String, status: u16 },
    /// The server has given what it must not give.
    #[error("{0}")]
    Wrong(String),
}

/// A file that machines fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedFile<'a> {
    pub(crate) kind: RequestKind,
    pub(crate) path: &'a str,
    /// In bytes, if the machine knows it.
    pub(crate) size: Option<u64>,
    /// If it is to be checked.
    pub(crate) digest: Option<Digest>,
}

impl<'a> PatientClient<'a> {
    pub(crate) fn new(client: HttpClient, limits: RetryLimits, measured: &'a Measurements) -> Self {
        Self { client, limits, measured }
    }

    /// Waits before the next attempt, or fails.
    async fn pause(
        &self,
        (kind, path): (RequestKind, &str),
        since: Instant,
        why: &str,
    ) -> Result<(), MachineFailure> {
        self.measured.failed(kind, why);
        if since.elapsed() + self.limits.pause > self.limits.patience {
            return Err(MachineFailure::NoAnswer { kind, path: shown(path).to_owned(), why: why.to_owned() });
        }
        sleep(self.limits.pause).await;
        Ok(())
    }

    /// Sends a request until a server answers it with something else than "try again".
    pub(crate) async fn ask(
        &mut self,
        kind: RequestKind,
        request: &ClientRequest,
    ) -> Result<(StatusCode, Vec<u8>), MachineFailure> {
        let since = Instant::now();
        loop {
            let begun = Instant::now();
            let why = match self.client.ask(request).await {
                Ok((head, _)) if is_temporary(&head) => head.status.as_str().to_owned(),
                Ok((head, body)) => {
                    self.measured.answered(kind, begun.elapsed(), body.len() as u64);
                    return Ok((head.status, body));
                }
                Err(error) => error.to_string(),
            };
            self.pause((kind, &request.path), since, &why).await?;
        }
    }

    /// [`PatientClient::ask`] for a text that has to be there.
    pub(crate) async fn text(&mut self, kind: RequestKind, path: &str) -> Result<String, MachineFailure> {
        let (status, body) = self.ask(kind, &ClientRequest::get(path)).await?;
        match status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&body).into_owned()),
            status => Err(refused(kind, path, status)),
        }
    }

    /// Fetches a whole file as the installer does: after a broken connection the rest is asked for, if it is still the same file.
    pub(crate) async fn file(&mut self, wanted: WantedFile<'_>) -> Result<(), MachineFailure> {
        let WantedFile { kind, path, digest, .. } = wanted;
        let since = Instant::now();
        let mut file = ReceivedFile { hasher: digest.map(|_| Hasher::default()), ..ReceivedFile::default() };
        loop {
            let mut request = ClientRequest::get(path);
            if let Some(tag) = file.tag.as_deref().filter(|_| file.bytes > 0) {
                request = request.with(RANGE, &format!("bytes={}-", file.bytes)).with(IF_RANGE, tag);
            }
            let (begun, before) = (Instant::now(), file.bytes);
            let why = match self.client.fetch(&request, &mut file).await {
                Ok(head) if is_temporary(&head) => {
                    file =
                        ReceivedFile { hasher: digest.map(|_| Hasher::default()), ..ReceivedFile::default() };
                    head.status.as_str().to_owned()
                }
                Ok(AnswerHead { status: StatusCode::OK | StatusCode::PARTIAL_CONTENT, .. }) => {
                    self.measured.answered(kind, begun.elapsed(), file.bytes.saturating_sub(before));
                    return checked(wanted, file);
                }
                Ok(head) => return Err(refused(kind, path, head.status)),
                Err(error) => error.to_string(),
            };
            self.pause((kind, path), since, &why).await?;
        }
    }

    /// Asks for a part of a file of `size` bytes; the part is `start..end`.
    pub(crate) async fn part(
        &mut self,
        (kind, path, size): (RequestKind, &str, u64),
        start: u64,
        end: u64,
    ) -> Result<(), MachineFailure> {
        let request = ClientRequest::get(path).with(RANGE, &format!("bytes={start}-{}", end - 1));
        let since = Instant::now();
        loop {
            let (begun, mut received) = (Instant::now(), ReceivedFile::default());
            let why = match self.client.fetch(&request, &mut received).await {
                Ok(head) if is_temporary(&head) => head.status.as_str().to_owned(),
                Ok(head) if head.status == StatusCode::PARTIAL_CONTENT => {
                    self.measured.answered(kind, begun.elapsed(), received.bytes);
                    return match (head.total, received.bytes) {
                        (Some(total), bytes) if total == size && bytes == end - start => Ok(()),
                        found => Err(MachineFailure::Wrong(format!(
                            "bytes {start} to {end} of {path}, {size} bytes: the server sent {found:?}"
                        ))),
                    };
                }
                Ok(head) => return Err(refused(kind, path, head.status)),
                Err(error) => error.to_string(),
            };
            self.pause((kind, path), since, &why).await?;
        }
    }
}

/// Compares a file that is complete with what the machine knows of it.
fn checked(wanted: WantedFile<'_>, file: ReceivedFile) -> Result<(), MachineFailure> {
    let WantedFile { path, size, digest, .. } = wanted;
    if let Some(size) = size.filter(|size| *size != file.bytes) {
        let what = format!("{path} has {} bytes and not {size}", file.bytes);
        return Err(MachineFailure::Wrong(what));
    }
    match file.hasher.map(Hasher::finish) == digest {
        true => Ok(()),
        false => Err(MachineFailure::Wrong(format!("{path} has another digest"))),
    }
}

pub(crate) fn refused(kind: RequestKind, path: &str, status: StatusCode) -> MachineFailure {
    MachineFailure::Status { kind, path: shown(path).to_owned(), status: status.as_u16() }
}

fn is_temporary(head: &AnswerHead) -> bool {
    matches!(
        head.status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
    ) || head.retry_after.is_some()
}

/// A path without the token at its end, which is a secret.
fn shown(path: &str) -> &str {
    for secret in ["/v1/config/", "/v1/report/"] {
        if path.starts_with(secret) {
            return secret;
        }
    }
    path
}
