//! Sockets: connections come, are answered in their turn, and go; none for longer than its limits.
//!
//! | What keeps a connection from staying | where |
//! |---|---|
//! | there are too many | [`connection_limit`](super::connection_limit) |
//! | it sends or takes too little | [`transfer_rate`](super::transfer_rate) |
//! | it asks for nothing | [`ServerLimits::wait`], here |

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
use super::router::{Router, STEP};
use super::sendfile::{self, NextRequest};
use super::stream::{self, SharedStream};
use super::tcp_info;
use super::transfer_rate::{TransferMeter, TransferRates, TransferVerdict};

/// The most of a request's head, in bytes; also what is buffered beside the body's pieces.
const HEAD: usize = 64 * 1024;
/// Connections that wait in the kernel to be taken, at most; it allows as many as `net.core.somaxconn` (listen(2)).
const QUEUE: u32 = 4096;
/// After trouble with taking a connection, which is mostly that there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked at how much a connection has moved.
const TICK: Duration = Duration::from_secs(1);
/// How often the operator is told that connections are refused.
const TELL: Duration = Duration::from_secs(60);

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one client at a time; see [`ClientNetwork`].
    pub per_client: usize,
    /// How long a connection may wait for a request, and how long the request's head may take.
    pub wait: Duration,
    /// How fast connections have to be.
    pub rates: TransferRates,
    /// How long transfers may go on once the server is to stop.
    pub grace: Duration,
}

impl ServerLimits {
    /// Limits for so many connections, and so many of one client: a quarter of all unless it is given.
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
        // A server that is started again takes the port of the one before at once.
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

/// Answers connections until `stop` changes, then lets transfers end for a while.
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
                // The client has gone again, or there are too many open files.
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

/// Tells the operator of connections that were refused, and no oftener than it can be read.
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
            ConnectionRefusal::Client => "has as many as one address may have (--connections-per-address)",
            ConnectionRefusal::Server => "finds all of them in use (--connections)",
        };
        let count = self.count;
        self.progress.note(STEP, format!("connection refused: {client} {why}; {count} refused so far"));
        self.told = Some(now);
    }
}

/// One connection.
struct Connection {
    router: Arc<Router>,
    /// The address of the client, an IPv4 address as such on a socket for IPv6 too.
    peer: IpAddr,
    permit: Arc<ConnectionPermit>,
    limits: ServerLimits,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Answers are written whole, so that nothing is won by waiting for more.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let abandoned = tokio::select! {
            () = self.serve(&stream, tls) => false,
            displaced = self.permit.displaced() => displaced,
            () = too_slow(&stream, &self.permit, self.limits.rates) => true,
        };
        if abandoned {
            // Else the kernel goes on for minutes to offer what it has buffered, which may be megabytes.
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

    /// Answers requests for the medium's files until there is another, which is left in the stream: whether there is.
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
                // How a connection ends is the client's affair: it tries again.
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
            // How a connection ends is the client's affair: it tries again.
            _ = connection.as_mut() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if stopped {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Answers one request. Its connection is being answered as long as there is a body, and ends with it where the body of the
/// request was of no interest: what comes next on it would be that.
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

/// Returns when a connection is too slow to be kept.
async fn too_slow(stream: &TcpStream, permit: &ConnectionPermit, rates: TransferRates) {
    let mut meter = TransferMeter::new(rates);
    let mut ticks = interval(TICK.min(rates.ample.window / 4));
    // One that comes late is as good.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Of one that was displaced nothing is to be known, nor of any on a kernel that does not count.
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
