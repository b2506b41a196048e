//! The server from start to end: everything that is served is checked before it listens, and configurations are checked
//! again whenever they change.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::cancellation;
use base::failure::{Class, Classify, Failure, causes};
use base::progress::Progress;
use medium::reader::MediumReader;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use trust::TrustStore;

use super::authority::{self, CertificateAuthority};
use super::connections::NetbootConnections;
use super::provenance::ServerNames;
use super::router::Router;
use super::{state_directory, tls};
use crate::boot::dnsmasq;
use crate::content::defaults::defaults;
use crate::content::fetched;
use crate::fleet::entry::FleetEntry;
use crate::fleet::routes::{Fleet, FleetSources};
use crate::journal;
use crate::machines::configurations::{ConfigurationSource, Configurations, stamp};
use crate::machines::registry::MachineRegistry;
use crate::machines::store::location::{StateLocation, StateLock};
use crate::moment::Moment;
use medium::network_boot::files::MediumFiles;
use medium::network_boot::loaders;
use medium::network_boot::system::{BootSystem, is_plain};
use transfer::server::accept::{self, ServerLimits, listen};
use transfer::server::connection_limit::CLOSING;

/// How often configurations are checked for changes.
const LOOK: Duration = Duration::from_secs(2);
/// How long threads that wait for a disk are waited for at the end.
const ENDING: Duration = Duration::from_secs(5);
/// The threads that answer. Each may wait for a disk whose data it sends, so there are more of them than processors.
const WORKERS: usize = 16;
/// The threads that only wait for disks.
const READERS: usize = 64;
/// Files that are open beside connections, and sockets that are being closed.
const FILES: u64 = 64 + CLOSING as u64;

#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub medium: PathBuf,
    /// The keys that its release is judged by.
    pub known: TrustStore,
    pub listen: SocketAddr,
    pub origin: Option<ConfigurationSource>,
    /// The URL at which machines reach the server; if none, they use the host of their request.
    pub base: Option<String>,
    pub state: StateLocation,
    pub loaders: PathBuf,
    pub arguments: Vec<String>,
    pub connections: usize,
    /// The most connections of one client; see [`ServerLimits::of`].
    pub connections_per_address: Option<usize>,
    /// Validity of a token for a configuration, in seconds.
    pub validity: u64,
    pub tls: Option<tls::CertificateChoice>,
    /// Whether everybody may read the metrics, without a token.
    pub metrics_for_all: bool,
    /// The mode of dnsmasq and its only interface.
    pub dnsmasq: Option<(dnsmasq::DhcpMode, Option<String>)>,
}

/// A server that listens and is ready to run.
pub struct NetbootServer {
    router: Arc<Router>,
    origin: Option<ConfigurationSource>,
    defaults: Vec<(String, String)>,
    limits: ServerLimits,
    runtime: tokio::runtime::Runtime,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    dhcp: Option<Dhcp>,
    entry: FleetEntry,
    authority: Option<CertificateAuthority>,
    /// Of the directory, where the store does not lock it.
    _lock: Option<StateLock>,
}

struct Dhcp {
    configuration: PathBuf,
    /// The directory for TFTP, removed when dropped.
    _tftp: TempDir,
}

