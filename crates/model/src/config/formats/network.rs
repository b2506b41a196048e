//! Names and addresses of the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::cidr::{Cidr, ParseCidrError};
use crate::machine::mac;
use document::format::{FormatFault, FormatResult, ensure};

/// A label of a host name, RFC 1123 section 2.1.
pub(super) fn is_label(label: &str) -> bool {
    let body = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    (1..=63).contains(&label.len()) && body && !label.starts_with('-') && !label.ends_with('-')
}

/// All addresses, and a few that no network has (RFC 5737).
pub const CIDR_EXTREMES: [&str; 2] = ["0.0.0.0/0", "192.0.2.0/32"];

/// The directives of chrony and ntpd before the name of a server.
pub const TIME_DIRECTIVES: [&str; 3] = ["server", "pool", "peer"];

/// A host name: RFC 1123 labels in lower case, as Kubernetes wants node names; at most 64 characters, the
/// kernel's limit (`HOST_NAME_MAX`).
pub fn hostname(text: &str) -> FormatResult {
    if text.len() <= 64 && text.split('.').all(is_label) {
        return Ok(());
    }
    let tidy: String = text.to_ascii_lowercase().replace(['_', ' '], "-");
    let tidy = tidy.trim_end_matches('.').to_owned();
    let suggestion = (tidy.len() <= 64 && tidy.split('.').all(is_label)).then_some(tidy);
    let message = "is not a host name: labels of lower-case letters, digits and inner '-', joined by '.', \
                   at most 64 characters in all";
    Err(FormatFault::new(message).suggest(suggestion))
}

pub fn ipv4(text: &str) -> FormatResult {
    if text.parse::<Ipv4Addr>().is_ok() {
        return Ok(());
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(FormatFault::new("is an IPv6 address; nodes have IPv4 addresses, such as 192.0.2.10"));
    }
    let host = text.split_once("://").map_or(text, |(_, host)| host).trim();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    if let Some(address) = without_zeros(host) {
        let message = "has a number with a leading 0, which some programs read as octal";
        return Err(FormatFault::new(message).suggest(Some(address.to_string())));
    }
    let address = host.parse::<Ipv4Addr>().ok();
    let message = "is not an IPv4 address such as 192.0.2.10";
    Err(FormatFault::new(message).suggest(address.map(|address| address.to_string())))
}

/// The address of `192.0.02.010`, read as people mean it; none where no number has a 0 before it.
fn without_zeros(text: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<&str> = text.split('.').collect();
    let is_padded = |number: &&str| number.len() > 1 && number.starts_with('0');
    let is_number = |number: &&str| number.len() <= 4 && number.bytes().all(|b| b.is_ascii_digit());
    if !numbers.iter().any(is_padded) || !numbers.iter().all(is_number) {
        return None;
    }
    let plain = numbers.iter().map(|number| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0",
        number => number,
    });
    plain.collect::<Vec<_>>().join(".").parse().ok()
}

/// Addresses that a bond asks by ARP, joined by commas; at most 16 (the kernel's `BOND_MAX_ARP_TARGETS`).
pub fn arp_targets(text: &str) -> FormatResult {
    let addresses: Vec<_> = text.split(',').collect();
    let all = addresses.iter().all(|address| address.trim_matches(' ').parse::<Ipv4Addr>().is_ok());
    ensure(
        all && addresses.len() <= 16,
        "is not a list of up to 16 IPv4 addresses such as 192.0.2.1,192.0.2.2",
    )
}

/// A hardware address: six pairs of hexadecimal digits joined by `:`, and one card's, not a group's.
pub fn mac(text: &str) -> FormatResult {
    let fault = |suggestion| {
        FormatFault::new("is not a hardware address such as 52:54:00:12:34:56").suggest(suggestion)
    };
    let Some(bytes) = mac::bytes(text, ':') else {
        return Err(fault(other_spelling(text)));
    };
    ensure(mac::is_single(bytes), mac::ParseMacError::Group.to_string())
}

/// The address of `52-54-00-12-34-56`, `5254.0012.3456` and `525400123456`, as switches and other systems print it.
fn other_spelling(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !"-.:".contains(*c)).collect();
    if digits.len() != 12 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let pairs: Vec<_> = (0..12).step_by(2).map(|at| &digits[at..at + 2]).collect();
    Some(pairs.join(":")).filter(|text| mac(text).is_ok())
}

/// The kernel's name of a network card, at most 15 bytes (`IFNAMSIZ`).
pub fn interface(text: &str) -> FormatResult {
    ensure(text != "lo", "is the loopback interface, not a network card")?;
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    ensure(
        text.len() <= 15 && body && first,
        "is not the name of a network card: 1 to 15 letters, digits, '_', '-' or '.'",
    )
}

