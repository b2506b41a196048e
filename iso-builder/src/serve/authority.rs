//! An authority of the server's own, for who has none: made once and kept in the directory of the state, so that what
//! trusts it goes on doing so. With it the server gives itself a certificate whenever it starts, for the names that it
//! has then.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use installer::digest::Digest;
use installer::failure::{Class, Classify, Failure};
use installer::files::{read_text, write_atomically};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// The authority's certificate, for everybody.
const AUTHORITY: &str = "authority.pem";
/// Its private key, for nobody.
const AUTHORITY_KEY: &str = "authority.key";
const SERVER: &str = "server.pem";
const SERVER_KEY: &str = "server.key";
/// How long the authority is one, in years.
const LASTS: i16 = 10;
/// How long a certificate that it gives is valid, in years. The next start makes another.
const VALID: i16 = 2;
/// The first year in which all this is valid: clocks of new machines may be far behind.
const SINCE: i32 = 2020;

/// The authority's certificate, which clients are to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The file that has it, in PEM.
    pub file: PathBuf,
    /// SHA-256 of it (DER), by which people compare certificates.
    pub fingerprint: Digest,
}

/// What the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its authority.
    pub authority: Authority,
    /// The server's certificate, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// The authority in `directory`, made where there is none, and a certificate of it for `names`: host names and addresses.
/// A key that cannot be read as one is [`Class::Invalid`].
pub fn keep(directory: &Path, names: &BTreeSet<String>, now: Timestamp) -> Result<Own> {
    let file = directory.join(AUTHORITY);
    let key = authority_key(&directory.join(AUTHORITY_KEY))?;
    let what = || "making a certificate for the server".to_owned();
    let issuing = issuing(&key, now);
    if !file.exists() {
        let certificate = issuing.self_signed(&key).class(Class::Unexpected, what)?;
        write(&file, &certificate.pem(), 0o644)?;
    }
    let issuer = Issuer::new(issuing, key);
    let own = KeyPair::generate().class(Class::Unexpected, what)?;
    let server = server(names, now).and_then(|server| server.signed_by(&own, &issuer));
    let server = server.class(Class::Unexpected, what)?;
    let (certificate, key) = (directory.join(SERVER), directory.join(SERVER_KEY));
    write(&key, &own.serialize_pem(), 0o600)?;
    write(&certificate, &server.pem(), 0o644)?;
    let der = CertificateDer::from_pem_file(&file);
    let der = der.class(Class::Invalid, || format!("reading the server's authority {}", file.display()))?;
    Ok(Own { authority: Authority { file, fingerprint: Digest::of(&der) }, certificate, key })
}

/// The private key of the authority, made where there is none.
fn authority_key(path: &Path) -> Result<KeyPair> {
    let what = || format!("reading the private key of the server's authority {}", path.display());
    if !fs::exists(path).class(Class::DiskIo, what)? {
        let key = KeyPair::generate().class(Class::Unexpected, || "making a private key".into())?;
        write(path, &key.serialize_pem(), 0o600)?;
        return Ok(key);
    }
    let text = read_text(path).class(Class::DiskIo, what)?;
    // What is wrong with it could quote it.
    KeyPair::from_pem(&text).map_err(|_| {
        Failure::new(Class::Invalid, what())
            .because(anyhow::anyhow!("it is no private key in PEM"))
            .hint(format!("Remove it and {AUTHORITY} beside it; what trusts the old authority has to be told the new one."))
            .into()
    })
}

