//! Sockets: accepts connections, answers their requests and closes them.
//!
//! | A connection is closed when | by |
//! |---|---|
//! | there are too many | [`connection_limit`](super::connection_limit) |
//! | it sends or takes too little | [`transfer_rate`](super::transfer_rate) |
//! | it sends no request | [`ServerLimits::wait`], here |

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use base::failure::{Class, Failure};
use base::progress::Progress;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::body::{RequestBody, ResponseBody};
use super::connection_limit::{
    AnsweringGuard, ClientNetwork, ConnectionLimit, ConnectionPermit, ConnectionRefusal,
};
use super::http::respond;
use super::journal;
use super::router::Router;
use super::sendfile::{self, NextRequest};
use super::stream::{self, SharedStream};
use super::tcp_info;
use super::transfer_rate::{TransferMeter, TransferRates, TransferVerdict};

/// The longest head of a request, in bytes; also the size of the write buffer.
const HEAD: usize = 64 * 1024;
/// The backlog of the listening socket; the kernel caps it at `net.core.somaxconn` (listen(2)).
const QUEUE: u32 = 4096;
/// The pause after a failed accept(2), mostly because too many files are open.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the rate of a connection is checked.
const TICK: Duration = Duration::from_secs(1);
/// The least time between two messages about refused connections.
const TELL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections of one client; see [`ClientNetwork`].
    pub per_client: usize,
    /// How long a connection may wait for a request, and how long the request's head may take.
    pub wait: Duration,
    /// How fast connections have to be.
    pub rates: TransferRates,
    /// How long transfers may go on after the server was told to stop.
    pub grace: Duration,
}

impl ServerLimits {
    /// `per_client` is a quarter of `connections` unless it is given.
    #[must_use]
    pub fn of(connections: usize, per_client: Option<usize>) -> Self {
        Self {
            connections,
            per_client: per_client.unwrap_or(connections.div_ceil(4)),
            wait: Duration::from_secs(30),
            rates: TransferRates::default(),
            grace: Duration::from_secs(5),
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self::of(1000, None)
    }
}

/// Opens the socket for `address`.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server can take the port at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(QUEUE)
    };
    open().map_err(|error| {
        Failure::new(Class::Network, format!("listening on {address}"))
            .because(error)
            .hint("Give --listen an address of this machine and a port that is free.")
            .into()
    })
}

/// Accepts connections until `stop` becomes true, then waits up to [`ServerLimits::grace`] for transfers to end.
pub async fn serve(
    listener: TcpListener,
    router: Arc<Router>,
    tls: Option<TlsAcceptor>,
    limits: ServerLimits,
    mut stop: watch::Receiver<bool>,
) {
    let limit = ConnectionLimit::new(limits.connections, limits.per_client);
    let stopping = stop.clone();
    let mut refusals = Refusals::new(router.progress.clone());
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match limit.admit(ClientNetwork::of(peer.ip()), Instant::now()) {
                    Ok(permit) => {
                        let (router, permit) = (Arc::clone(&router), Arc::new(permit));
                        let connection = Connection {
                            router,
                            peer: peer.ip().to_canonical(),
                            permit,
                            limits,
                            stop: stopping.clone(),
                        };
                        tokio::spawn(connection.run(stream, tls.clone()));
                    }
                    Err(refused) => {
                        stream::refuse(stream, tls.is_none());
                        refusals.note(ClientNetwork::of(peer.ip()), refused, Instant::now());
                    }
                },
                // The client has disconnected, or too many files are open.
                Err(_) => sleep(PAUSE).await,
            }
            limit.settled().await;
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(listener);
    let _ = timeout(limits.grace, limit.empty()).await;
}

/// Reports refused connections to the operator, at most once in [`TELL`].
struct Refusals {
    progress: Progress,
    count: u64,
    told: Option<Instant>,
}

impl Refusals {
    fn new(progress: Progress) -> Self {
        Self { progress, count: 0, told: None }
    }

