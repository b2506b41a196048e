//! `iso-builder serve`.

use std::fmt::Display;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use base::failure::{Class, Failure};
use base::listen;
use base::program::{Context, Format, print};
use serde_json::json;

use crate::signing::arguments::KnownKeyArguments;
use crate::wording::counted;
use medium::network_boot::loaders::IPXE;
use netboot::boot::dnsmasq::DhcpMode;
use netboot::fleet::entry::FleetEntry;
use netboot::journal::JournalEntry;
use netboot::machines::configurations::ConfigurationSource;
use netboot::machines::store::location::StateLocation;
use netboot::server::authority::CertificateAuthority;
use netboot::server::run::{NetbootServer, ServerOptions};
use netboot::server::tls::CertificateChoice;

/// Boot machines from the network, each with its own configuration.
///
/// Serves a medium over HTTP: kernel, initrd, OS image and container images, with boot scripts for iPXE and GRUB. A
/// machine for which there is a configuration boots the installer, takes its configuration once, and installs; any
/// other boots from its disk and is listed. An installed machine boots from its disk too, until its reinstallation is
/// requested.
///
/// Point machines at http://SERVER:PORT/boot.ipxe, with DHCP or by hand (`chain` in iPXE's shell).
///
/// Files in --configs are named after their machine: mac-52-54-00-12-34-56.yaml, serial-ABC.yaml, uuid-….yaml,
/// asset-tag-XYZ.yaml. default.yaml is for machines that were allowed by hand. They are read again when they change.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeCommand {
    /// An ISO, a drive that holds one, a directory that `build` has made, or the URL of an ISO or of a directory; what is on
    /// a server is fetched into --state first.
    medium: PathBuf,
    /// The address and port to listen on. GRUB can reach port 80 only.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080", value_parser = |text: &str| listen::address(text, 8080))]
    listen: SocketAddr,
    /// A directory with a configuration for each machine.
    #[arg(long, alias = "nodes", value_name = "DIR", conflicts_with = "cluster")]
    configs: Option<PathBuf>,
    /// A cluster file; its machines are known by their `macs`.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// The URL at which machines reach this server, if they cannot use the one that their loader used.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The state of the machines: a directory, `sqlite:FILE`, or a PostgreSQL database that several servers share,
    /// `postgres://USER@HOST/DATABASE`. Whoever can read it can open the fleet page; whoever can write it can have machines installed again.
    ///
    /// The password of a database is read from PGPASSWORD, from the file that the option passfile= of the address or
    /// PGPASSFILE names, or from ~/.pgpass. Connections are encrypted and the certificate is checked (sslrootcert=FILE names its
    /// authority), unless the address has sslmode=disable.
    #[arg(long, value_name = "DIR|sqlite:FILE|postgres://...", default_value_os_t = default_state())]
    state: PathBuf,
    /// With a PostgreSQL database, the directory for what only this server needs: a fetched medium, the address of the fleet page,
    /// DHCP leases. By default that of --state without a database.
    #[arg(long, value_name = "DIR")]
    state_directory: Option<PathBuf>,
    /// The directory with undionly.kpxe and ipxe.efi; by default that of Debian's package `ipxe`.
    #[arg(long, value_name = "DIR", default_value = IPXE)]
    loaders: PathBuf,
    /// A kernel argument for the installing system, such as console=ttyS1. Repeatable.
    #[arg(long, alias = "append", alias = "argument", value_name = "WORD", allow_hyphen_values = true)]
    kernel_argument: Vec<String>,
    /// Serve over HTTPS, with a certificate and its private key in PEM, or with `self`, an authority that the server makes
    /// and keeps in --state. Loaders and the installer have to trust the authority already.
    #[arg(long, value_name = "CERTIFICATE,KEY or self", value_parser = certificate)]
    tls: Option<CertificateChoice>,
    /// The connection limit.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    connections: usize,
    /// The connection limit of one client: an IPv4 address, or a /64 of IPv6. By default a quarter of --connections; more is needed if many machines share one address (NAT, a proxy).
    #[arg(long, value_name = "NUMBER")]
    connections_per_address: Option<usize>,
    /// How long a machine may take from its boot script to its configuration.
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    token_validity: u32,
    /// Let everybody who reaches this server read its metrics at /metrics. Otherwise they take a token with the role read.
    #[arg(long)]
    metrics_without_token: bool,
    #[command(flatten)]
    known: KnownKeyArguments,
    #[command(flatten)]
    dhcp: DhcpArguments,
}

