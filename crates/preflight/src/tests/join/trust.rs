//! Which authority is believed, and that nobody else gets to see the token.

use super::*;
use cluster::join_query::{JoinQuery, ask, pin};
use model::config::{InstallConfig, Token};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use testing::supervisor::Fault;

/// What nobody may be asked before it is known who it is.
fn assert_nobody_saw_the_token(server: &Supervisor) {
    let asked = server.asked();
    assert!(asked.iter().all(|line| ["GET /ping", "GET /cacerts"].contains(&line.as_str())), "{asked:?}");
}

#[test]
fn an_authority_that_the_token_does_not_name_is_refused() {
    let (keys, others) = (Keys::make(), Keys::make());
    let server = keys.start(good());
    let token = others.token(&format!("server:{SERVER}"));
    let talk = Talk::begin(joining(Role::Worker, server.port(), &token));
    talk.expect("join-authority", "found", "has another authority than the token names");
    talk.expect("join-authority", "found", &keys.digest().to_string());
    talk.expect("join-authority", "found", &others.digest().to_string());
    assert!(talk.next("join-authority").contains("/var/lib/rancher/rke2/server/node-token"));
    for check in ["join-token", "join-hostname", "join-version"] {
        talk.expect(check, "could not run", "see join-authority");
    }
    assert_nobody_saw_the_token(&server);
}

#[test]
fn a_server_that_shows_an_authority_and_has_no_certificate_of_it_is_refused() {
    let keys = Keys::make();
    let server = keys.start(SupervisorBehavior { fault: Some(Fault::Liar), ..good() });
    let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.expect("join-authority", "found", "a certificate that is not of it");
    assert_nobody_saw_the_token(&server);
}

#[test]
fn a_certificate_that_is_added_to_what_a_server_shows_gives_it_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = Authorities::make(directory.path()).unwrap();
    let der = CertificateDer::from_pem_slice(&authorities.other().unwrap()).unwrap();
    let both = [authorities.bundle().unwrap(), authorities.other().unwrap()].concat();
    std::fs::write(directory.path().join("server-ca.pem"), both).unwrap();
    let server = Supervisor::start(&authorities, good()).unwrap();
    let token = format!("K10{}::server:{SERVER}", Digest::of(&der));
    let talk = Talk::begin(joining(Role::Worker, server.port(), &token));
    talk.expect("join-authority", "found", "a certificate that is not of it");
    assert_nobody_saw_the_token(&server);
}

#[test]
fn the_root_above_an_authority_is_what_its_tokens_name() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = Authorities::make_chain(directory.path()).unwrap();
    let root = CertificateDer::from_pem_slice(&authorities.read("root.pem").unwrap()).unwrap();
    let server = Supervisor::start(&authorities, good()).unwrap();
    let token = format!("K10{}::server:{SERVER}", Digest::of(&root));
    let talk = Talk::begin(joining(Role::Management, server.port(), &token));
    talk.expect("join-authority", "passed", &Digest::of(&root).to_string());
    talk.expect("join-token", "passed", "");
    talk.expect("join-hostname", "passed", "");
    let talk = Talk::begin(joining(Role::Management, server.port(), SERVER));
    talk.expect("join-authority", "mild", &Digest::of(&root).to_string());
}

#[test]
fn a_short_token_trusts_the_first_answer_tells_it_and_lets_the_node_trust_no_other() {
    let keys = Keys::make();
    let server = keys.start(good());
    let talk = Talk::begin(joining(Role::Management, server.port(), SERVER));
    talk.expect("join-authority", "mild", &keys.digest().to_string());
    assert!(talk.next("join-authority").contains("/var/lib/rancher/rke2/server/node-token"));
    talk.expect("join-token", "passed", "");
    let report = crate::run(&talk.facts, &talk.node, &SystemNetwork::default());
    let authority = report.authority.unwrap();
    let skip = vec!["join-authority".to_owned()];
    let untold =
        crate::run(&talk.facts, &PlannedNode { skip, ..talk.node.clone() }, &SystemNetwork::default());
    assert_eq!(untold.authority, None);
    let full = keys.token(&format!("server:{SERVER}"));
    let mut config = InstallConfig { token: Some(Secret::new(SERVER)), ..InstallConfig::default() };
    config.install.role = Role::Management;
    config.kubernetes.agent_token = Some(Secret::new(AGENT));
    pin(&mut config, &authority);
    assert_eq!(config.token, Some(Secret::new(&*full)));
    assert_eq!(config.kubernetes.agent_token, Some(Secret::new(AGENT)));
    let once = config.clone();
    pin(&mut config, &authority);
    assert_eq!(config, once);
    // An agent shows its own token where there is one.
    config.install.role = Role::Worker;
    pin(&mut config, &authority);
    assert_eq!(config.kubernetes.agent_token, Some(Secret::new(keys.token(&format!("server:{AGENT}")))));
}

#[test]
fn what_shows_no_certificates_is_refused() {
    let statuses = [("/cacerts".to_owned(), 500)].into();
    let keys = Keys::make();
    let server = keys.start(SupervisorBehavior { statuses, ..good() });
    let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.expect("join-authority", "found", "GET /cacerts gave 500 Internal Server Error");
}

#[test]
fn a_clock_before_the_certificates_is_told_as_that() {
    let keys = Keys::make();
    let server = keys.start(good());
    let node = joining(Role::Worker, server.port(), SERVER);
    for (now, part) in [
        (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000), "not yet valid"),
        (SystemTime::now() + Duration::from_secs(40 * 86_400), "no longer valid"),
    ] {
        let talk = Talk { now, ..Talk::begin(node.clone()) };
        talk.expect("join-authority", "found", part);
        talk.expect("join-clock", "found", "days");
    }
}

#[test]
fn a_server_whose_certificate_lacks_the_name_is_told_with_the_names_that_it_has() {
    let keys = Keys::make();
    let server = keys.start(good());
    let question = |host: &str| JoinQuery {
        host: host.into(),
        addresses: vec![[127, 0, 0, 1].into()],
        ports: Ports { supervisor: server.port(), other: closed(), api: server.port() },
        distribution: Distribution::Rke2,
        token: Token::read(&Secret::new(SERVER)).ok(),
        agent_token: None,
        server: false,
        name: None,
        now: SystemTime::now(),
    };
    let until = Instant::now() + Duration::from_secs(60);
    let seen = ask(&question("cluster.example.org"), until);
    assert!(seen.authority.is_ok() && seen.members.is_ok(), "{seen:?}");
    let Err(NetworkTrouble::Silent(what)) = ask(&question("other.example.org"), until).authority else {
        panic!()
    };
    assert!(what.contains("has no certificate for other.example.org, only for"), "{what}");
    assert!(what.contains("cluster.example.org"), "{what}");
}
