//! The requests to a cluster: which, in which order, and what the answers mean.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use reqwest::StatusCode;
use rustls::CertificateError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::authority::{Authority, AuthorityBundle};
use super::client::{
    Client, ClientIdentity, RequestLogin, RequestProblem, ServerAddress, ServerAnswer, Trust,
};
use super::members::{self, ClusterPeer};
use super::question::{Question, Seen, other, see};
use super::token::{Login, Token};
use super::version::{self, Version};
use crate::preflight::ntp::ClockOffset;
use crate::preflight::trouble::NetworkTrouble;

/// Holds the conversation. It ends by `until`.
#[must_use]
pub fn ask(question: &Question, until: Instant) -> Seen {
    let talk = Talk { question, until, begun: Instant::now() };
    let place = talk.place(question.ports.supervisor);
    let mut seen = Seen::nothing(question, see("join-server"));
    let anybody = match Client::new(&place, Trust::All, until) {
        Ok(client) => client,
        Err(trouble) => return Seen::nothing(question, trouble),
    };
    let greeting = match talk.greet(&anybody) {
        Ok(greeting) => greeting,
        Err(trouble) => return Seen::nothing(question, trouble),
    };
    seen.server = Ok(());
    seen.clock = greeting.date.map(|date| talk.offset(date));
    seen.authority = talk.authority(&anybody);
    let found = seen.authority.as_ref().map(|(authority, _)| authority.clone());
    let ready = found.map_err(|_| see("join-authority")).and_then(|authority| {
        Ok((Client::new(&place, Trust::Authority(&authority, talk.now()), until)?, authority))
    });
    match ready {
        Err(trouble) => {
            seen.token = Err(trouble.clone());
            seen.version = Err(trouble.clone());
            seen.members = Err(trouble);
        }
        Ok((client, authority)) => {
            seen.token = talk.admission(&client);
            seen.agent_token = talk.agent_admission(&client);
            (seen.version, seen.members) = talk.cluster(&client, &authority);
        }
    }
    seen
}

struct Talk<'a> {
    question: &'a Question,
    until: Instant,
    begun: Instant,
}