    fn note(&mut self, client: ClientNetwork, refused: ConnectionRefusal, now: Instant) {
        self.count += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < TELL) {
            return;
        }
        let why = match refused {
            ConnectionRefusal::Client => "has reached the limit of one address (--connections-per-address)",
            ConnectionRefusal::Server => "finds the limit of the server reached (--connections)",
        };
        let count = self.count;
        journal::write(
            &self.progress,
            &format!("connection refused: {client} {why}; {count} refused so far"),
        );
        self.told = Some(now);
    }
}

struct Connection {
    router: Arc<Router>,
    /// The client's address; an IPv4 address as such, even on a socket for IPv6.
    peer: IpAddr,
    permit: Arc<ConnectionPermit>,
    limits: ServerLimits,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Answers are written whole: waiting for more data gains nothing.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let abandoned = tokio::select! {
            () = self.serve(&stream, tls) => false,
            displaced = self.permit.displaced() => displaced,
            () = too_slow(&stream, &self.permit, self.limits.rates) => true,
        };
        if abandoned {
            // Else the kernel retransmits its buffer, which may be megabytes, for minutes.
            let _ = stream.set_zero_linger();
        }
    }

    async fn serve(&self, stream: &Arc<TcpStream>, tls: Option<TlsAcceptor>) {
        match tls {
            None => {
                if self.send_files(stream).await {
                    self.answer(SharedStream(Arc::clone(stream))).await;
                }
            }
            Some(acceptor) => {
                let handshake = acceptor.accept(SharedStream(Arc::clone(stream)));
                if let Ok(Ok(secured)) = timeout(self.limits.wait, handshake).await {
                    self.answer(secured).await;
                }
            }
        }
        if !*self.stop.borrow() {
            stream::end(stream).await;
        }
    }

    /// Answers requests for the medium's files by sendfile(2). Returns true at the first other request, which is left
    /// in the stream.
    async fn send_files(&self, stream: &TcpStream) -> bool {
        let mut stop = self.stop.clone();
        loop {
            let asked = tokio::select! {
                asked = timeout(self.limits.wait, sendfile::asked(stream)) => asked,
                _ = stop.wait_for(|stop| *stop) => return false,
            };
            let asked = match asked {
                Ok(Ok(NextRequest::Files(asked))) => asked,
                Ok(Ok(NextRequest::Other)) => return true,
                // Errors of a connection are ignored: the client retries.
                Ok(Ok(NextRequest::End) | Err(_)) | Err(_) => return false,
            };
            let _answering = self.permit.answering();
            let last = asked.last || *stop.borrow();
            let sent = sendfile::answer(stream, &self.router, self.peer, *asked, last).await;
            if sent.is_err() || last {
                return false;
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let (router, peer, permit) = (Arc::clone(&self.router), self.peer, Arc::clone(&self.permit));
        let service =
            service_fn(move |request| answered(Arc::clone(&router), peer, request, permit.answering()));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.limits.wait).max_buf_size(HEAD);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut stop = self.stop.clone();
        let stopped = tokio::select! {
            // Errors of a connection are ignored: the client retries.
            _ = connection.as_mut() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if stopped {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Answers one request. The connection's phase is "answering" until the response's body is sent. If the request's body
/// was not read, the connection is closed after the answer: the rest of that body would be read as the next request.
async fn answered(
    router: Arc<Router>,
    peer: IpAddr,
    request: Request<Incoming>,
    answering: AnsweringGuard,
) -> Result<Response<ResponseBody>, Infallible> {
    let request = request.map(|body| RequestBody::new(body, answering.permit()));
    let unread = request.body().unread();
    let mut response = respond(router, peer, request).await?;
    if unread.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| body.holding(answering)))
}

/// Completes when a connection is too slow to be kept.
async fn too_slow(stream: &TcpStream, permit: &ConnectionPermit, rates: TransferRates) {
    let mut meter = TransferMeter::new(rates);
    let mut ticks = interval(TICK.min(rates.ample.window / 4));
    // A late tick does not need to be made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A displaced connection is not judged, nor any on a kernel without these counters.
        let (Some((phase, turn)), Ok(counters)) = (permit.phase(), tcp_info::counters(stream)) else {
            return std::future::pending().await;
        };
        match meter.judge(phase, turn, Instant::now(), counters) {
            TransferVerdict::TooSlow => return,
            verdict => permit.rated(turn, verdict),
        }
    }
}

#[cfg(test)]
mod tests;