impl fmt::Debug for NetbootServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetbootServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl NetbootServer {
    /// Opens and checks everything that is served, and listens.
    pub fn start(options: &ServerOptions, progress: &Progress) -> Result<Self> {
        check(options)?;
        let directory = &options.state.directory;
        state_directory::prepare(directory)?;
        let lock = options.state.lock()?;
        let named = MediumReader::open(&options.medium)?;
        let judged = named.judge(&options.known)?;
        let (medium, trust) = match fetched::copy(&named, directory, progress)? {
            None => (options.medium.clone(), judged),
            // A server can have sent other signatures than before.
            Some(copy) => {
                let judged = MediumReader::open(&copy)?.judge(&options.known)?;
                (copy, judged)
            }
        };
        let files = MediumFiles::open(&medium)?;
        let system = BootSystem::of(&files, &options.arguments)?;
        let defaults = defaults(&files)?;
        let configurations = match &options.origin {
            Some(origin) => Configurations::load(origin, &defaults)?,
            None => Configurations::default(),
        };
        let (loaders, missing) = loaders::collect(&options.loaders, &files)?;
        let notices: Vec<_> = missing.into_iter().chain(files.lack()).collect();
        notices.iter().for_each(|notice| journal::warn(progress, notice));
        if trust.needs_warning() {
            journal::warn(progress, &format!("the release is {trust}"));
        }
        let messages = progress.clone();
        let notice = move |text: &str| match text.starts_with("warning: ") {
            true => journal::warn(&messages, text),
            false => journal::write(&messages, text),
        };
        let store = MachineRegistry::open(&options.state, Box::new(notice))?;
        let (tls, authority) = secured(options, progress)?;
        let mut router = Router::new(files, system, store, configurations);
        router.loaders = loaders;
        router.base = options.base.as_ref().map(|base| base.trim_end_matches('/').to_owned());
        router.hosts = ServerNames::of_this_host(router.base.as_deref());
        router.tls = tls.is_some();
        router.validity = options.validity;
        router.metrics_for_all = options.metrics_for_all;
        router.progress = progress.clone();
        tell_warnings(&router);
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(WORKERS).max_blocking_threads(READERS);
        let runtime = threads.enable_all().build();
        let runtime = runtime.class(Class::Unexpected, || "starting the server's threads".into())?;
        let listener = runtime.block_on(listen(options.listen))?;
        let address = listener.local_addr().class(Class::Network, || "listening".into())?;
        let connections = within_open_files(options.connections, progress);
        let token = router.store.fleet_token()?;
        router.fleet = Fleet::new(&token, router.tls).with_notices(notices);
        let scheme = if router.tls { "https" } else { "http" };
        let base = router.base.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
        let entry = FleetEntry::keep(directory, &base, &token)?;
        let limits = ServerLimits::of(connections, options.connections_per_address);
        let dhcp = dhcp(options, address, &router)?;
        Ok(Self {
            tls,
            dhcp,
            router: Arc::new(router),
            origin: options.origin.clone(),
            defaults,
            limits,
            runtime,
            listener,
            address,
            entry,
            authority,
            _lock: lock,
        })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn entry(&self) -> &FleetEntry {
        &self.entry
    }

    /// The authority of the server's own certificate, if it made one.
    #[must_use]
    pub fn authority(&self) -> Option<&CertificateAuthority> {
        self.authority.as_ref()
    }

    #[must_use]
    pub fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// Serves until SIGINT or SIGTERM comes, or dnsmasq ends.
    pub fn run(self) -> Result<()> {
        // Requests under way are served to their end.
        let _signals = cancellation::take_over().for_good();
        let Self { router, origin, defaults, limits, runtime, listener, tls, dhcp, .. } = self;
        let (stop, stopped) = watch::channel(false);
        let ended = runtime.block_on(async {
            let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
            let mut interrupt = signals.0.class(Class::Unexpected, || "waiting for SIGINT".into())?;
            let mut terminate = signals.1.class(Class::Unexpected, || "waiting for SIGTERM".into())?;
            if let Some(origin) = origin {
                tokio::spawn(keep_fresh(Arc::clone(&router), origin, defaults));
            }
            let ahead = Arc::clone(&router);
            tokio::task::spawn_blocking(move || read_ahead(&ahead));
            let mut child = dhcp.as_ref().map(|dhcp| dnsmasq::spawn(&dhcp.configuration)).transpose()?;
            let ended = async {
                match &mut child {
                    Some(child) => dnsmasq::ended(child.wait().await),
                    None => std::future::pending().await,
                }
            };
            let connections = Arc::new(NetbootConnections { router: Arc::clone(&router), tls });
            let serving = accept::serve(listener, connections, limits, stopped);
            let stopping = async {
                let result = tokio::select! {
                    _ = interrupt.recv() => Ok(()),
                    _ = terminate.recv() => Ok(()),
                    error = ended => Err(error),
                };
                journal::write(&router.progress, "stopping");
                let _ = stop.send(true);
                result
            };
            tokio::join!(serving, stopping).1
        });
        // A thread that waits for a disk or a file system of another machine must not keep the process.
        runtime.shutdown_timeout(ENDING);
        ended
    }
}

/// The TLS acceptor, and the authority if it is the server's own.
fn secured(
    options: &ServerOptions,
    progress: &Progress,
) -> Result<(Option<TlsAcceptor>, Option<CertificateAuthority>)> {
    match &options.tls {
        None => Ok((None, None)),
        Some(tls::CertificateChoice::Files(certificate, key)) => {
            Ok((Some(tls::acceptor(certificate, key)?), None))
        }
        Some(tls::CertificateChoice::Own) => {
            let names = authority::names(options.listen.ip(), options.base.as_deref());
            let own = authority::keep(&options.state.directory, &names, jiff::Timestamp::now())?;
            own.notices.iter().for_each(|notice| journal::write(progress, notice));
            Ok((Some(tls::acceptor(&own.certificate, &own.key)?), Some(own.authority)))
        }
    }
}

fn check(options: &ServerOptions) -> Result<()> {
    let base = options.base.iter();
    if let Some(base) = base.clone().find(|base| !is_url(base)) {
        return Err(Failure::new(Class::Invalid, format!("{base} is not a URL for --base-url"))
            .hint("Give the URL at which machines reach this server, such as http://192.0.2.1:8080.")
            .into());
    }
    if options.state.is_shared() && options.tls == Some(tls::CertificateChoice::Own) {
        let what = "--tls self cannot be used with a database that servers share: each server would have its own authority";
        return Err(Failure::new(Class::Invalid, what)
            .hint("Give every server the same certificate: --tls CERTIFICATE,KEY. A load balancer may have it instead.")
            .into());
    }
    if let Some(argument) = options.arguments.iter().find(|argument| !is_plain(argument)) {
        return Err(Failure::new(Class::Invalid, format!("{argument:?} cannot be used in a boot script"))
            .hint("Give kernel arguments one by one, without spaces and quotes: --kernel-argument console=ttyS1.")
            .into());
    }
    Ok(())
}

/// Writes dnsmasq's configuration, if dnsmasq is used.
fn dhcp(options: &ServerOptions, address: SocketAddr, router: &Router) -> Result<Option<Dhcp>> {
    let Some((mode, interface)) = &options.dnsmasq else { return Ok(None) };
    let scheme = if router.tls { "https" } else { "http" };
    let own = || (!address.ip().is_unspecified()).then(|| format!("{scheme}://{address}"));
    let Some(base) = router.base.clone().or_else(own) else {
        let what = "DHCP cannot give machines this server's address, because it listens on every address";
        return Err(Failure::new(Class::Invalid, what)
            .hint("Give --listen the address that machines reach, or --base-url.")
            .into());
    };
    let (directory, tftp) = (options.state.directory.join("dnsmasq"), dnsmasq::tftp_directory()?);
    let settings = dnsmasq::DnsmasqSettings {
        mode: mode.clone(),
        architecture: router.files.release().architecture,
        interface: interface.clone(),
        base,
        tftp: tftp.path().to_owned(),
        leases: directory.join("leases"),
    };
    let configuration = directory.join("dnsmasq.conf");
    dnsmasq::prepare(&settings, &router.loaders, &configuration)?;
    Ok(Some(Dhcp { configuration, _tftp: tftp }))
}

fn is_url(base: &str) -> bool {
    let rest = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && is_plain(rest) && !rest.contains(['?', '@']))
}