/// A time server: an address or a name of the DNS.
pub fn time_server(text: &str) -> FormatResult {
    let name = text.to_ascii_lowercase();
    let is_name = name.len() <= 253
        && name.strip_suffix('.').unwrap_or(&name).split('.').all(is_label)
        && !name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if text.parse::<IpAddr>().is_ok() || is_name {
        return Ok(());
    }
    // As URLs and the configurations of time services have it.
    let host = text.split_once("://").map_or(text, |(_, host)| host);
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let better = Some(host).filter(|host| *host != text && time_server(host).is_ok()).map(str::to_owned);
    Err(FormatFault::new("is neither the name nor the address of a time server, without a port")
        .suggest(better))
}

/// A name of the DNS: lower-case labels, one of which is more than digits.
fn is_dns_name(text: &str) -> bool {
    let body = text.strip_suffix('.').unwrap_or(text);
    body.len() <= 253
        && body.split('.').all(is_label)
        && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// A name or an address that a certificate can be good for; a name may begin with `*.`.
pub fn san(text: &str) -> FormatResult {
    let name = text.to_ascii_lowercase();
    let name = name.strip_prefix("*.").unwrap_or(&name);
    ensure(
        text.parse::<IpAddr>().is_ok() || is_dns_name(name),
        "is neither the name nor the address of a server",
    )
}

/// The ports of a cluster: of its users, of its API, of joining nodes, and of the API in the reference product's first
/// versions. Nodes take what they need from the host.
const CLUSTER_PORTS: [&str; 4] = ["443", "6443", "9345", "8443"];

/// Where a cluster is: `https://`, a host, perhaps one of its ports, nothing else. `https://` may be left out.
pub fn server_url(text: &str) -> FormatResult {
    let wrong =
        |suggestion| FormatFault::new("is not a cluster URL; expected https://HOST").suggest(suggestion);
    let rest = text.strip_prefix("https://").unwrap_or(text);
    let (scheme, rest) = without_schemes(rest);
    let (host, tail) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if host.contains('@') {
        return Err(FormatFault { sensitive: true, ..wrong(None) });
    }
    let (host, port) = host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)));
    let name = host.to_ascii_lowercase();
    // A scheme that has slipped into the place of the host looks like a name.
    let is_scheme = ["http", "https"].contains(&name.as_str());
    if is_scheme {
        let message = "has a second scheme; expected https://HOST";
        return Err(FormatFault::new(message));
    }
    if host.parse::<Ipv4Addr>().is_err() && !is_dns_name(&name) {
        return Err(wrong(None));
    }
    let plain = || Some(format!("https://{host}"));
    if let Some(scheme) = scheme {
        let message = format!("begins with {scheme}; a cluster URL is https://HOST");
        return Err(FormatFault::new(message).suggest(plain()));
    }
    let is_known = port.is_none_or(|port| CLUSTER_PORTS.contains(&port));
    if !is_known {
        return Err(FormatFault::new("has a port other than 443; clusters listen on 443").suggest(plain()));
    }
    if !["", "/"].contains(&tail) {
        return Err(FormatFault::new("has a path; a cluster URL is https://HOST").suggest(plain()));
    }
    Ok(())
}

/// The text without the schemes at its beginning, and the kind of the first of them.
fn without_schemes(text: &str) -> (Option<&'static str>, &str) {
    let (mut first, mut rest) = (None, text);
    while let Some((scheme, behind)) = rest.split_once("://")
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
    {
        let named = match scheme {
            "http" => "http://",
            "https" => "https:// twice",
            _ => "another scheme",
        };
        (first, rest) = (first.or(Some(named)), behind);
    }
    (first, rest)
}

/// An `http` or `https` URL with a host, and without credentials, which would be seen in logs.
pub fn http_url(text: &str) -> FormatResult {
    let wrong = || FormatFault::new("is not an http:// or https:// URL");
    let rest = text.strip_prefix("http://").or(text.strip_prefix("https://")).ok_or_else(|| {
        match text.to_ascii_lowercase().starts_with("tftp://") {
            true => FormatFault::new("is a tftp:// URL; only http:// and https:// are supported"),
            false => wrong(),
        }
    })?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        let fault = FormatFault::new("has a user name or password, which does not belong in a URL");
        return Err(FormatFault { sensitive: true, ..fault });
    }
    let url = reqwest::Url::parse(text).map_err(|_| wrong())?;
    let clean = text.bytes().all(|b| b.is_ascii_graphic()) && !host.is_empty();
    ensure(url.host_str().is_some() && clean, "is not an http:// or https:// URL")
}

/// The host of a registry with or without a port, or `*` for every other. It becomes the name of a directory.
pub fn registry(text: &str) -> FormatResult {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
    ensure(
        text == "*" || begins && text.chars().all(letter),
        "is not the host of a registry, HOST or HOST:PORT, nor `*`",
    )
}

/// An IPv4 network by its first address and the length of its prefix.
pub fn cidr(text: &str) -> FormatResult {
    match text.parse::<Cidr>() {
        Ok(_) => Ok(()),
        Err(ParseCidrError::Host(network)) => {
            Err(FormatFault::new("is the address of a host; write the first address of the network")
                .suggest(Some(network.to_string())))
        }
        Err(ParseCidrError::Form) => Err(FormatFault::new("is not a network such as 10.52.0.0/16")),
    }
}

