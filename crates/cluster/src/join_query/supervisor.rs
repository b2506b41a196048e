//! The supervisor of RKE2 and K3s: the same on each server, on different ports (k3s `pkg/server/handlers`).

use reqwest::StatusCode;

use super::authority::{Authority, AuthorityBundle, AuthorityProof, FoundAuthority, other_authority};
use super::conversation::{
    JoinConversation, answer_of, is_pong, out_of_reach, refuses, silent, strange, unable, unexpected,
};
use super::members::{self, ClusterPeer};
use super::query::{ClusterAnswers, see};
use super::server::{JoinServer, RequestLogin, ServerAnswer};
use super::version::{self, Version};
use crate::api::http::ClientIdentity;
use machine::network_trouble::NetworkTrouble;
use model::config::{Login, Token};

pub(super) fn ask(conversation: &JoinConversation<'_>) -> ClusterAnswers {
    let question = conversation.question;
    let talk = SupervisorSession { conversation };
    let mut seen = ClusterAnswers::nothing(question, see("join-server"));
    let anybody = match conversation.server(question.ports.supervisor, None, None) {
        Ok(client) => client,
        Err(trouble) => return ClusterAnswers::nothing(question, trouble),
    };
    let greeting = match talk.greet(&anybody) {
        Ok(greeting) => greeting,
        Err(trouble) => return ClusterAnswers::nothing(question, conversation.with_hint(trouble)),
    };
    seen.server = Ok(());
    seen.clock = greeting.date.map(|date| conversation.offset(date));
    seen.authority = talk.authority(&anybody);
    let found = seen.authority.as_ref().map(|found| found.authority.clone());
    let ready = found.map_err(|_| see("join-authority")).and_then(|authority| {
        Ok((conversation.server(question.ports.supervisor, Some(&authority), None)?, authority))
    });
    match ready {
        Err(trouble) => {
            seen.token = Err(trouble.clone());
            seen.version = Err(trouble.clone());
            seen.namesake = Err(trouble.clone());
            seen.members = Err(trouble);
        }
        Ok((client, authority)) => {
            seen.token = talk.admission(&client);
            seen.agent_token = talk.agent_admission(&client);
            (seen.version, seen.members) = talk.cluster(&client, &authority);
            let is_namesake = |peer: &&ClusterPeer| {
                question.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&peer.name))
            };
            seen.namesake = seen.members.clone().map(|members| members.iter().find(is_namesake).cloned());
        }
    }
    seen
}

struct SupervisorSession<'a> {
    conversation: &'a JoinConversation<'a>,
}