/// How machines find the server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "DHCP and TFTP")]
struct DhcpArguments {
    /// Run dnsmasq: `proxy` beside the network's own DHCP server, `full` as the only one. Needs root.
    #[arg(long, value_enum, value_name = "MODE")]
    dnsmasq: Option<DnsmasqMode>,
    /// The only interface that dnsmasq answers on.
    #[arg(long, value_name = "NAME", requires = "dnsmasq")]
    interface: Option<String>,
    /// The first and the last address to lend, with `full`.
    #[arg(long, value_name = "FIRST,LAST", value_parser = pair::<Ipv4Addr>, requires = "dnsmasq")]
    range: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The gateway to tell, with `full`.
    #[arg(long, value_name = "ADDRESS", requires = "range")]
    router: Option<Ipv4Addr>,
    /// Name servers to tell, with `full`.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', requires = "range")]
    dns: Vec<Ipv4Addr>,
    /// An address of the network, with `proxy`; that of --listen unless given.
    #[arg(long, value_name = "ADDRESS", requires = "dnsmasq", conflicts_with = "range")]
    network: Option<Ipv4Addr>,
}

const EXAMPLES: &str = "Examples:
  iso-builder serve dist/ --configs nodes/
  iso-builder serve nqrust-hypervisor-0.1.0-amd64.iso --cluster cluster.yaml --listen 192.0.2.1:80
  iso-builder serve dist/ --configs nodes/ --state postgres://serve@db.example.org/fleet --base-url http://boot.example.org";

/// Two values separated by a comma.
fn pair<T: FromStr<Err: Display>>(text: &str) -> Result<(T, T), String> {
    let (one, other) = text.split_once(',').ok_or("expected two values with a comma between them")?;
    let read = |text: &str| text.trim().parse().map_err(|error: T::Err| format!("{text}: {error}"));
    Ok((read(one)?, read(other)?))
}

/// Where the certificate comes from.
fn certificate(text: &str) -> Result<CertificateChoice, String> {
    match text {
        "self" => Ok(CertificateChoice::Own),
        files => pair(files).map(|(certificate, key)| CertificateChoice::Files(certificate, key)),
    }
}

/// What dnsmasq does.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DnsmasqMode {
    /// Add what to boot to the answers of another server.
    Proxy,
    /// Give addresses too.
    Full,
}

impl DhcpArguments {
    fn mode(self, listen: SocketAddr) -> Result<Option<(DhcpMode, Option<String>)>> {
        let usage = |what: &str, hint: &str| Failure::new(Class::Invalid, what).hint(hint);
        let mode = match (self.dnsmasq, self.range) {
            (None, _) => return Ok(None),
            (Some(DnsmasqMode::Full), Some((first, last))) => {
                DhcpMode::Full { first, last, router: self.router, dns: self.dns }
            }
            (Some(DnsmasqMode::Full), None) => {
                return Err(
                    usage("--dnsmasq full needs a range of addresses", "Give --range FIRST,LAST.").into()
                );
            }
            (Some(DnsmasqMode::Proxy), Some(_)) => {
                let hint = "Leave --range out, or use --dnsmasq full.";
                return Err(usage(
                    "--range has no effect with --dnsmasq proxy, which assigns no addresses",
                    hint,
                )
                .into());
            }
            (Some(DnsmasqMode::Proxy), None) => {
                let own = match listen.ip() {
                    IpAddr::V4(address) if !address.is_unspecified() => Some(address),
                    _ => None,
                };
                let hint = "Give --network, any IPv4 address of the network, or --listen with one.";
                let network = self.network.or(own);
                DhcpMode::Proxy {
                    network: network
                        .ok_or_else(|| usage("--dnsmasq proxy needs the address of a network", hint))?,
                }
            }
        };
        Ok(Some((mode, self.interface)))
    }
}

/// The default directory of the server's state.
pub(super) fn default_state() -> PathBuf {
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".local/state");
    base.unwrap_or_else(home).join("nqrust/serve")
}

impl ServeCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        context.stream_events();
        let server = NetbootServer::start(&self.try_into()?, &context.progress)?;
        let release = server.router().files.release();
        let product = format!("{} {}", release.name, release.version);
        let (address, configurations) = (server.address(), server.router().configurations().count());
        let scheme = if server.router().tls { "https" } else { "http" };
        let FleetEntry { url, file } = server.entry();
        // Output that does not go to a terminal is probably kept in a log.
        let page = match std::io::stdout().is_terminal() {
            true => format!("The fleet: {}", url.expose()),
            false => format!("The address of the fleet page is in {}.", file.display()),
        };
        let authority = server.authority();
        let trust = authority.map_or(String::new(), |authority| {
            let CertificateAuthority { file, fingerprint } = authority;
            format!("\nMachines have to trust {}, whose SHA-256 is {fingerprint}.", file.display())
        });
        let note = match address.ip() {
            ip if ip.is_unspecified() => format!(" (with an address of this host in place of {ip})"),
            _ => String::new(),
        };
        match context.format {
            Format::Json => JournalEntry::listening(
                format!("Serving {product} on {address} with {}", counted(configurations, "configuration")),
                json!({
                    "address": address,
                    "release": product,
                    "configurations": configurations,
                    "fleet": file,
                    "authority": authority.map(|authority| &authority.file),
                }),
            )
            .write(&context.progress),
            Format::Text => print(&format!(
                "Serving {product} on {address} with {}.\n\
                 Machines boot from {scheme}://{address}/boot.ipxe{note}.\n\
                 {page}{trust}",
                counted(configurations, "configuration"),
            ))?,
        }
        server.run()
    }
}

