//! The connections of the server: files over plain HTTP by [`sendfile`](super::sendfile), everything else by hyper, with
//! TLS where it is wanted. [`transfer::server`] accepts and limits them.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use transfer::server::accept::{ConnectionService, ServerConnection};
use transfer::server::body::{RequestBody, ResponseBody};
use transfer::server::connection_limit::{AnsweringGuard, ClientNetwork, ConnectionRefusal};

use super::http::respond;
use super::metered::{MeteredBody, route};
use super::router::Router;
use super::sendfile::{self, NextRequest};
use crate::journal;
use crate::metrics::RequestMeter;

pub struct NetbootConnections {
    pub router: Arc<Router>,
    pub tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for NetbootConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetbootConnections").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl ConnectionService for NetbootConnections {
    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    async fn serve(&self, connection: &ServerConnection) {
        let _open = self.router.store.metrics().connected();
        match &self.tls {
            None => {
                if self.send_files(connection).await {
                    self.answer(connection, connection.stream()).await;
                }
            }
            Some(acceptor) => {
                let handshake = acceptor.accept(connection.stream());
                if let Ok(Ok(secured)) = timeout(connection.limits.wait, handshake).await {
                    self.answer(connection, secured).await;
                }
            }
        }
    }

    fn count_refusal(&self, refusal: ConnectionRefusal) {
        self.router.store.metrics().connection_refused(match refusal {
            ConnectionRefusal::Client => "client",
            ConnectionRefusal::Server => "server",
        });
    }

    fn refused(&self, client: ClientNetwork, refusal: ConnectionRefusal, count: u64) {
        let why = match refusal {
            ConnectionRefusal::Client => "exceeds the limit of one address (--connections-per-address)",
            ConnectionRefusal::Server => "exceeds the limit of the server (--connections)",
        };
        journal::write(
            &self.router.progress,
            &format!("connection refused: {client} {why}; {count} refused so far"),
        );
    }
}

impl NetbootConnections {
    /// Answers requests for the medium's files by sendfile(2). Returns true at the first other request, which is left
    /// in the stream.
    async fn send_files(&self, connection: &ServerConnection) -> bool {
        let ServerConnection { socket, peer, permit, limits, stop } = connection;
        let mut stop = stop.clone();
        loop {
            let asked = tokio::select! {
                asked = timeout(limits.wait, sendfile::asked(socket)) => asked,
                _ = stop.wait_for(|stop| *stop) => return false,
            };
            let asked = match asked {
                Ok(Ok(NextRequest::Files(asked))) => asked,
                Ok(Ok(NextRequest::Other)) => return true,
                // Errors of a connection are ignored: the client retries.
                Ok(Ok(NextRequest::End) | Err(_)) | Err(_) => return false,
            };
            let _answering = permit.answering();
            let last = asked.last || *stop.borrow();
            let sent = sendfile::answer(socket, &self.router, *peer, *asked, last).await;
            if sent.is_err() || last {
                return false;
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        connection: &ServerConnection,
        stream: S,
    ) {
        let respond =
            |request, answering| answered(Arc::clone(&self.router), connection.peer, request, answering);
        connection.answer(stream, respond).await;
    }
}

/// Answers one request. The connection's phase is "answering" until the response's body is sent. If the request's body
/// was not read, the connection is closed after the answer: the rest of that body would be read as the next request.
async fn answered(
    router: Arc<Router>,
    peer: IpAddr,
    request: Request<Incoming>,
    answering: AnsweringGuard,
) -> Result<Response<MeteredBody<ResponseBody>>, Infallible> {
    let (route, method) = (route(request.uri().path()), request.method().as_str());
    let mut meter = RequestMeter::begin(router.store.metrics(), route, method);
    let request = request.map(|body| RequestBody::new(body, answering.permit()));
    let unread = request.body().unread();
    let mut response = respond(router, peer, request).await?;
    if unread.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    meter.answered(response.status().as_u16());
    Ok(response.map(|body| MeteredBody::new(body.holding(answering), meter)))
}

#[cfg(test)]
mod tests;
