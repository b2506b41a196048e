//! Which requests may change something by GET. Loaders can send nothing but GET, and so can every web page that is open in
//! a browser inside the network: an image with this server's URL is enough.
//!
//! Three things tell a loader from a browser. Browsers say where a request comes from (`Sec-Fetch-Site` of Fetch Metadata;
//! `Origin`, RFC 6454; `Referer`, RFC 9110, section 10.1.3), loaders and installers do not. And with "DNS rebinding", where the
//! name of another site is made to point to this server and the browser sees no other site, `Host` has that name; so it has to
//! be a name of this server.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::authority;

/// The most that is read of `/etc/hosts` and `/etc/resolv.conf`, in bytes.
const LIMIT: u64 = 1 << 20;

/// The header fields that say where a request comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestProvenance<'a> {
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a str>,
    pub origin: bool,
    pub referer: bool,
}

impl RequestProvenance<'_> {
    /// True if a web page caused the request. For a URL that was typed into a browser, `Sec-Fetch-Site` is `none`.
    #[must_use]
    pub fn is_web_page(&self) -> bool {
        self.fetch_site.is_some_and(|site| site.trim() != "none") || self.origin || self.referer
    }
}

#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// In lower case.
    names: BTreeSet<String>,
}

impl ServerNames {
    /// The names in this host's own files, and the host of the URL `base`.
    #[must_use]
    pub fn of_this_host(base: Option<&str>) -> Self {
        let read = |path: &str| {
            let bytes = base::files::read_at_most(path.as_ref(), LIMIT);
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let names = names(&name.unwrap_or_default(), &read("/etc/hosts"), &read("/etc/resolv.conf"));
        Self { names: names.into_iter().chain(base.and_then(authority::host).map(folded)).collect() }
    }

    /// True if the field `Host` has one of the server's names, or an address that the host has now.
    #[must_use]
    pub fn has(&self, host: &str) -> bool {
        let host = without_port(host);
        let name = folded(host);
        self.names.contains(&name)
            || host.parse::<IpAddr>().is_ok_and(|address| {
                address.is_loopback() || authority::interfaces().contains(&address.to_canonical())
            })
    }
}

/// The names of a host whose host name is `name`, with the domains of resolv.conf(5) and the aliases of hosts(5).
fn names(name: &str, hosts: &str, resolv: &str) -> BTreeSet<String> {
    let name = folded(name);
    let mut names = BTreeSet::from(["localhost".to_owned()]);
    if name.is_empty() {
        return names;
    }
    let short = name.split('.').next().unwrap_or(&name).to_owned();
    for line in resolv.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("search" | "domain")) {
            names.extend(words.map(|domain| format!("{short}.{}", folded(domain))));
        }
    }
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let same: BTreeSet<String> = line.split_whitespace().skip(1).map(folded).collect();
        if same.contains(&name) {
            names.extend(same);
        }
    }
    names.extend([name, short]);
    names
}

fn folded(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// The host of a field `Host`, without its port and the brackets of an address.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or(six),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_a_web_page_has_caused_is_known() {
        let none = RequestProvenance::default();
        for (provenance, expected) in [
            (none, false),
            (RequestProvenance { fetch_site: Some("none"), ..none }, false),
            (RequestProvenance { fetch_site: Some("cross-site"), ..none }, true),
            (RequestProvenance { fetch_site: Some("same-site"), ..none }, true),
            (RequestProvenance { fetch_site: Some("same-origin"), ..none }, true),
            (RequestProvenance { fetch_site: Some(""), ..none }, true),
            (RequestProvenance { origin: true, ..none }, true),
            (RequestProvenance { referer: true, ..none }, true),
        ] {
            assert_eq!(provenance.is_web_page(), expected, "{provenance:?}");
        }
    }

    #[test]
    fn a_server_is_named_by_what_its_host_and_its_operator_call_it() {
        let hosts = ServerNames::of_this_host(Some("https://Boot.example.org:8443/nqrust"));
        for (host, ours) in [
            ("localhost", true),
            ("LOCALHOST.:8080", true),
            ("127.0.0.1:8080", true),
            ("127.8.9.1", true),
            ("[::1]:8080", true),
            ("boot.example.org", true),
            ("boot.example.org:1", true),
            ("evil.example", false),
            ("boot.example.org.evil.example", false),
            ("203.0.113.77:8080", false),
            ("[2001:db8::77]", false),
            ("", false),
            ("0", false),
        ] {
            assert_eq!(hosts.has(host), ours, "{host}");
        }
        let own = nix::unistd::gethostname().unwrap().into_string().unwrap();
        assert!(hosts.has(&own), "{own}");
        for address in authority::interfaces().into_iter().filter(IpAddr::is_ipv4) {
            assert!(hosts.has(&format!("{address}:80")), "{address}");
        }
    }

    #[test]
    fn the_full_name_of_a_host_is_in_its_own_files() {
        let hosts =
            "127.0.0.1 localhost\n127.0.1.1 boot.dc1.example boot # boot.evil.example\n192.0.2.9 other\n";
        let found = names("Boot", hosts, "nameserver 192.0.2.1\nsearch example.org. lan\n");
        let expected = ["boot", "boot.dc1.example", "boot.example.org", "boot.lan", "localhost"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(names("", "", "").len(), 1);
    }
}
