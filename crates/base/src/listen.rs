//! Parses the listen address of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads `ADDRESS:PORT`, an address alone, for which the port is `port`, or `:PORT` for all addresses.
///
/// # Errors
/// What is wrong with the text, with an example that works.
pub fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
    }
    Err(format!("it is not an address of this machine with a port, such as 192.0.2.1:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_or_the_address_may_be_left_out() {
        for (text, address_and_port) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("192.0.2.1", "192.0.2.1:8080"),
            (":80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
            ("::1", "[::1]:8080"),
        ] {
            assert_eq!(address(text, 8080).unwrap().to_string(), address_and_port, "{text}");
        }
        for text in ["", "localhost:80", "http://192.0.2.1:80", "192.0.2.1:http", "192.0.2.1:99999", "80"] {
            assert!(address(text, 8080).unwrap_err().contains("192.0.2.1:8080"), "{text}");
        }
    }
}
