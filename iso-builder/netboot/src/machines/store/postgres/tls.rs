//! TLS to a database, by the library that the server's own HTTPS uses. The crate `tokio-postgres-rustls` would do the same and
//! bring a second parser of certificates.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::postgres::Socket;
use ::postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Checks the certificate of the database and its name.
#[derive(Clone)]
pub(super) struct DatabaseTls(TlsConnector);

impl DatabaseTls {
    /// Trusts the authorities in the file, in PEM, or those of this host.
    pub(super) fn trusting(authorities: Option<&Path>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(file) => {
                let what =
                    || format!("reading the certificate authorities of the database in {}", file.display());
                for certificate in CertificateDer::pem_file_iter(file).class(Class::Invalid, what)? {
                    roots.add(certificate.class(Class::Invalid, what)?).class(Class::Invalid, what)?;
                }
                if roots.is_empty() {
                    return Err(Failure::new(Class::Invalid, what())
                        .because(anyhow!("it has no certificate"))
                        .into());
                }
            }
            None => {
                // What cannot be read is left out: a store of many authorities may have one that is not understood.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions();
        let config = config.class(Class::Unexpected, || "preparing TLS to the database".into())?;
        Ok(Self(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))))
    }
}

impl MakeTlsConnect<Socket> for DatabaseTls {
    type Stream = DatabaseStream;
    type TlsConnect = DatabaseConnect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<DatabaseConnect> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(DatabaseConnect { connector: self.0.clone(), name })
    }
}

/// One handshake.
pub(super) struct DatabaseConnect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for DatabaseConnect {
    type Stream = DatabaseStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<DatabaseStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let handshake = self.connector.connect(self.name, stream);
        Box::pin(async move { Ok(DatabaseStream(Box::new(handshake.await?))) })
    }
}

/// An encrypted connection.
pub(super) struct DatabaseStream(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for DatabaseStream {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is checked with its name, so that the other end is known without it.
        ChannelBinding::none()
    }
}

impl AsyncRead for DatabaseStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for DatabaseStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