impl Talk<'_> {
    fn now(&self) -> SystemTime {
        self.question.now + self.begun.elapsed()
    }

    fn place(&self, port: u16) -> ServerAddress {
        let addresses = self.question.addresses.iter().map(|address| SocketAddr::from((*address, port)));
        ServerAddress { host: self.question.host.clone(), addresses: addresses.collect() }
    }

    fn offset(&self, date: SystemTime) -> ClockOffset {
        let now = self.now();
        match date.duration_since(now) {
            Ok(by) => ClockOffset { by, behind: true },
            Err(error) => ClockOffset { by: error.duration(), behind: false },
        }
    }

    fn path(&self, file: &str) -> String {
        format!("/v1-{}/{file}", self.question.distribution.name())
    }

    /// Asks for `/ping`, which both distributions answer without a login.
    fn greet(&self, client: &Client) -> Result<ServerAnswer, NetworkTrouble> {
        let name = self.question.distribution.name();
        let why = match client.get("/ping", RequestLogin::None) {
            Ok(answer) if is_pong(&answer) => return Ok(answer),
            Ok(answer) => NetworkTrouble::Silent(format!(
                "answers as another service than the supervisor of {name}: GET /ping gave {}",
                answer.told()
            )),
            Err(problem) => problem.into(),
        };
        match why {
            // A server of the other distribution listens elsewhere.
            NetworkTrouble::Silent(what) => {
                Err(NetworkTrouble::Silent(format!("{what}{}", self.hint_of_the_other())))
            }
            unable => Err(unable),
        }
    }

    fn hint_of_the_other(&self) -> String {
        let Question { ports, distribution, .. } = self.question;
        let client = Client::new(&self.place(ports.other), Trust::All, self.until);
        let there =
            client.is_ok_and(|client| client.get("/ping", RequestLogin::None).is_ok_and(|a| is_pong(&a)));
        let name = other(*distribution).name();
        if there { format!("; on port {} a server of {name} answers", ports.other) } else { String::new() }
    }

    /// The cluster's authority: what it says that it is, if that is what the token names, and what its server proves to
    /// have. After this, only servers of that authority are trusted.
    fn authority(&self, anybody: &Client) -> Result<(Authority, bool), NetworkTrouble> {
        let answer = anybody.get("/cacerts", RequestLogin::None)?;
        let bundle = AuthorityBundle::read(&answer.body).filter(|_| answer.is_ok());
        let Some(bundle) = bundle else {
            return silent(format!("shows no certificates: GET /cacerts gave {}", answer.told()));
        };
        let wanted = self.question.token.as_ref().and_then(|token| token.authority);
        let candidates: Vec<_> = match wanted {
            None => bundle.authorities().collect(),
            Some(digest) => match bundle.named(digest) {
                Some(authority) => vec![authority],
                None => {
                    let shown = bundle.authorities().next().map(|authority| authority.digest.to_string());
                    return silent(format!(
                        "has another authority than the token names: its own is {}, the token's {digest}",
                        shown.unwrap_or_default()
                    ));
                }
            },
        };
        let mut last = silent("proves none");
        for authority in candidates {
            last = self.prove(anybody.place(), &authority).map(|()| (authority, wanted.is_some()));
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Whether the server has a certificate of the authority.
    fn prove(&self, place: &ServerAddress, authority: &Authority) -> Result<(), NetworkTrouble> {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        };
        let client = Client::new(place, Trust::Authority(authority, self.now()), self.until)?;
        let why = match client.get("/ping", RequestLogin::None) {
            Ok(_) => return Ok(()),
            Err(RequestProblem::Certificate(why)) => why,
            Err(RequestProblem::Other(trouble)) => return Err(trouble),
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

    /// Whether the token lets the node in, in its role.
    fn admission(&self, client: &Client) -> Result<(), NetworkTrouble> {
        let Some(token) = &self.question.token else { return Err(see("join-token")) };
        if !self.question.server {
            return match self.agent(client, token)? {
                StatusCode::OK => Ok(()),
                status if refuses(status) && self.is_of_servers(client, token) => silent(
                    "is the token of the servers, and the agents of this cluster have another; set kubernetes.agent_token",
                ),
                status => refused(status, "an agent"),
            };
        }
        let Login::Password(_) = token.login else {
            return silent("is a bootstrap token, which lets agents in and no servers");
        };
        match self.server(client, token)? {
            StatusCode::OK => Ok(()),
            StatusCode::BAD_REQUEST => silent(
                "is good, but the cluster has no etcd that another server could join (K3s with SQLite)",
            ),
            status if refuses(status) && self.agent(client, token).is_ok_and(|s| s == StatusCode::OK) => {
                silent("is the token of agents, and does not let a server in")
            }
            status => refused(status, "a server"),
        }
    }

    fn agent_admission(&self, client: &Client) -> Option<Result<(), NetworkTrouble>> {
        let token = self.question.agent_token.as_ref().filter(|_| self.question.server)?;
        Some(self.agent(client, token).and_then(|status| match status {
            StatusCode::OK => Ok(()),
            status => refused(status, "an agent"),
        }))
    }

    /// The status for an agent with this token that asks for its configuration.
    fn agent(&self, client: &Client, token: &Token) -> Result<StatusCode, NetworkTrouble> {
        Ok(client.head(&self.path("config"), agent(token))?.status)
    }

    /// The status for a server with this token that asks for the keys of the cluster. They are not sent: this
    /// is the head of the answer alone.
    fn server(&self, client: &Client, token: &Token) -> Result<StatusCode, NetworkTrouble> {
        let Login::Password(password) = &token.login else { return Ok(StatusCode::UNAUTHORIZED) };
        Ok(client.head(&self.path("server-bootstrap"), RequestLogin::User("server", password))?.status)
    }

    fn is_of_servers(&self, client: &Client, token: &Token) -> bool {
        self.server(client, token).is_ok_and(|status| !refuses(status) && !status.is_server_error())
    }

    /// The version and the nodes, which the API tells to the proxy of any node: whoever has an agent's token gets that
    /// proxy's certificate.
    fn cluster(
        &self,
        client: &Client,
        authority: &Authority,
    ) -> (Result<Version, NetworkTrouble>, Result<Vec<ClusterPeer>, NetworkTrouble>) {
        let place = self.place(self.question.ports.api);
        let api = self.identity(client).and_then(|identity| {
            Client::new(&place, Trust::Mutual(authority, self.now(), identity), self.until)
        });
        let api = match api {
            Ok(api) => api,
            Err(trouble) => return (Err(trouble.clone()), Err(trouble)),
        };
        let strange = |what: &str| NetworkTrouble::Unable(format!("cannot be read from what {what} gave"));
        let version = said(&api, "/version")
            .and_then(|body| version::of_api(&body).ok_or_else(|| strange("GET /version")));
        let nodes = said(&api, "/api/v1/nodes")
            .and_then(|body| members::members(&body).map_err(|_| strange("GET /api/v1/nodes")));
        (version, nodes)
    }

    fn identity(&self, client: &Client) -> Result<ClientIdentity, NetworkTrouble> {
        let token = self.question.agent_token.as_ref().or(self.question.token.as_ref());
        let token = token.ok_or_else(|| see("join-token"))?;
        let path = self.path("client-kube-proxy.crt");
        // Without a signing request the server sends a key of its own along, in all versions.
        let answer = client.get(&path, agent(token)).map_err(out_of_reach)?;
        if !answer.is_ok() {
            return unable(format!("cannot be asked for: GET {path} gave {}", answer.told()));
        }
        let chain = CertificateDer::pem_slice_iter(&answer.body).collect::<Result<Vec<_>, _>>();
        match (chain, PrivateKeyDer::from_pem_slice(&answer.body)) {
            (Ok(chain), Ok(key)) if !chain.is_empty() => Ok(ClientIdentity { chain, key }),
            _ => unable(format!("cannot be asked for: GET {path} gave no certificate with a key")),
        }
    }
}

/// The answer of the API at `path`. No answer is no reason not to join.
fn said(api: &Client, path: &str) -> Result<Vec<u8>, NetworkTrouble> {
    let answer = api.get(path, RequestLogin::None).map_err(out_of_reach)?;
    match answer.is_ok() {
        true => Ok(answer.body),
        false => {
            unable(format!("cannot be asked for: GET {}{path} gave {}", api.place().name(), answer.told()))
        }
    }
}

fn out_of_reach(problem: RequestProblem) -> NetworkTrouble {
    let (NetworkTrouble::Silent(what) | NetworkTrouble::Unable(what)) = problem.into();
    NetworkTrouble::Unable(format!("cannot be asked for: the server {what}"))
}

fn is_pong(answer: &ServerAnswer) -> bool {
    answer.is_ok() && answer.body.trim_ascii() == b"pong"
}

fn agent(token: &Token) -> RequestLogin<'_> {
    match &token.login {
        Login::Password(password) => RequestLogin::User("node", password),
        Login::Bootstrap(token) => RequestLogin::Bearer(token),
    }
}

fn refuses(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// A server that cannot decide now may accept later, when it has started or etcd has its quorum.
fn refused(status: StatusCode, to_be: &str) -> Result<(), NetworkTrouble> {
    match refuses(status) {
        true => silent(format!("is refused: the server answered {status} to the login of {to_be}")),
        false => {
            unable(format!("could not be tried: the server answered {status}, as it does while it starts"))
        }
    }
}

fn silent<T>(what: impl Into<String>) -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Silent(what.into()))
}

fn unable<T>(why: impl Into<String>) -> Result<T, NetworkTrouble> {
    Err(NetworkTrouble::Unable(why.into()))
}