/// What the authority says of itself. Two servers have two names.
fn issuing(key: &KeyPair, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mark = Digest::of(key.public_key_raw()).to_string();
    params.distinguished_name = named(&format!("iso-builder serve {}", &mark[..8]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    within(&mut params, now, LASTS);
    params
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
    // A day that every month has.
    params.not_after = date_time_ymd(i32::from(today.year() + years), today.month().unsigned_abs(), 28);
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    write_atomically(path, text.as_bytes(), mode)
        .class(Class::DiskIo, || format!("keeping {}", path.display()))
}

/// The names of this server: those of this machine, or the address that it listens on, and the host of the URL `base`.
#[must_use]
pub fn names(listen: IpAddr, base: Option<&str>) -> BTreeSet<String> {
    let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut addresses = BTreeSet::from(own);
    if listen.is_unspecified() {
        addresses.extend(interfaces());
    } else {
        addresses.insert(listen);
    }
    let mut names: BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
    names.insert("localhost".into());
    let hostname = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    names.extend(hostname.filter(|name| is_name(name)));
    names.extend(base.and_then(host).map(str::to_owned));
    names
}

/// The addresses of this machine that others can use.
fn interfaces() -> Vec<IpAddr> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let address = interface.address?;
        let six = || address.as_sockaddr_in6().map(|address| address.ip());
        // Addresses of one link mean nothing without the link.
        let six = || six().filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6);
        address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip())).or_else(six)
    };
    nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(address).collect()
}

/// The host of a URL, without its port and the brackets of an address.
fn host(url: &str) -> Option<&str> {
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
mod tests {
    use super::*;
    use installer::failure::{class_of, render};
    use std::os::unix::fs::PermissionsExt;

    fn now() -> Timestamp {
        Timestamp::from_second(1_709_164_800).unwrap()
    }

    fn of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_authority_stays_and_the_certificate_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let first = keep(directory.path(), &of(&["127.0.0.1"]), now()).unwrap();
        let read =
            |own: &Own| [&own.authority.file, &own.certificate].map(|path| fs::read_to_string(path).unwrap());
        let before = read(&first);
        let second = keep(directory.path(), &of(&["127.0.0.1", "a.example.org"]), now()).unwrap();
        let after = read(&second);
        assert_eq!(first, second);
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1], after[1]);
        let mode =
            |name: &str| fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!([AUTHORITY_KEY, SERVER_KEY].map(mode), [0o600; 2]);
        // openssl finds nothing to complain of, and prints the same fingerprint.
        let openssl = |arguments: &[&str]| {
            let output = std::process::Command::new("openssl")
                .args(arguments)
                .current_dir(directory.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let strictly = ["verify", "-x509_strict", "-purpose", "sslserver", "-attime", "1750000000"];
        let named = ["-verify_hostname", "a.example.org", "-CAfile", AUTHORITY, SERVER];
        openssl(&[&strictly[..], &named[..]].concat());
        let shown = openssl(&["x509", "-in", AUTHORITY, "-noout", "-fingerprint", "-sha256"]);
        let shown = shown.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase();
        assert_eq!(shown, second.authority.fingerprint.to_string());
    }

    #[test]
    fn a_key_that_is_none_is_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(AUTHORITY_KEY), "-----BEGIN A SECRET-----").unwrap();
        let error = keep(directory.path(), &of(&["a"]), now()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(text.contains("authority.key") && text.contains("Remove it"), "{text}");
        assert!(!text.contains("A SECRET"), "{text}");
    }

    #[test]
    fn a_server_is_known_by_its_addresses_and_the_host_of_its_url() {
        let names = |listen: &str, base| names(listen.parse().unwrap(), base);
        let one = names("192.0.2.1", Some("https://boot.example.org:8443/nqrust"));
        for name in ["192.0.2.1", "boot.example.org", "localhost", "127.0.0.1", "::1"] {
            assert!(one.contains(name), "{name} in {one:?}");
        }
        let every = names("0.0.0.0", Some("https://[2001:db8::1]:8443"));
        assert!(every.contains("2001:db8::1") && !every.contains("0.0.0.0"), "{every:?}");
        for (url, expected) in [
            ("https://a", Some("a")),
            ("https://192.0.2.1:80/x", Some("192.0.2.1")),
            ("https://:80", None),
            ("https://[2001:db8::1", Some("2001:db8::1")),
            ("https://a_b", None),
            ("a", None),
        ] {
            assert_eq!(host(url), expected, "{url}");
        }
    }
}
