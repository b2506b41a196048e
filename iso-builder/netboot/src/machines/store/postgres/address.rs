//! The address of a PostgreSQL database, as a URL of libpq
//! (<https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS>).
//!
//! A password has no place in it: everybody on the host can read the arguments of a process. It comes from where libpq has it
//! ([`super::password`]). A connection over TCP uses TLS and checks the certificate, unless `sslmode=disable` says otherwise.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::postgres::Config;
use ::postgres::config::{Host, SslMode};
use anyhow::{Result, anyhow};
use base::failure::{Class, Failure};
use base::percent;
use nix::unistd::{Uid, User};

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long what was sent may stay without an acknowledgment (tcp(7), TCP_USER_TIMEOUT).
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The name under which the connections are listed in `pg_stat_activity`.
const APPLICATION: &str = "nqrust serve";
/// libpq's default.
const PORT: u16 = 5432;

/// See the module.
#[derive(Clone)]
#[allow(missing_debug_implementations)]
pub struct PostgresAddress {
    /// Without a password.
    pub(super) config: Config,
    /// The address as messages name it: without options.
    pub shown: String,
    /// Whether connections use TLS.
    pub(super) tls: bool,
    /// A file with the certificate authorities in PEM, in place of those of the host.
    pub(super) authorities: Option<PathBuf>,
    /// A file with passwords, in place of libpq's default.
    pub(super) password_file: Option<PathBuf>,
}

impl PostgresAddress {
    /// Reads a URL. A mistake is [`Class::Invalid`]. The URL is not part of the message, because it may have a password.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.split_once("://").map(|(_, rest)| rest);
        let rest = rest.ok_or_else(|| refused("it does not begin with postgres://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = place.split('/').next().unwrap_or_default();
        if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(password_in_url());
        }
        let (mut kept, mut mode, mut authorities, mut password_file) = (Vec::new(), None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                percent::decode(value).ok_or_else(|| refused("an option in it is not percent-encoded"))?;
            match key {
                "password" => return Err(password_in_url()),
                "sslmode" => mode = Some(value),
                "sslrootcert" => authorities = Some(PathBuf::from(value)),
                "passfile" => password_file = Some(PathBuf::from(value)),
                _ => kept.push(pair),
            }
        }
        let parsed = format!("postgres://{place}?{}", kept.join("&")).parse::<Config>();
        let mut config = parsed.map_err(|error| refused(&base::failure::causes(&error.into()).join(": ")))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("it names no host"));
        }
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let local = local && config.get_hostaddrs().is_empty();
        let tls = match mode.as_deref() {
            None => !local,
            Some("disable") => false,
            Some("verify-full") if !local => true,
            Some("verify-full") => return Err(refused("a connection over a local socket has no TLS")),
            Some(_) => return Err(refused("sslmode is neither verify-full nor disable")),
        };
        if config.get_user().is_none() {
            let user = User::from_uid(Uid::effective()).ok().flatten();
            let user =
                user.ok_or_else(|| refused("it names no user, and the user of this process has no name"))?;
            config.user(&user.name);
        }
        if config.get_dbname().is_none() {
            let user = config.get_user().unwrap_or_default().to_owned();
            config.dbname(&user);
        }
        config.ssl_mode(if tls { SslMode::Require } else { SslMode::Disable });
        config.application_name(APPLICATION).tcp_user_timeout(UNACKNOWLEDGED);
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        let mut address = Self { config, shown: String::new(), tls, authorities, password_file };
        address.shown = format!(
            "postgres://{}@{}:{}/{}",
            address.user(),
            address.host(),
            address.port(),
            address.database()
        );
        Ok(address)
    }

    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// The first host: a name, an address, or the directory of a socket.
    pub(super) fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(directory)) => directory.display().to_string(),
            None => self.config.get_hostaddrs().first().map(IpAddr::to_string).unwrap_or_default(),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or(PORT)
    }
}

fn refused(why: &str) -> anyhow::Error {
    Failure::new(Class::Invalid, "reading the address of the database in --state")
        .because(anyhow!("{why}"))
        .hint(
            "Give postgres://USER@HOST/DATABASE with the options sslmode=verify-full or disable, sslrootcert=FILE and \
             passfile=FILE, or postgres:///DATABASE?host=DIRECTORY for a local socket.",
        )
        .into()
}

fn password_in_url() -> anyhow::Error {
    Failure::new(Class::Invalid, "the address of the database in --state has a password")
        .because(anyhow!("everybody on this host can read the arguments of a process"))
        .hint("Remove it from the address and write it to ~/.pgpass, or to a file that passfile=FILE or PGPASSFILE names.")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    #[test]
    fn a_connection_over_the_network_is_encrypted_unless_the_address_says_otherwise() {
        for (url, shown, tls) in [
            ("postgres://serve@db.example.org/fleet", "postgres://serve@db.example.org:5432/fleet", true),
            (
                "postgresql://serve@192.0.2.7:6432/fleet?sslmode=verify-full",
                "postgres://serve@192.0.2.7:6432/fleet",
                true,
            ),
            ("postgres://serve@db/fleet?sslmode=disable", "postgres://serve@db:5432/fleet", false),
            ("postgres://serve@db", "postgres://serve@db:5432/serve", true),
            (
                "postgres:///fleet?host=/run/postgresql&user=serve",
                "postgres://serve@/run/postgresql:5432/fleet",
                false,
            ),
        ] {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!((address.shown.as_str(), address.tls), (shown, tls), "{url}");
        }
        let address =
            PostgresAddress::parse("postgres://a@b/c?sslrootcert=%2Fa%20b.pem&passfile=/p&connect_timeout=2");
        let address = address.unwrap();
        assert_eq!(address.authorities, Some("/a b.pem".into()));
        assert_eq!(address.password_file, Some("/p".into()));
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(2)));
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_without_repeating_a_password() {
        for (url, told) in [
            ("postgres:fleet", "does not begin with postgres://"),
            ("postgres://serve:SECRET@db/fleet", "has a password"),
            ("postgres://serve@db/fleet?password=SECRET", "has a password"),
            ("postgres://serve@db/fleet?sslmode=require", "neither verify-full nor disable"),
            ("postgres://serve@db/fleet?sslmode=SECRET", "neither verify-full nor disable"),
            ("postgres:///fleet?host=/run&sslmode=verify-full", "over a local socket has no TLS"),
            ("postgres://serve@db/fleet?colour=blue", "unknown option `colour`"),
            ("postgres://serve@db/fleet?sslmode=%zz", "not percent-encoded"),
            ("postgres:///fleet", "names no host"),
        ] {
            let error = PostgresAddress::parse(url).map(|address| address.shown).unwrap_err();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(text.contains(told) && !text.contains("SECRET"), "{url}: {text}");
        }
    }
}
