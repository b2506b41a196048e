//! What the two protocols share: time, addresses, and how a server proves its identity.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use reqwest::StatusCode;
use rustls::CertificateError;

use super::authority::Authority;
use super::query::JoinQuery;
use super::server::{JoinServer, RequestLogin, ServerAnswer};
use super::version::{self, Version};
use crate::api::http::{ClientIdentity, Trust};
use machine::clock::ClockOffset;
use machine::network_trouble::NetworkTrouble;
use model::config::Distribution;

pub(super) struct JoinConversation<'a> {
    pub(super) question: &'a JoinQuery,
    pub(super) until: Instant,
    begun: Instant,
}

impl<'a> JoinConversation<'a> {
    /// A conversation that begins now and ends by `until`.
    pub(super) fn new(question: &'a JoinQuery, until: Instant) -> Self {
        Self { question, until, begun: Instant::now() }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.question.now + self.begun.elapsed()
    }

    /// The server at this port. It has to have a certificate of `authority`, unless its answers prove themselves, and is shown that of
    /// `identity`.
    pub(super) fn server(
        &self,
        port: u16,
        authority: Option<&Authority>,
        identity: Option<ClientIdentity>,
    ) -> Result<JoinServer, NetworkTrouble> {
        let unreadable = || {
            NetworkTrouble::Unable("cannot be asked: the certificates of its authority cannot be read".into())
        };
        let trust = match authority {
            None => Trust::All,
            Some(authority) => {
                Trust::Verified(authority.verifier(self.now()).ok_or_else(unreadable)?, identity)
            }
        };
        let addresses = self.question.addresses.iter().map(|address| SocketAddr::from((*address, port)));
        JoinServer::new(&self.question.host, &addresses.collect::<Vec<_>>(), trust, self.until)
    }

    pub(super) fn offset(&self, date: SystemTime) -> ClockOffset {
        ClockOffset::between(self.now(), date)
    }

    /// Adds which other distribution answers there instead: its servers listen at other ports, or answer differently.
    pub(super) fn with_hint(&self, why: NetworkTrouble) -> NetworkTrouble {
        match why {
            NetworkTrouble::Silent(what) => {
                NetworkTrouble::Silent(format!("{what}{}", self.hint().unwrap_or_default()))
            }
            // A server of another distribution does not become one of this.
            NetworkTrouble::NotYet(what) => match self.hint() {
                Some(hint) => NetworkTrouble::Silent(format!("{what}{hint}")),
                None => NetworkTrouble::NotYet(what),
            },
            unable @ NetworkTrouble::Unable(_) => unable,
        }
    }

    fn hint(&self) -> Option<String> {
        let ports = self.question.ports;
        let others: &[(Distribution, u16)] = match self.question.distribution {
            Distribution::Rke2 => &[(Distribution::K3s, ports.other), (Distribution::Kubeadm, ports.api)],
            Distribution::K3s => &[(Distribution::Rke2, ports.other), (Distribution::Kubeadm, ports.api)],
            Distribution::Kubeadm => &[(Distribution::Rke2, ports.other), (Distribution::K3s, ports.api)],
        };
        let answers = |distribution: Distribution, port| match distribution {
            Distribution::Kubeadm => {
                self.said(port, "/version").is_some_and(|answer| version_of(&answer).is_some())
            }
            _ => self.said(port, "/ping").is_some_and(|answer| is_pong(&answer)),
        };
        let (other, port) = others.iter().find(|(distribution, port)| answers(*distribution, *port))?;
        Some(format!("; on port {port} a server of {} answers", other.name()))
    }

    /// The answer without a login.
    fn said(&self, port: u16, path: &str) -> Option<ServerAnswer> {
        self.server(port, None, None).ok()?.get(path, RequestLogin::None).ok()
    }

    /// The first of the authorities of which the server has a certificate. `path` is something that it answers to anybody.
    pub(super) fn proven(
        &self,
        port: u16,
        path: &str,
        candidates: impl IntoIterator<Item = Authority>,
    ) -> Result<Authority, NetworkTrouble> {
        let mut last = silent("proves no authority");
        for authority in candidates {
            last = self.prove(port, path, &authority).map(|()| authority);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn prove(&self, port: u16, path: &str, authority: &Authority) -> Result<(), NetworkTrouble> {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        };
        let Some(why) = self.server(port, Some(authority), None)?.certificate_error(path)? else {
            return Ok(());
        };
        match why {
            NotValidYet | NotValidYetContext { .. } => {
                silent("has a certificate that is not yet valid by this machine's clock; see join-clock")
            }
            Expired | ExpiredContext { .. } => {
                silent("has a certificate that is no longer valid by this machine's clock; see join-clock")
            }
            NotValidForName => silent(format!("has no certificate for {}", self.question.host)),
            NotValidForNameContext { presented, .. } => silent(format!(
                "has no certificate for {}, only for {}",
                self.question.host,
                presented.join(", ")
            )),
            other => silent(format!(
                "shows the authority {} and a certificate that is not of it: {other}",
                authority.digest
            )),
        }
    }
}

pub(super) fn is_pong(answer: &ServerAnswer) -> bool {
    answer.is_ok() && answer.body.trim_ascii() == b"pong"
}

/// The version, if this is what an API server answers at `/version`.
pub(super) fn version_of(answer: &ServerAnswer) -> Option<Version> {
    version::of_api(&answer.body).filter(|_| answer.is_ok())
}

/// The answer of the API at `path`. A missing answer does not keep the node from joining.
pub(super) fn answer_of(
    api: &JoinServer,
    path: &str,
    login: RequestLogin<'_>,
) -> Result<Vec<u8>, NetworkTrouble> {
    let answer = api.get(path, login).map_err(out_of_reach)?;
    match answer.is_ok() {
        true => Ok(answer.body),
        false => unable(format!("cannot be asked for: GET {}{path} gave {}", api.name(), answer.summary())),
    }
}

pub(super) fn out_of_reach(trouble: NetworkTrouble) -> NetworkTrouble {
    let (NetworkTrouble::Silent(what) | NetworkTrouble::NotYet(what) | NetworkTrouble::Unable(what)) =
        trouble;
    NetworkTrouble::Unable(format!("cannot be asked for: the server {what}"))
}

/// For an answer that cannot be parsed.
pub(super) fn strange(what: &str) -> NetworkTrouble {
    NetworkTrouble::Unable(format!("cannot be read from what {what} gave"))
}

pub(super) fn refuses(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// For a status that is no success: that of a server which is still starting, or that of another service.
pub(super) fn unexpected<T>(answer: &ServerAnswer, what: String) -> Result<T, NetworkTrouble> {
    match answer.status.is_server_error() {
        true => Err(NetworkTrouble::NotYet(what)),
        false => silent(what),
    }
}

pub(super) fn silent<T>(what: impl Into<String>) -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Silent(what.into()))
}

pub(super) fn unable<T>(why: impl Into<String>) -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Unable(why.into()))
}
