//! The server's own certificate authority, for operators who have none. It is made once and kept in the state directory, so
//! that clients which trust it go on doing so. Every start of the server issues a certificate for the names that it has then.
//!
//! A client that trusts an authority trusts it for every site, unless it has name constraints. This one is constrained to the
//! names and addresses that the server has when it is made (RFC 5280, section 4.2.1.10, critical): whoever gets hold of its key
//! can pass for this server only. An authority without constraints, which earlier versions made, is replaced.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{read_text, write_atomically};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// World-readable.
const AUTHORITY: &str = "authority.pem";
/// Readable by the server's user alone.
const AUTHORITY_KEY: &str = "authority.key";
const SERVER: &str = "server.pem";
const SERVER_KEY: &str = "server.key";
/// Validity of the authority's certificate, in years. Its successor has to be given to every client by hand, and all
/// that it can vouch for in that time is this server.
const LASTS: i16 = 10;
/// Validity of the server's certificate, in years. Every start of the server issues a new one.
const VALID: i16 = 2;
/// The first year in which the certificates are valid: clocks of new machines may be far behind.
const SINCE: i32 = 2020;

/// The authority's certificate, which clients are to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateAuthority {
    /// The file that has it, in PEM.
    pub file: PathBuf,
    /// SHA-256 of it (DER), by which people compare certificates.
    pub fingerprint: Digest,
}

/// The server's certificate and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    pub authority: CertificateAuthority,
    /// In PEM.
    pub certificate: PathBuf,
    /// In PEM.
    pub key: PathBuf,
    pub notices: Vec<String>,
}

/// Host names and addresses of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The names that machines are told to use.
    pub required: BTreeSet<String>,
    /// The server's other names.
    pub further: BTreeSet<String>,
}

impl CertificateNames {
    fn all(&self) -> BTreeSet<String> {
        self.required.union(&self.further).cloned().collect()
    }
}

/// Reads the authority in `directory`, or makes one where there is none with name constraints, and issues a certificate
/// for those of `names` that it may vouch for. A key that cannot be read, and an authority that may not vouch for a
/// required name, are [`Class::Invalid`].
pub fn keep(directory: &Path, names: &CertificateNames, now: Timestamp) -> Result<OwnCertificate> {
    let file = directory.join(AUTHORITY);
    let mut notices = Vec::from_iter(discard_unconstrained(directory)?);
    let key = authority_key(&directory.join(AUTHORITY_KEY))?;
    let what = || "making a certificate for the server".to_owned();
    let issuing = issuing(&key, names, now);
    if !file.exists() {
        let certificate = issuing.self_signed(&key).class(Class::Unexpected, what)?;
        write(&file, &certificate.pem(), 0o644)?;
    }
    let authority = read(&file)?;
    let issuer = Issuer::new(issuing, key);
    let own = KeyPair::generate().class(Class::Unexpected, what)?;
    let (permitted, refused) = permitted(&authority, &issuer, &own, names, now)?;
    if let Some(name) = refused.intersection(&names.required).next() {
        return Err(not_for(name, directory));
    }
    if !refused.is_empty() {
        let refused = Vec::from_iter(refused).join(", ");
        notices.push(format!(
            "the certificate is not for {refused}: {} was made when the server did not have these names",
            file.display()
        ));
    }
    let server = server(&permitted, now).and_then(|server| server.signed_by(&own, &issuer));
    let server = server.class(Class::Unexpected, what)?;
    let (certificate, key) = (directory.join(SERVER), directory.join(SERVER_KEY));
    write(&key, &own.serialize_pem(), 0o600)?;
    write(&certificate, &server.pem(), 0o644)?;
    let authority = CertificateAuthority { file, fingerprint: Digest::of(&authority) };
    Ok(OwnCertificate { authority, certificate, key, notices })
}

fn not_for(name: &str, directory: &Path) -> anyhow::Error {
    let what = format!("the server's authority in {} may not vouch for {name}", directory.display());
    let hint = format!(
        "Use a name or an address that the server had when {AUTHORITY} was made, or remove {AUTHORITY} and \
         {AUTHORITY_KEY} and give clients the new authority."
    );
    let why = "the authority is constrained to the names that the server had when it was made";
    Failure::new(Class::Invalid, what).because(anyhow::anyhow!(why)).hint(hint).into()
}

fn read(file: &Path) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(file)
        .class(Class::Invalid, || format!("reading the server's authority {}", file.display()))
}

/// A root store with `authority` alone.
fn trusting(authority: &CertificateDer<'static>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    store.add(authority.clone()).class(Class::Invalid, || "reading the server's authority".into())?;
    Ok(store)
}

/// Removes an authority without name constraints, which could vouch for every site, and its key. Returns a message for
/// the operator.
fn discard_unconstrained(directory: &Path) -> Result<Option<String>> {
    let file = directory.join(AUTHORITY);
    if !file.exists() {
        return Ok(None);
    }
    let store = trusting(&read(&file)?)?;
    if store.roots.iter().all(|root| root.name_constraints.is_some()) {
        return Ok(None);
    }
    // The certificate is removed last: if this is interrupted, it is repeated as long as the certificate is there.
    for path in [directory.join(AUTHORITY_KEY), file.clone()] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.class(Class::DiskIo, || format!("removing {}", path.display()))?,
        }
    }
    Ok(Some(format!(
        "{} was of an older version and could vouch for every site; its key was removed and a new authority made. \
         Remove the old one from every client that trusts it, and give it the new one",
        file.display()
    )))
}

