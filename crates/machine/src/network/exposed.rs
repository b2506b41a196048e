//! At which addresses a server of this machine can be reached from other networks than the management network.

use std::net::{IpAddr, SocketAddr};

use super::management_device;
use model::config::InstallConfig;

/// The addresses of this machine outside the management network at which a server that listens on `at` can be reached, each with its
/// device. None where the document names no cards: the network is not known then.
#[must_use]
pub fn exposed_addresses(at: SocketAddr, config: &InstallConfig) -> Vec<String> {
    let Some(management) = management_device(config) else { return Vec::new() };
    let cards = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = cards.filter_map(|card| {
        let address = card.address?;
        let ip = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        let ip = ip.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))?;
        Some((card.interface_name, ip))
    });
    outside(at.ip(), &management, addresses)
}

/// Those of `addresses` at which a server on `listen` is reached, but for the loopback's and those of the device `management`.
fn outside(
    listen: IpAddr,
    management: &str,
    addresses: impl Iterator<Item = (String, IpAddr)>,
) -> Vec<String> {
    // A socket on `::` takes connections by IPv4 too (ipv6(7)).
    let reached = |address: IpAddr| match listen {
        IpAddr::V4(four) if four.is_unspecified() => address.is_ipv4(),
        IpAddr::V6(six) if six.is_unspecified() => true,
        one => one == address,
    };
    let link_local = |address: IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    addresses
        .filter(|(device, address)| {
            reached(*address) && device != management && !address.is_loopback() && !link_local(*address)
        })
        .map(|(device, address)| format!("{device} ({address})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_networks_are_told_if_the_server_is_reached_there() {
        let all = [
            ("lo", "127.0.0.1"),
            ("mgmt-br", "192.0.2.11"),
            ("mgmt-br", "192.0.2.10"),
            ("storage-br", "198.51.100.11"),
            ("cni0", "10.42.0.1"),
            ("storage-br", "2001:db8::11"),
            ("storage-br", "fe80::1"),
        ];
        let told = |listen: &str| {
            let addresses =
                all.iter().map(|(device, address)| (device.to_string(), address.parse().unwrap()));
            outside(listen.parse().unwrap(), "mgmt-br", addresses)
        };
        assert_eq!(told("0.0.0.0"), ["storage-br (198.51.100.11)", "cni0 (10.42.0.1)"]);
        assert_eq!(told("::").len(), 3);
        assert_eq!(told("198.51.100.11"), ["storage-br (198.51.100.11)"]);
        for inside in ["192.0.2.11", "192.0.2.10", "127.0.0.1"] {
            assert_eq!(told(inside), Vec::<String>::new(), "{inside}");
        }
    }
}