/// Reads the whole fleet once, so that the first page of thousands of machines does not wait for it. Whoever asks for the page
/// is told if that fails.
fn read_ahead(router: &Router) {
    let configurations = router.configurations();
    let known = FleetSources { store: &router.store, configurations: &configurations, note: &|_| {} };
    let _ = router.fleet.counts(known, Moment::now());
}

/// Reloads changed configurations. If they have mistakes, the previous ones stay.
async fn keep_fresh(router: Arc<Router>, origin: ConfigurationSource, defaults: Vec<(String, String)>) {
    let mut known = stamp(&origin);
    loop {
        tokio::time::sleep(LOOK).await;
        let (origin, defaults, before) = (origin.clone(), defaults.clone(), known.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let found = stamp(&origin);
            let loaded = (found != before).then(|| reload(&origin, &defaults));
            (found, loaded)
        });
        let Ok((found, loaded)) = looked.await else { continue };
        known = found;
        match loaded {
            None => {}
            Some(Ok(configurations)) => {
                let count = configurations.count();
                router.replace(configurations);
                journal::write(
                    &router.progress,
                    &format!("the configurations have changed; there are {count} now"),
                );
                tell_warnings(&router);
            }
            Some(Err(error)) => {
                let text = causes(&error).join("\n  because: ");
                let message = format!("error: {text}\nThe previous configurations stay in use.");
                journal::write(&router.progress, &message);
            }
        }
    }
}

/// Reads configurations again. A cluster file that has become a FIFO or a device would hold up everything that comes later.
fn reload(origin: &ConfigurationSource, defaults: &[(String, String)]) -> Result<Configurations> {
    if let ConfigurationSource::Cluster(file) = origin
        && !std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
    {
        return Err(Failure::new(Class::Invalid, format!("{} is not a regular file", file.display())).into());
    }
    Configurations::load(origin, defaults)
}

fn tell_warnings(router: &Router) {
    for warning in &router.configurations().warnings {
        journal::warn(&router.progress, warning);
    }
}

/// Raises the limit on open files for `wanted` connections. Returns how many it allows.
fn within_open_files(wanted: usize, progress: &Progress) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let needed = wanted as u64 + FILES;
    let open = if soft < needed && setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).is_ok() {
        needed.min(hard)
    } else {
        soft
    };
    let possible = usize::try_from(open.saturating_sub(FILES)).unwrap_or(usize::MAX).max(1);
    if possible < wanted {
        journal::write(
            progress,
            &format!("limited to {possible} connections, because this process may open {open} files"),
        );
    }
    wanted.min(possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_machines_is_a_plain_url() {
        for (base, good) in [
            ("http://192.0.2.1:8080", true),
            ("https://boot.example.org/nqrust", true),
            ("http://[2001:db8::1]:80", true),
            ("192.0.2.1", false),
            ("http://", false),
            ("http://a b", false),
            ("http://user:password@a", false),
            ("http://a/?x", false),
            ("http://a/${b}", false),
            ("ftp://a", false),
        ] {
            assert_eq!(is_url(base), good, "{base}");
        }
    }
}
