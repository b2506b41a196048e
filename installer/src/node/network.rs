//! The NetworkManager profile of the management network, in NetworkManager's keyfile format
//! (nm-settings-keyfile(5)).

use std::fmt::Write as _;

use uuid::Uuid;

use super::files::NodeFile;
use crate::config::rules::prefix_length;
use crate::config::{InstallConfig, Interface, ManagementInterface, Method};

/// The namespace of the profiles' UUIDs: a number drawn once, so that a profile keeps its identity.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0d_3a52_8f1b_4c7e_9d64_1b0c_57a2_e83d);

/// The profile of the management network. Without a named card it is for every wired card.
#[must_use]
pub fn profile(config: &InstallConfig) -> NodeFile {
    let default = ManagementInterface::default();
    let management = config.install.management_interface.as_ref().unwrap_or(&default);
    let card = management.interfaces.first();
    let mut keyfile = Keyfile::default();
    connection(&mut keyfile, card);
    ethernet(&mut keyfile, card, management.mtu);
    ipv4(&mut keyfile, config, management);
    keyfile.section("ipv6");
    keyfile.text("method", "auto");
    NodeFile::new("etc/NetworkManager/system-connections/nqrust-management.nmconnection", 0o600, keyfile.0)
}

/// NetworkManager makes a DHCP profile for every other card of its own accord; a node has what its document
/// says and nothing else.
#[must_use]
pub fn settings() -> NodeFile {
    NodeFile::new("etc/NetworkManager/conf.d/10-nqrust.conf", 0o644, "[main]\nno-auto-default=*\n")
}

fn connection(keyfile: &mut Keyfile, card: Option<&Interface>) {
    let mac = card.and_then(|card| card.hw_addr.as_ref()).map(|mac| mac.to_ascii_lowercase());
    let name = card.and_then(|card| card.name.as_ref()).map(|name| name.to_string());
    let identity = mac.clone().or(name.clone()).unwrap_or_else(|| "any".to_owned());
    keyfile.section("connection");
    keyfile.text("id", "nqrust-management");
    keyfile.text("uuid", &Uuid::new_v5(&NAMESPACE, format!("management {identity}").as_bytes()).to_string());
    keyfile.text("type", "ethernet");
    keyfile.text("autoconnect-priority", "100");
    match (mac, name) {
        // Names may change with the firmware's mood; the permanent address does not.
        (Some(_), _) => {}
        (None, Some(name)) => keyfile.text("interface-name", &name),
        // NM_CONNECTION_MULTI_CONNECT_MULTIPLE: every wired card may use the profile at the same time.
        (None, None) => keyfile.text("multi-connect", "3"),
    }
}

fn ethernet(keyfile: &mut Keyfile, card: Option<&Interface>, mtu: u32) {
    keyfile.section("ethernet");
    if let Some(mac) = card.and_then(|card| card.hw_addr.as_ref()) {
        // NetworkManager compares this with the permanent address of a card.
        keyfile.text("mac-address", &mac.to_ascii_uppercase());
    }
    if mtu > 0 {
        keyfile.text("mtu", &mtu.to_string());
    }
}

fn ipv4(keyfile: &mut Keyfile, config: &InstallConfig, management: &ManagementInterface) {
    keyfile.section("ipv4");
    match (management.method, management.ip, management.subnet_mask.and_then(prefix_length)) {
        (Method::Static, Some(ip), Some(length)) => {
            let gateway = management.gateway.map(|gateway| format!(",{gateway}")).unwrap_or_default();
            keyfile.text("method", "manual");
            keyfile.text("address1", &format!("{ip}/{length}{gateway}"));
        }
        _ => keyfile.text("method", "auto"),
    }
    let servers = &config.os.dns_nameservers;
    if !servers.is_empty() {
        keyfile.list("dns", servers.iter().map(ToString::to_string));
        keyfile.text("ignore-auto-dns", "true");
    }
}

/// Text in the keyfile format.
#[derive(Default)]
struct Keyfile(String);

impl Keyfile {
    fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    fn text(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.0, "{key}={}", escape(value));
    }

    fn list(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: String = values.map(|value| escape(&value).replace(';', "\\;") + ";").collect();
        let _ = writeln!(self.0, "{key}={values}");
    }
}

/// A value as GLib's key files write it: backslashes, line breaks and tabs as escapes, and spaces at the
/// beginning too, which would else be dropped.
fn escape(text: &str) -> String {
    let body = text.trim_start_matches(' ');
    let mut escaped = "\\s".repeat(text.len() - body.len());
    for c in body.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use proptest::prelude::*;

    fn text(document: &str) -> String {
        String::from_utf8(profile(&parse(document, "f").unwrap()).bytes).unwrap()
    }

    /// Undoes [`escape`] as GLib does.
    fn unescape(text: &str) -> String {
        let mut plain = String::new();
        let mut letters = text.chars();
        while let Some(c) = letters.next() {
            plain.push(match (c, if c == '\\' { letters.next() } else { None }) {
                ('\\', Some('s')) => ' ',
                ('\\', Some('n')) => '\n',
                ('\\', Some('r')) => '\r',
                ('\\', Some('t')) => '\t',
                ('\\', Some(other)) => other,
                (other, _) => other,
            });
        }
        plain
    }

    #[test]
    fn a_card_is_matched_by_its_permanent_address_when_there_is_one() {
        let both =
            "install: {management_interface: {interfaces: [{name: ens3, hw_addr: '52:54:00:aB:34:56'}]}}";
        let profile = text(both);
        assert!(profile.contains("mac-address=52:54:00:AB:34:56\n"));
        assert!(!profile.contains("interface-name"));
        let other = text(&both.replace("aB", "Ab"));
        assert_eq!(profile, other, "the spelling of an address does not matter");
        assert_ne!(profile, text(&both.replace("aB", "cd")));
    }

    #[test]
    fn name_servers_of_the_document_replace_those_of_dhcp() {
        assert!(
            text("os: {dns_nameservers: [192.0.2.1, 192.0.2.2]}")
                .contains("[ipv4]\nmethod=auto\ndns=192.0.2.1;192.0.2.2;\nignore-auto-dns=true\n")
        );
    }

    proptest! {
        #[test]
        fn an_escaped_value_is_one_line_and_reads_back(value in "[ \\\\;=a\n\r\t\\[\\]#é]{0,30}") {
            let escaped = escape(&value);
            prop_assert!(!escaped.contains(['\n', '\r', '\t']) && !escaped.starts_with(' '));
            prop_assert_eq!(unescape(&escaped), value);
        }
    }
}
