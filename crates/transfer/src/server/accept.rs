//! Sockets: accepts connections and closes them.
//!
//! | A connection is closed when | by |
//! |---|---|
//! | there are too many | [`connection_limit`](super::connection_limit) |
//! | it sends or takes too little | [`transfer_rate`](super::transfer_rate) |
//! | it sends no request | [`ServerLimits::wait`], here |

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use base::failure::{Class, Failure};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::connection_limit::{
    AnsweringGuard, ClientNetwork, ConnectionLimit, ConnectionPermit, ConnectionRefusal,
};
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
    pub connections: usize,
    /// Concurrent connections of one client; see [`ClientNetwork`].
    pub per_client: usize,
    /// How long a connection may wait for a request, and how long the request's head may take.
    pub wait: Duration,
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

/// The work of a server on an accepted connection.
pub trait ConnectionService: Send + Sync + 'static {
    /// True if clients speak plain HTTP, so that a refused one can get an HTTP response.
    fn is_plain(&self) -> bool;

    fn serve(&self, connection: &ServerConnection) -> impl Future<Output = ()> + Send;

    /// Counts a client that was refused.
    fn count_refusal(&self, _refusal: ConnectionRefusal) {}

    /// Tells the operator that `client` was refused, the `count`th refusal. It is called at most once in a minute.
    fn refused(&self, client: ClientNetwork, refusal: ConnectionRefusal, count: u64);
}

/// A connection within the limits.
#[derive(Debug)]
pub struct ServerConnection {
    pub socket: Arc<TcpStream>,
    /// The client's address; an IPv4 address as such, even on a socket for IPv6.
    pub peer: IpAddr,
    pub permit: Arc<ConnectionPermit>,
    pub limits: ServerLimits,
    /// Becomes true when the server stops.
    pub stop: watch::Receiver<bool>,
}

/// Opens the socket for `address`, which the option --listen named.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server can take the port at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(QUEUE)
    };
    open().map_err(|error: io::Error| {
        Failure::new(Class::Network, format!("listening on {address}"))
            .because(error)
            .hint("Give --listen an address of this machine and a port that is free.")
            .into()
    })
}

/// Accepts connections until `stop` becomes true, then waits up to [`ServerLimits::grace`] for transfers to end.
pub async fn serve<S: ConnectionService>(
    listener: TcpListener,
    service: Arc<S>,
    limits: ServerLimits,
    mut stop: watch::Receiver<bool>,
) {
    let limit = ConnectionLimit::new(limits.connections, limits.per_client);
    let stopping = stop.clone();
    let mut refusals = Refusals::default();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => match limit.admit(ClientNetwork::of(peer.ip()), Instant::now()) {
                    Ok(permit) => {
                        let connection = ServerConnection {
                            socket: Arc::new(socket),
                            peer: peer.ip().to_canonical(),
                            permit: Arc::new(permit),
                            limits,
                            stop: stopping.clone(),
                        };
                        let service = Arc::clone(&service);
                        tokio::spawn(async move { connection.run(&*service).await });
                    }
                    Err(refused) => {
                        stream::refuse(socket, service.is_plain());
                        service.count_refusal(refused);
                        if refusals.is_due(Instant::now()) {
                            service.refused(ClientNetwork::of(peer.ip()), refused, refusals.count);
                        }
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

/// Counts refused connections, of which the operator is told at most once in [`TELL`].
#[derive(Default)]
struct Refusals {
    count: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// Counts one more. Returns whether it is time for a message.
    fn is_due(&mut self, now: Instant) -> bool {
        self.count += 1;
        let due = self.told.is_none_or(|told| now.duration_since(told) >= TELL);
        if due {
            self.told = Some(now);
        }
        due
    }
}

impl ServerConnection {
    async fn run(self, service: &impl ConnectionService) {
        // Responses are written as a whole, so Nagle's delay only costs time.
        let _ = self.socket.set_nodelay(true);
        let serving = async {
            service.serve(&self).await;
            if !*self.stop.borrow() {
                stream::end(&self.socket).await;
            }
        };
        let abandoned = tokio::select! {
            () = serving => false,
            displaced = self.permit.displaced() => displaced,
            () = too_slow(&self.socket, &self.permit, self.limits.rates) => true,
        };
        if abandoned {
            // Else the kernel retransmits its buffer, which may be megabytes, for minutes.
            let _ = self.socket.set_zero_linger();
        }
    }

    /// The stream of the socket, beside which the rate of the connection is measured.
    #[must_use]
    pub fn stream(&self) -> impl AsyncRead + AsyncWrite + Unpin + Send + 'static {
        SharedStream(Arc::clone(&self.socket))
    }

    /// Answers the requests of `stream`, which is that of the socket or one inside it. The connection's phase is
    /// "answering" for as long as the response or its body keeps the guard.
    pub async fn answer<S, F, A, B>(&self, stream: S, respond: F)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Fn(Request<Incoming>, AnsweringGuard) -> A,
        A: Future<Output = Result<Response<B>, Infallible>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let service = service_fn(|request| respond(request, self.permit.answering()));
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

/// Completes when a connection is too slow to be kept.
async fn too_slow(socket: &TcpStream, permit: &ConnectionPermit, rates: TransferRates) {
    let mut meter = TransferMeter::new(rates);
    let mut ticks = interval(TICK.min(rates.ample.window / 4));
    // A late tick does not need to be made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A displaced connection is not judged, nor any on a kernel without these counters.
        let (Some((phase, turn)), Ok(counters)) = (permit.phase(), tcp_info::counters(socket)) else {
            return std::future::pending().await;
        };
        match meter.judge(phase, turn, Instant::now(), counters) {
            TransferVerdict::TooSlow => return,
            verdict => permit.rated(turn, verdict),
        }
    }
}
