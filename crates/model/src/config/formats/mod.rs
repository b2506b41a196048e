//! What single values must look like. A check sees one text and says what is wrong with it, without
//! repeating it: the user's line is shown underlined, and the text may be a secret.

pub mod access;
mod fault;
pub mod kernel;
pub mod kubernetes;
pub mod network;
mod reinstall;
pub mod storage;
pub mod text;
pub mod webhook;

use std::borrow::Cow;

pub use fault::{Fault, FormatResult};

/// A named check.
#[derive(Debug)]
pub struct Format {
    /// The `format` of the JSON Schema.
    pub name: &'static str,
    /// The stable code of a diagnostic.
    pub code: &'static str,
    pub check: fn(&str) -> FormatResult,
}

/// Every format that a key of a configuration can have.
static FORMATS: &[Format] = &[
    Format { name: "addon", code: "invalid-addon", check: kubernetes::addon },
    Format { name: "arp-targets", code: "invalid-targets", check: network::arp_targets },
    Format { name: "boot-password", code: "invalid-boot-password", check: access::boot_password },
    Format { name: "byte-size", code: "invalid-size", check: storage::byte_size },
    Format { name: "check-name", code: "unknown-check", check: text::check_name },
    Format { name: "cidr", code: "invalid-network", check: network::cidr },
    Format { name: "device", code: "invalid-device", check: storage::device },
    Format { name: "environment-name", code: "invalid-environment-name", check: text::environment_name },
    Format { name: "file-mode", code: "invalid-permissions", check: access::file_mode },
    Format { name: "group-name", code: "invalid-group-name", check: network::group_name },
    Format { name: "header-name", code: "invalid-header-name", check: text::header_name },
    Format { name: "header-value", code: "invalid-header-value", check: text::header_value },
    Format { name: "hook-payload", code: "invalid-payload", check: webhook::payload },
    Format { name: "hook-url", code: "invalid-webhook-url", check: webhook::url },
    Format { name: "hostname", code: "invalid-hostname", check: network::hostname },
    Format { name: "interface", code: "invalid-interface-name", check: network::interface },
    Format { name: "ipv4", code: "invalid-address", check: network::ipv4 },
    Format { name: "iso-url", code: "invalid-iso-url", check: storage::iso_url },
    Format { name: "kernel-arguments", code: "invalid-kernel-arguments", check: kernel::arguments },
    Format { name: "keyboard", code: "invalid-keyboard", check: text::keyboard },
    Format { name: "label-key", code: "invalid-label", check: kubernetes::label_key },
    Format { name: "label-value", code: "invalid-label-value", check: kubernetes::label_value },
    Format { name: "line", code: "invalid-line", check: text::line },
    Format { name: "mac", code: "invalid-hardware-address", check: network::mac },
    Format { name: "medium-url", code: "invalid-medium-url", check: storage::medium_url },
    Format { name: "module", code: "invalid-module", check: kernel::module },
    Format { name: "owner", code: "invalid-owner", check: access::owner },
    Format { name: "password", code: "invalid-password", check: access::password },
    Format { name: "path", code: "invalid-path", check: storage::absolute_path },
    Format { name: "pem", code: "invalid-certificate", check: text::pem },
    Format { name: "persistent-path", code: "invalid-persistent-path", check: storage::persistent_path },
    Format { name: "registry", code: "invalid-registry", check: network::registry },
    Format { name: "reinstall-rule", code: "invalid-reinstall", check: reinstall::rule },
    Format { name: "san", code: "invalid-san", check: network::san },
    Format { name: "secret", code: "invalid-secret", check: text::secret },
    Format { name: "server-url", code: "invalid-server-url", check: network::server_url },
    Format { name: "setting", code: "unknown-setting", check: kubernetes::setting },
    Format { name: "sha256", code: "invalid-digest", check: text::sha256 },
    Format { name: "short-name", code: "invalid-name", check: network::short_name },
    Format { name: "size-clause", code: "invalid-size-clause", check: storage::size_clause },
    Format { name: "ssh-key", code: "invalid-ssh-key", check: access::ssh_key },
    Format { name: "sysctl-key", code: "invalid-sysctl-key", check: kernel::sysctl_key },
    Format { name: "sysctl-value", code: "invalid-sysctl-value", check: kernel::sysctl_value },
    Format { name: "taint", code: "invalid-taint", check: kubernetes::taint },
    Format { name: "text", code: "invalid-text", check: text::text },
    Format { name: "time-server", code: "invalid-time-server", check: network::time_server },
    Format { name: "time-zone", code: "invalid-time-zone", check: text::time_zone },
    Format { name: "token", code: "invalid-token", check: access::token },
    Format { name: "tty", code: "invalid-tty", check: kernel::tty },
    Format { name: "url", code: "invalid-url", check: network::http_url },
    Format { name: "user-name", code: "invalid-user-name", check: access::user_name },
];

#[must_use]
pub fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// The canonical spelling of a name of this format: addons have `_` here and `-` in their cluster.
#[must_use]
pub fn canonical<'t>(format: &Format, text: &'t str) -> Cow<'t, str> {
    if format.name == "addon" && text.contains('-') { text.replace('-', "_").into() } else { text.into() }
}

/// Whether texts of this format may have several lines.
#[must_use]
pub fn has_lines(format: &Format) -> bool {
    ["hook-payload", "pem", "secret", "text"].contains(&format.name)
}

/// For a format whose key has a default that rules judge: texts between which every other one lies, to find out what
/// follows from the default alone.
#[must_use]
pub fn extremes(name: &str) -> &'static [&'static str] {
    match name {
        // All addresses, and a few that no network has (RFC 5737).
        "cidr" => &["0.0.0.0/0", "192.0.2.0/32"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_unique() {
        for (index, format) in FORMATS.iter().enumerate() {
            for other in &FORMATS[index + 1..] {
                assert!(format.name != other.name && format.code != other.code, "{}", other.name);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn a_fault_never_repeats_the_text(text in "[a-zA-Z0-9$/+=_]{12,60}") {
            for format in FORMATS {
                if let Err(fault) = (format.check)(&text) {
                    proptest::prop_assert!(!fault.message.contains(&text), "{}", format.name);
                }
            }
        }

        #[test]
        fn a_suggestion_is_accepted(
            text in "((https?|ftp)://){0,2}([a-z0-9.]{1,12}|192\\.0\\.2\\.1)(:[0-9]{0,5})?(/[a-z]{0,4}){0,2}|[<>=]{0,2} ?[0-9.]{1,5} ?[kmgtKMGTiB]{0,3}\
                    |(console=|/dev/)?ttyS?[0-9](,[0-9]{1,6}n8)?|/?[0-9]{1,3}(\\.[0-9]{1,3}){0,3}(/[0-9]{1,2})?|[ugoa=+rwx,-]{1,12}|0?[0-7o]{1,4}|[A-Za-z_. -]{1,20}"
        ) {
            for format in FORMATS {
                if let Err(Fault { suggestion: Some(better), .. }) = (format.check)(&text) {
                    let words = better.starts_with("a hash made by");
                    proptest::prop_assert!(words || (format.check)(&better).is_ok(), "{}: {text} -> {better}", format.name);
                }
            }
        }

        #[test]
        fn no_accepted_text_can_break_out_of_a_line(text in "\\PC{0,20}[\n\r\0]\\PC{0,20}") {
            // These may have several lines by their nature.
            for format in FORMATS.iter().filter(|format| !has_lines(format)) {
                proptest::prop_assert!((format.check)(&text).is_err(), "{}", format.name);
            }
        }
    }
}
