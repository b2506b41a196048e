//! One client of the servers, with one connection at a time, which it keeps for its next request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::digest::Hasher;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HOST, HeaderName, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::servers::Servers;

/// How long a connection may take to be opened.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take until its next bytes.
const ANSWER: Duration = Duration::from_secs(30);
/// The longest answer that is kept in memory, in bytes.
const LONGEST: usize = 256 << 20;

/// Why there is no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the connection was refused")]
    Refused,
    #[error("the connection timed out")]
    ConnectTimeout,
    #[error("the connection failed")]
    Connect,
    #[error("the TLS handshake failed")]
    Tls,
    #[error("the connection ended before the answer")]
    NoAnswer,
    #[error("the server was silent for 30 s")]
    Silent,
    #[error("the answer is not whole")]
    Incomplete,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) fields: Vec<(HeaderName, String)>,
    pub(crate) body: Bytes,
}

impl ClientRequest {
    pub(crate) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), fields: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn post(path: &str, body: Vec<u8>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }
}

/// What is known of an answer without its body.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) tag: Option<String>,
    /// Seconds after which the server wants to be asked again.
    pub(crate) retry_after: Option<u64>,
    /// The length of the whole file, of an answer with a part of it.
    pub(crate) total: Option<u64>,
}

impl AnswerHead {
    fn of(response: &Response<Incoming>) -> Self {
        let field = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let total = field(CONTENT_RANGE).and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        Self {
            status: response.status(),
            tag: field(ETAG).map(str::to_owned),
            retry_after: field(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()),
            total,
        }
    }
}

/// A file as far as it was received, perhaps by several requests.
#[derive(Default)]
#[allow(missing_debug_implementations)]
pub(crate) struct ReceivedFile {
    pub(crate) bytes: u64,
    /// The strong entity tag of its version.
    pub(crate) tag: Option<String>,
    /// Of these bytes, if the digest is wanted.
    pub(crate) hasher: Option<Hasher>,
}

pub(crate) struct HttpClient {
    servers: Arc<Servers>,
    from: Option<Ipv4Addr>,
    connection: Option<ClientConnection>,
}

struct ClientConnection {
    sender: SendRequest<Full<Bytes>>,
    server: SocketAddr,
}

impl HttpClient {
    /// A client at the address `from`, or at any.
    pub(crate) fn new(servers: Arc<Servers>, from: Option<Ipv4Addr>) -> Self {
        Self { servers, from, connection: None }
    }

    /// Sends a request and receives the whole answer.
    pub(crate) async fn ask(
        &mut self,
        request: &ClientRequest,
    ) -> Result<(AnswerHead, Vec<u8>), RequestError> {
        let response = self.send(request).await?;
        let head = AnswerHead::of(&response);
        let mut body = Vec::new();
        self.receive(response, |bytes| {
            body.extend_from_slice(bytes);
            body.len() <= LONGEST
        })
        .await?;
        Ok((head, body))
    }

    /// Sends a request for a file, or for the rest of it, and receives the body without keeping it. `file` has what was
    /// received, also where the answer is not whole; an answer with the whole file begins it anew.
    pub(crate) async fn fetch(
        &mut self,
        request: &ClientRequest,
        file: &mut ReceivedFile,
    ) -> Result<AnswerHead, RequestError> {
        let response = self.send(request).await?;
        let head = AnswerHead::of(&response);
        if head.status != StatusCode::PARTIAL_CONTENT {
            let hasher = file.hasher.is_some().then(Hasher::default);
            *file = ReceivedFile { hasher, ..ReceivedFile::default() };
        }
        file.tag = head.tag.clone().filter(|tag| !tag.starts_with("W/"));
        self.receive(response, |bytes| {
            file.bytes += bytes.len() as u64;
            if let Some(hasher) = &mut file.hasher {
                hasher.update(bytes);
            }
            true
        })
        .await?;
        Ok(head)
    }

    /// Sends a request, on the connection of the one before where it is still open.
    async fn send(&mut self, request: &ClientRequest) -> Result<Response<Incoming>, RequestError> {
        if let Some(mut kept) = self.connection.take()
            && kept.sender.ready().await.is_ok()
        {
            match exchange(&mut kept, request).await {
                Ok(response) => {
                    self.connection = Some(kept);
                    return Ok(response);
                }
                // The server may have closed it before the request came.
                Err(RequestError::NoAnswer) => {}
                Err(error) => return Err(error),
            }
        }
        let mut opened = self.open().await?;
        let response = exchange(&mut opened, request).await?;
        self.connection = Some(opened);
        Ok(response)
    }

    async fn open(&self) -> Result<ClientConnection, RequestError> {
        let server = self.servers.next().ok_or(RequestError::Connect)?;
        let opening = async {
            let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(from) = self.from {
                socket.bind((from, 0).into())?;
            }
            let stream = socket.connect(server).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = match timeout(CONNECT, opening).await {
            Ok(opened) => opened.map_err(|error: io::Error| match error.kind() {
                io::ErrorKind::ConnectionRefused => RequestError::Refused,
                _ => RequestError::Connect,
            })?,
            Err(_) => return Err(RequestError::ConnectTimeout),
        };
        match self.servers.tls() {
            None => begin(stream, server).await,
            Some(connector) => {
                let name = ServerName::from(server.ip());
                let secured = timeout(CONNECT, connector.connect(name, stream)).await;
                begin(secured.ok().and_then(Result::ok).ok_or(RequestError::Tls)?, server).await
            }
        }
    }

    /// Gives the pieces of a body to `take` until it returns false. A connection whose answer is not whole is not used again.
    async fn receive(
        &mut self,
        response: Response<Incoming>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), RequestError> {
        let mut body = response.into_body();
        loop {
            let received = match timeout(ANSWER, body.frame()).await {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(frame))) => frame.data_ref().is_none_or(|bytes| take(bytes)),
                Ok(Some(Err(_))) => false,
                Err(_) => {
                    self.connection = None;
                    return Err(RequestError::Silent);
                }
            };
            if !received {
                self.connection = None;
                return Err(RequestError::Incomplete);
            }
        }
    }
}

/// Begins HTTP on a stream to `server`.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: SocketAddr,
) -> Result<ClientConnection, RequestError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| RequestError::Connect)?;
    // Its errors are those of the requests.
    tokio::spawn(connection);
    Ok(ClientConnection { sender, server })
}

async fn exchange(
    connection: &mut ClientConnection,
    request: &ClientRequest,
) -> Result<Response<Incoming>, RequestError> {
    let mut built = Request::builder().method(&request.method).uri(&request.path);
    built = built.header(HOST, connection.server.to_string());
    for (name, value) in &request.fields {
        built = built.header(name, value);
    }
    if request.method == Method::POST {
        built = built.header(CONTENT_LENGTH, request.body.len());
    }
    let built = built.body(Full::new(request.body.clone())).map_err(|_| RequestError::NoAnswer)?;
    match timeout(ANSWER, connection.sender.send_request(built)).await {
        Ok(response) => response.map_err(|_| RequestError::NoAnswer),
        Err(_) => Err(RequestError::Silent),
    }
}