/// A name for files and devices: at most 12 lower-case letters, digits and inner `-`, a letter first.
pub fn short_name(text: &str) -> FormatResult {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    ensure(
        text.len() <= 12 && first && is_label(text),
        "is not a short name: at most 12 lower-case letters, digits and inner '-', a letter first",
    )
}

/// The name of a cluster, of a pool of machines or of a template: an RFC 1123 label.
pub fn group_name(text: &str) -> FormatResult {
    ensure(
        text.len() <= 63 && is_label(text),
        "is not a name: at most 63 lower-case letters, digits and inner '-'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str) -> FormatResult, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in bad {
            assert!(check(text).is_err(), "{text:?} is accepted");
        }
    }

    #[test]
    fn a_registry_is_a_host() {
        for host in ["*", "docker.io", "registry.example.org:5000", "192.0.2.1:5000", "[2001:db8::1]:5000"] {
            assert!(registry(host).is_ok(), "{host}");
        }
        for other in ["", "..", "../x", "a/b", "https://a", "_default", "a b"] {
            assert!(registry(other).is_err(), "{other}");
        }
    }

    #[test]
    fn host_names_follow_rfc_1123() {
        let long = "a".repeat(64);
        let dotted = format!("{}.{}", "a".repeat(40), "b".repeat(24));
        table(
            hostname,
            &["a", "node-1", "1node", "node.example.org"],
            &["", "-a", "a-", "a..b", ".a", "Node", "a_b", "a b", "é", &long, &dotted, "a\n"],
        );
        for (text, better) in [("Node_1", "node-1"), ("node-1.example.org.", "node-1.example.org")] {
            assert_eq!(hostname(text).unwrap_err().suggestion.as_deref(), Some(better), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_cluster_is_https_and_a_host() {
        table(
            server_url,
            &["https://192.0.2.10", "https://192.0.2.10/", "https://a.example.org:9345/", "192.0.2.10"],
            &["", "https://", "https://http", "https://https/", "https://u:p@a", "ftp://", "https://a/b"],
        );
        for text in [
            "http://192.0.2.10",
            "http://192.0.2.10:80/x",
            "https://http://192.0.2.10",
            "HTTPS://192.0.2.10/",
            "https://192.0.2.10:80",
            "https://192.0.2.10/v3",
            "ftp://192.0.2.10",
        ] {
            let better = server_url(text).unwrap_err().suggestion;
            assert_eq!(better.as_deref(), Some("https://192.0.2.10"), "{text}");
        }
    }

    #[test]
    fn addresses_are_checked_and_a_prefix_length_is_explained() {
        table(ipv4, &["192.0.2.1"], &["", "192.0.2", "192.0.2.256", "::1", "01.2.3.4"]);
        for text in ["192.0.2.1/24", "192.0.2.1:53", "https://192.0.2.1/", "192.0.02.001", " 192.0.2.1"] {
            assert_eq!(ipv4(text).unwrap_err().suggestion.as_deref(), Some("192.0.2.1"), "{text}");
        }
        assert_eq!(ipv4("10.0.0.00").unwrap_err().suggestion.as_deref(), Some("10.0.0.0"));
        for text in ["ns1.example.org", "2001:db8::1", "0..1.2", "00.0", "0256.0.0.1"] {
            assert_eq!(ipv4(text).unwrap_err().suggestion, None, "{text}");
        }
    }

    #[test]
    fn hardware_addresses_are_those_of_one_card() {
        table(
            mac,
            &["52:54:00:12:34:56", "52:54:00:AB:cd:EF"],
            &["", "52:54:00:12:34", "52:54:00:12:34:56:78", "5:54:00:12:34:56", "gg:54:00:12:34:56"],
        );
        table(mac, &[], &["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"]);
        for text in ["52-54-00-12-34-56", "5254.0012.3456", "525400123456", "525400:123456"] {
            let fault = mac(text).unwrap_err();
            assert_eq!(fault.suggestion.as_deref(), Some("52:54:00:12:34:56"), "{text}");
        }
        assert_eq!(mac("ffff.ffff.ffff").unwrap_err().suggestion, None);
    }

    #[test]
    fn interface_names_have_no_tricks() {
        table(
            interface,
            &["ens3", "enp0s31f6", "eth0.100", "wan_1"],
            &["", "lo", ".", "..", "-x", "a/b", "a b", "a;b", "abcdefghijklmnop", "e\n"],
        );
    }

    #[test]
    fn time_servers_are_names_or_addresses() {
        table(
            time_server,
            &[
                "0.debian.pool.ntp.org",
                "ntp",
                "NTP.example.org",
                "192.0.2.1",
                "2001:db8::1",
                "ntp.example.org.",
            ],
            &["", "a b", "999.1.1.1", "http://ntp", "-x", "a\nNTP=b"],
        );
        for text in ["ntp://ntp.example.org", "ntp.example.org:123", "http://ntp.example.org/"] {
            assert_eq!(
                time_server(text).unwrap_err().suggestion.as_deref(),
                Some("ntp.example.org"),
                "{text}"
            );
        }
    }
}
