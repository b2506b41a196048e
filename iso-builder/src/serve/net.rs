//! Sockets: connections come, are answered in their turn, and go; none for longer than its limits.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Result;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use installer::failure::{Class, Failure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use super::direct::{self, Next};
use super::http::respond;
use super::seats::{Seat, Seats};
use super::site::Site;

/// The most of a request's head, in bytes; also what is buffered beside the body's pieces.
const HEAD: usize = 64 * 1024;
/// Connections that wait in the kernel to be taken, at most; it allows as many as `net.core.somaxconn` (listen(2)).
const QUEUE: u32 = 4096;
/// After trouble with taking a connection, which is mostly that there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// How long a request's head may take, and how long a connection may wait for one.
    pub head: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub stall: Duration,
    /// How long transfers may go on once the server is to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1000,
            head: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            grace: Duration::from_secs(5),
        }
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
            .hint("Give --listen an address of this machine and a port that nobody uses.")
            .into()
    })
}

/// Answers connections until `stop` changes, then lets transfers end for a while.
pub async fn serve(
    listener: TcpListener,
    site: Arc<Site>,
    tls: Option<tokio_rustls::TlsAcceptor>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let seats = Seats::new(limits.connections);
    let stopping = stop.clone();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let seat = Arc::new(seats.take().await);
                    let connection =
                        Connection { site: Arc::clone(&site), seat, limits, stop: stopping.clone() };
                    tokio::spawn(connection.begin(stream, tls.clone()));
                }
                // The client has gone again, or there are too many open files.
                Err(_) => sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(listener);
    let _ = timeout(limits.grace, seats.empty()).await;
}

/// One connection.
struct Connection {
    site: Arc<Site>,
    seat: Arc<Seat>,
    limits: Limits,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn begin(self, mut stream: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>) {
        // Answers are written whole, so that nothing is won by waiting for more.
        let _ = stream.set_nodelay(true);
        let seat = Arc::clone(&self.seat);
        match tls {
            None => {
                if self.send_files(&mut stream).await {
                    self.answer(stream).await;
                }
            }
            Some(acceptor) => {
                let handshake = timeout(self.limits.head, acceptor.accept(stream));
                let secured = tokio::select! {
                    secured = handshake => secured,
                    () = seat.put_out() => return,
                };
                if let Ok(Ok(stream)) = secured {
                    self.answer(stream).await;
                }
            }
        }
    }

    /// Answers requests for the medium's files until there is another, which is left in the stream: whether there is.
    async fn send_files(&self, stream: &mut TcpStream) -> bool {
        let mut stop = self.stop.clone();
        loop {
            let asked = tokio::select! {
                asked = timeout(self.limits.head, direct::asked(stream)) => asked,
                () = self.seat.put_out() => return false,
                _ = stop.wait_for(|stop| *stop) => return false,
            };
            let asked = match asked {
                Ok(Ok(Next::Files(asked))) => asked,
                Ok(Ok(Next::Other)) => return true,
                // How a connection ends is the client's affair: it tries again.
                Ok(Ok(Next::End) | Err(_)) | Err(_) => return false,
            };
            let _answering = self.seat.answering();
            let last = asked.last || *stop.borrow();
            let sent = direct::answer(stream, &self.site, *asked, last, self.limits.stall).await;
            if sent.is_err() || last {
                return false;
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(mut self, stream: S) {
        let (site, seat) = (Arc::clone(&self.site), Arc::clone(&self.seat));
        let service = service_fn(move |request| {
            let (answering, site) = (seat.answering(), Arc::clone(&site));
            // The connection is being answered as long as there is a body.
            async move { respond(site, request).await.map(|answer| answer.map(|body| body.holding(answering))) }
        });
        let stream = TokioIo::new(Watched { stream, limit: self.limits.stall, stalled: None });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.limits.head).max_buf_size(HEAD);
        let mut connection = pin!(http.serve_connection(stream, service));
        let stopped = tokio::select! {
            // How a connection ends is the client's affair: it tries again.
            _ = connection.as_mut() => false,
            () = self.seat.put_out() => false,
            _ = self.stop.wait_for(|stop| *stop) => true,
        };
        if stopped {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// A stream that fails when the client takes nothing for too long.
struct Watched<S> {
    stream: S,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    /// What a write gives, or that it has waited for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests;