impl TryFrom<ServeCommand> for ServerOptions {
    type Error = anyhow::Error;

    fn try_from(serve: ServeCommand) -> Result<Self> {
        let directory = serve.configs.map(ConfigurationSource::Directory);
        Ok(Self {
            medium: serve.medium,
            known: serve.known.store()?,
            listen: serve.listen,
            origin: directory.or(serve.cluster.map(ConfigurationSource::Cluster)),
            base: serve.base_url,
            state: StateLocation::parse(&serve.state, serve.state_directory.as_deref(), &default_state())?,
            loaders: serve.loaders,
            arguments: serve.kernel_argument,
            connections: serve.connections,
            connections_per_address: serve.connections_per_address,
            validity: u64::from(serve.token_validity) * 60,
            tls: serve.tls,
            metrics_for_all: serve.metrics_without_token,
            dnsmasq: serve.dhcp.mode(serve.listen)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeCommand,
    }

    /// The options that these arguments give.
    fn options(words: &str) -> Result<ServerOptions> {
        let words = ["serve"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words)?.serve.try_into()
    }

    #[test]
    fn dhcp_needs_what_its_mode_needs_and_nothing_else() {
        let full = "--dnsmasq full --range 192.0.2.100,192.0.2.199 --dns 192.0.2.53,192.0.2.54 dist";
        let options = |words: &str| options(words).map(|options| options.dnsmasq.map(|(mode, _)| mode));
        let address = |last| Ipv4Addr::new(192, 0, 2, last);
        let expected = DhcpMode::Full {
            first: address(100),
            last: address(199),
            router: None,
            dns: vec![address(53), address(54)],
        };
        assert_eq!(options(full).unwrap(), Some(expected));
        let proxy = DhcpMode::Proxy { network: address(1) };
        assert_eq!(options("dist --dnsmasq proxy --listen 192.0.2.1:80").unwrap(), Some(proxy.clone()));
        assert_eq!(options("dist --dnsmasq proxy --network 192.0.2.1").unwrap(), Some(proxy));
        assert_eq!(options("dist").unwrap(), None);
        for (words, told) in [
            ("dist --dnsmasq full", "Give --range FIRST,LAST."),
            ("dist --dnsmasq proxy", "Give --network"),
            ("dist --dnsmasq proxy --range 192.0.2.1,192.0.2.2", "Leave --range out"),
            ("dist --dnsmasq full --range 192.0.2.1", "expected two values"),
            ("dist --range 192.0.2.1,192.0.2.2", "--dnsmasq"),
            ("dist --configs a --cluster b", "cannot be used with"),
        ] {
            let text = render(&options(words).unwrap_err());
            assert!(text.contains(told), "{words}: {text}");
        }
    }

    #[test]
    fn a_state_that_servers_share_is_not_used_with_what_only_one_of_them_has() {
        let shared = "dist --state postgres://serve@db.example.org/fleet";
        assert!(options(shared).unwrap().state.is_shared());
        assert!(!options("dist --state sqlite:/srv/state/fleet.db").unwrap().state.is_shared());
        let own = options(&format!("{shared} --tls self")).unwrap();
        let error = NetbootServer::start(&own, &base::progress::Progress::silent()).unwrap_err();
        let text = render(&error);
        assert!(
            text.contains("--tls self cannot be used") && text.contains("--tls CERTIFICATE,KEY"),
            "{text}"
        );
        let text = render(&options("dist --state postgres://serve:SECRET@db.example.org/fleet").unwrap_err());
        assert!(text.contains("has a password") && !text.contains("SECRET"), "{text}");
        let text = render(&options("dist --state /srv/state --state-directory /srv/own").unwrap_err());
        assert!(text.contains("--state-directory has no effect"), "{text}");
    }

    #[test]
    fn former_names_of_options_are_taken_and_not_shown() {
        let now = options("dist --configs nodes --kernel-argument console=ttyS1").unwrap();
        let before = options("dist --nodes nodes --append console=ttyS1").unwrap();
        assert_eq!((&now.origin, &now.arguments), (&before.origin, &before.arguments));
        assert_eq!(now.arguments, ["console=ttyS1"]);
        let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(
            help.contains("--configs") && !help.contains("--nodes") && !help.contains("--append"),
            "{help}"
        );
    }

    #[test]
    fn an_option_of_two_values_leaves_the_medium_alone() {
        let files = CertificateChoice::Files("cert.pem".into(), "key.pem".into());
        for (words, expected) in
            [("--tls cert.pem,key.pem dist", files), ("--tls self dist", CertificateChoice::Own)]
        {
            let options = options(words).unwrap();
            assert_eq!(options.medium, PathBuf::from("dist"));
            assert_eq!(options.tls, Some(expected));
        }
        assert!(render(&options("--tls cert.pem dist").unwrap_err()).contains("a comma between them"));
    }
}