impl SupervisorSession<'_> {
    fn path(&self, file: &str) -> String {
        format!("/v1-{}/{file}", self.conversation.question.distribution.name())
    }

    /// Asks for `/ping`, which both distributions answer without a login.
    fn greet(&self, client: &JoinServer) -> Result<ServerAnswer, NetworkTrouble> {
        let name = self.conversation.question.distribution.name();
        match client.get("/ping", RequestLogin::None) {
            Ok(answer) if is_pong(&answer) => Ok(answer),
            Ok(answer) => unexpected(
                &answer,
                format!(
                    "answers as another service than the supervisor of {name}: GET /ping gave {}",
                    answer.summary()
                ),
            ),
            Err(trouble) => Err(trouble),
        }
    }

    /// The authority that the cluster shows, if it is the one that the token names and the server has a certificate of it. After this
    /// only servers of that authority are trusted.
    fn authority(&self, anybody: &JoinServer) -> Result<FoundAuthority, NetworkTrouble> {
        let question = self.conversation.question;
        let answer = anybody.get("/cacerts", RequestLogin::None)?;
        let bundle = AuthorityBundle::read(&answer.body).filter(|_| answer.is_ok());
        let Some(bundle) = bundle else {
            let what = format!("shows no certificates: GET /cacerts gave {}", answer.summary());
            return unexpected(&answer, what);
        };
        let wanted = question.token.as_ref().and_then(|token| token.authority);
        let candidates: Vec<_> = match wanted {
            None => bundle.authorities().collect(),
            Some(digest) => match bundle.named(digest) {
                Some(authority) => vec![authority],
                None => return Err(other_authority(bundle.authorities(), digest)),
            },
        };
        let authority = self.conversation.proven(question.ports.supervisor, "/ping", candidates)?;
        let proof = if wanted.is_some() { AuthorityProof::Named } else { AuthorityProof::FirstUse };
        Ok(FoundAuthority { authority, proof })
    }

    /// Checks that the token admits the node in its role.
    fn admission(&self, client: &JoinServer) -> Result<(), NetworkTrouble> {
        let Some(token) = &self.conversation.question.token else { return Err(see("join-token")) };
        if !self.conversation.question.server {
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

    fn agent_admission(&self, client: &JoinServer) -> Option<Result<(), NetworkTrouble>> {
        let token =
            self.conversation.question.agent_token.as_ref().filter(|_| self.conversation.question.server)?;
        Some(self.agent(client, token).and_then(|status| match status {
            StatusCode::OK => Ok(()),
            status => refused(status, "an agent"),
        }))
    }

    /// The status of an agent's request for its configuration.
    fn agent(&self, client: &JoinServer, token: &Token) -> Result<StatusCode, NetworkTrouble> {
        Ok(client.head(&self.path("config"), agent(token))?.status)
    }

    /// The status of a server's request for the keys of the cluster. A HEAD request: the keys are not sent.
    fn server(&self, client: &JoinServer, token: &Token) -> Result<StatusCode, NetworkTrouble> {
        let Login::Password(password) = &token.login else { return Ok(StatusCode::UNAUTHORIZED) };
        Ok(client.head(&self.path("server-bootstrap"), RequestLogin::User("server", password))?.status)
    }

    fn is_of_servers(&self, client: &JoinServer, token: &Token) -> bool {
        self.server(client, token).is_ok_and(|status| !refuses(status) && !status.is_server_error())
    }

    /// The version and the nodes, read with the certificate of kube-proxy, which every agent token gets.
    fn cluster(
        &self,
        client: &JoinServer,
        authority: &Authority,
    ) -> (Result<Version, NetworkTrouble>, Result<Vec<ClusterPeer>, NetworkTrouble>) {
        let api = self.identity(client).and_then(|identity| {
            let port = self.conversation.question.ports.api;
            self.conversation.server(port, Some(authority), Some(identity))
        });
        let api = match api {
            Ok(api) => api,
            Err(trouble) => return (Err(trouble.clone()), Err(trouble)),
        };
        let version = answer_of(&api, "/version", RequestLogin::None)
            .and_then(|body| version::of_api(&body).ok_or_else(|| strange("GET /version")));
        let nodes = answer_of(&api, "/api/v1/nodes", RequestLogin::None)
            .and_then(|body| members::members(&body).map_err(|_| strange("GET /api/v1/nodes")));
        (version, nodes)
    }

    fn identity(&self, client: &JoinServer) -> Result<ClientIdentity, NetworkTrouble> {
        let token =
            self.conversation.question.agent_token.as_ref().or(self.conversation.question.token.as_ref());
        let token = token.ok_or_else(|| see("join-token"))?;
        let path = self.path("client-kube-proxy.crt");
        // Without a signing request the server sends a key of its own along, in all versions.
        let answer = client.get(&path, agent(token)).map_err(out_of_reach)?;
        if !answer.is_ok() {
            return unable(format!("cannot be asked for: GET {path} gave {}", answer.summary()));
        }
        match ClientIdentity::read(&answer.body) {
            Some(identity) => Ok(identity),
            None => unable(format!("cannot be asked for: GET {path} gave no certificate with a key")),
        }
    }
}

fn agent(token: &Token) -> RequestLogin<'_> {
    match &token.login {
        Login::Password(password) => RequestLogin::User("node", password),
        Login::Bootstrap(token) => RequestLogin::Bearer(token),
    }
}

/// A server error may pass: the server is starting, or etcd has no quorum yet.
fn refused(status: StatusCode, to_be: &str) -> Result<(), NetworkTrouble> {
    match refuses(status) {
        true => silent(format!("is refused: the server answered {status} to the login of {to_be}")),
        false => {
            unable(format!("could not be tried: the server answered {status}, as it does while it starts"))
        }
    }
}
