//! The machine's name and addresses now, for the placeholders of webhooks.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use base::files::read_text;
use machine::inventory::Roots;

/// Name and addresses of the machine; empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookFacts {
    pub hostname: String,
    /// Of the interface with the default route.
    pub mac: String,
    pub ipv4: String,
    pub ipv6: String,
}

impl WebhookFacts {
    /// Reads the facts now: addresses come and go during an install. `hostname` is the name that the node will have.
    #[must_use]
    pub fn gather(roots: &Roots, hostname: Option<&str>) -> Self {
        let machine = || nix::unistd::gethostname().ok()?.into_string().ok();
        let mac = default_interface(&roots.proc)
            .and_then(|name| read_text(&roots.sys.join("class/net").join(name).join("address")).ok());
        Self {
            hostname: hostname.map(str::to_owned).or_else(machine).unwrap_or_default(),
            mac: mac.unwrap_or_default().trim().to_owned(),
            // Addresses for documentation (RFC 5737, RFC 3849): nothing is sent to them, the kernel only
            // says from which address it would.
            ipv4: source("0.0.0.0:0", "192.0.2.1:9"),
            ipv6: source("[::]:0", "[2001:db8::1]:9"),
        }
    }
}

fn source(any: &str, beyond: &str) -> String {
    let address = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(beyond)?;
        socket.local_addr()
    });
    let address = address.map(|address| address.ip()).ok().filter(|ip: &IpAddr| !ip.is_unspecified());
    address.map(|ip| ip.to_string()).unwrap_or_default()
}

/// The interface of the default route with the lowest metric; IPv4 before IPv6.
fn default_interface(proc: &Path) -> Option<String> {
    let read = |name: &str| read_text(&proc.join("net").join(name)).unwrap_or_default();
    let best = |routes: Vec<(u32, String)>| routes.into_iter().min().map(|(_, name)| name);
    best(read("route").lines().filter_map(route4).collect())
        .or_else(|| best(read("ipv6_route").lines().filter_map(route6).collect()))
}

/// Columns of `/proc/net/route`: interface, destination, gateway, flags, references, use, metric, mask.
fn route4(line: &str) -> Option<(u32, String)> {
    let columns: Vec<_> = line.split_whitespace().collect();
    let default = columns.get(1) == Some(&"00000000") && columns.get(7) == Some(&"00000000");
    default.then_some((columns.get(6)?.parse().ok()?, (*columns.first()?).to_owned()))
}

/// Columns of `/proc/net/ipv6_route`: destination and its length first, the metric sixth, the interface last.
fn route6(line: &str) -> Option<(u32, String)> {
    let columns: Vec<_> = line.split_whitespace().collect();
    let default = columns.first()?.bytes().all(|b| b == b'0') && columns.get(1) == Some(&"00");
    let name = columns.last().filter(|name| **name != "lo")?;
    default.then_some((u32::from_str_radix(columns.get(5)?, 16).ok()?, (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_card_of_the_best_default_route_gives_the_hardware_address() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::below(root.path());
        for (name, mac) in [("ens3", "52:54:00:00:00:03\n"), ("ens4", "52:54:00:00:00:04\n")] {
            fs::create_dir_all(roots.sys.join("class/net").join(name)).unwrap();
            fs::write(roots.sys.join("class/net").join(name).join("address"), mac).unwrap();
        }
        fs::create_dir_all(roots.proc.join("net")).unwrap();
        let facts = || WebhookFacts::gather(&roots, Some("node-1"));
        assert_eq!((facts().hostname.as_str(), facts().mac.as_str()), ("node-1", ""));
        let six = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                   fe800000000000000000000000000001 00000400 00000000 00000000 00000003 ens4\n\
                   00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                   00000000000000000000000000000000 00000001 00000001 00000000 00200200 lo\n";
        fs::write(roots.proc.join("net/ipv6_route"), six).unwrap();
        assert_eq!(facts().mac, "52:54:00:00:00:04");
        let four = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                    ens4\t00000000\t0100A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
                    ens3\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    ens4\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        fs::write(roots.proc.join("net/route"), four).unwrap();
        assert_eq!(facts().mac, "52:54:00:00:00:03");
    }
}