/// Splits `names` into those for which a client that trusts `authority` accepts a certificate of `issuer`, and the
/// others. The client's own verifier decides, so that this cannot differ from what clients do.
fn permitted(
    authority: &CertificateDer<'static>,
    issuer: &Issuer<'_, KeyPair>,
    own: &KeyPair,
    names: &CertificateNames,
    now: Timestamp,
) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let what = || "checking the names of the server's authority".to_owned();
    let (trusting, provider) = (Arc::new(trusting(authority)?), Arc::new(default_provider()));
    let verifier = WebPkiServerVerifier::builder_with_provider(trusting, provider).build();
    let verifier = verifier.class(Class::Unexpected, what)?;
    let seconds = u64::try_from(now.as_second()).class(Class::Unexpected, what)?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let is_permitted = |name: &String| {
        let certificate = server(&BTreeSet::from([name.clone()]), now).ok()?.signed_by(own, issuer).ok()?;
        let name = ServerName::try_from(name.clone()).ok()?;
        verifier.verify_server_cert(certificate.der(), &[], &name, &[], time).ok()
    };
    Ok(names.all().into_iter().partition(|name| is_permitted(name).is_some()))
}

/// Reads the authority's private key, or makes one where there is none.
fn authority_key(path: &Path) -> Result<KeyPair> {
    let what = || format!("reading the private key of the server's authority {}", path.display());
    if !fs::exists(path).class(Class::DiskIo, what)? {
        let key = KeyPair::generate().class(Class::Unexpected, || "making a private key".into())?;
        write(path, &key.serialize_pem(), 0o600)?;
        return Ok(key);
    }
    let text = read_text(path).class(Class::DiskIo, what)?;
    // The original error could quote the key.
    KeyPair::from_pem(&text).map_err(|_| {
        Failure::new(Class::Invalid, what())
            .because(anyhow::anyhow!("it is not a private key in PEM"))
            .hint(format!("Remove it and {AUTHORITY} beside it, then give clients the new authority."))
            .into()
    })
}

/// The content of the authority's certificate. Its common name is derived from the key, so that two servers have two
/// names.
fn issuing(key: &KeyPair, names: &CertificateNames, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mark = Digest::of(key.public_key_raw()).to_string();
    params.distinguished_name = named(&format!("iso-builder serve {}", &mark[..8]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // The constraints do not cover mail addresses and signatures of programs.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let permitted_subtrees = names.all().iter().map(|name| subtree(name)).collect();
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    within(&mut params, now, LASTS);
    params
}

/// A constraint to this name or address. A name includes its subdomains, which RFC 5280 cannot exclude. If a
/// certificate had no constraint of one kind, all names of that kind would be permitted; but a server always has a host
/// name and addresses, those of the loopback interface.
fn subtree(name: &str) -> GeneralSubtree {
    match name.parse() {
        Ok(IpAddr::V4(address)) => GeneralSubtree::IpAddress(CidrSubnet::V4(address.octets(), [0xff; 4])),
        Ok(IpAddr::V6(address)) => GeneralSubtree::IpAddress(CidrSubnet::V6(address.octets(), [0xff; 16])),
        Err(_) => GeneralSubtree::DnsName(name.to_owned()),
    }
}

fn server(names: &BTreeSet<String>, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params.distinguished_name = named("iso-builder serve");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    within(&mut params, now, VALID);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn within(params: &mut CertificateParams, now: Timestamp, years: i16) {
    let today = now.to_zoned(TimeZone::UTC).date();
    params.not_before = date_time_ymd(SINCE, 1, 1);
    // Every month has a day 28.
    params.not_after = date_time_ymd(i32::from(today.year() + years), today.month().unsigned_abs(), 28);
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    write_atomically(path, text.as_bytes(), mode)
        .class(Class::DiskIo, || format!("writing {}", path.display()))
}

/// The names of this server: required are the address that it listens on and the host of the URL `base`; further are
/// the names and addresses of this machine.
#[must_use]
pub fn names(listen: IpAddr, base: Option<&str>) -> CertificateNames {
    let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut addresses = BTreeSet::from(own);
    let mut required: BTreeSet<String> = base.and_then(host).map(str::to_owned).into_iter().collect();
    if listen.is_unspecified() {
        addresses.extend(interfaces());
    } else {
        required.insert(listen.to_string());
    }
    let mut further: BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
    further.insert("localhost".into());
    let hostname = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    further.extend(hostname.filter(|name| is_name(name)));
    CertificateNames { required, further }
}

/// This machine's addresses, without link-local ones of IPv6.
pub(super) fn interfaces() -> Vec<IpAddr> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let address = interface.address?;
        let six = || address.as_sockaddr_in6().map(|address| address.ip());
        // Link-local addresses need a zone, which names do not have.
        let six = || six().filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6);
        address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip())).or_else(six)
    };
    nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(address).collect()
}

/// The host of a URL, without its port and the brackets of an address.
pub(super) fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (host.parse::<IpAddr>().is_ok() || is_name(host)).then_some(host)
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain)
}

#[cfg(test)]
mod tests;
