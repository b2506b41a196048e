//! The formats of single values. A check sees one text and says what is wrong with it, without
//! repeating it: the user's line is shown underlined, and the text may be a secret.

pub mod access;
pub mod kernel;
pub mod kubernetes;
pub mod network;
mod reinstall;
pub mod storage;
pub mod text;
pub mod webhook;

use document::format::Format;
pub use document::format::FormatResult;

/// Every format that a key of a configuration can have.
pub static FORMATS: &[Format] = &[
    Format {
        canonical: Some(kubernetes::canonical_addon),
        ..Format::new("addon", "invalid-addon", kubernetes::addon)
    },
    Format::new("arp-targets", "invalid-targets", network::arp_targets),
    Format::new("boot-password", "invalid-boot-password", access::boot_password),
    Format::new("byte-size", "invalid-size", storage::byte_size),
    Format::new("check-name", "unknown-check", text::check_name),
    Format { extremes: &network::CIDR_EXTREMES, ..Format::new("cidr", "invalid-network", network::cidr) },
    Format::new("cpu-list", "invalid-cpu-list", kernel::cpu_list),
    Format::new("crash-memory", "invalid-crash-memory", kernel::crash_memory),
    Format::new("device", "invalid-device", storage::device),
    Format::new("environment-name", "invalid-environment-name", text::environment_name),
    Format::new("file-mode", "invalid-permissions", access::file_mode),
    Format::new("group-name", "invalid-group-name", network::group_name),
    Format::new("header-name", "invalid-header-name", text::header_name),
    Format::new("header-value", "invalid-header-value", text::header_value),
    Format { has_lines: true, ..Format::new("hook-payload", "invalid-payload", webhook::payload) },
    Format::new("hook-url", "invalid-webhook-url", webhook::url),
    Format::new("hostname", "invalid-hostname", network::hostname),
    Format::new("interface", "invalid-interface-name", network::interface),
    Format::new("ipv4", "invalid-address", network::ipv4),
    Format::new("iscsi-name", "invalid-iscsi-name", storage::iscsi_name),
    Format::new("iso-url", "invalid-iso-url", storage::iso_url),
    Format {
        has_words: true,
        ..Format::new("kernel-arguments", "invalid-kernel-arguments", kernel::arguments)
    },
    Format::new("keyboard", "invalid-keyboard", text::keyboard),
    Format::new("label-key", "invalid-label", kubernetes::label_key),
    Format::new("label-value", "invalid-label-value", kubernetes::label_value),
    Format::new("line", "invalid-line", text::line),
    Format::new("mac", "invalid-hardware-address", network::mac),
    Format::new("medium-url", "invalid-medium-url", storage::medium_url),
    Format { has_lines: true, ..Format::new("minisign-key", "invalid-release-key", access::minisign_key) },
    Format::new("module", "invalid-module", kernel::module),
    Format::new("nqn", "invalid-nqn", storage::nqn),
    Format::new("owner", "invalid-owner", access::owner),
    Format::new("password", "invalid-password", access::password),
    Format::new("path", "invalid-path", storage::absolute_path),
    Format { has_lines: true, ..Format::new("pem", "invalid-certificate", text::pem) },
    Format::new("pci-device", "invalid-pci-device", kernel::pci_device),
    Format::new("persistent-path", "invalid-persistent-path", storage::persistent_path),
    Format::new("portal", "invalid-portal", storage::portal),
    Format::new("registry", "invalid-registry", network::registry),
    Format::new("reinstall-rule", "invalid-reinstall", reinstall::rule),
    Format::new("san", "invalid-san", network::san),
    Format { has_lines: true, ..Format::new("secret", "invalid-secret", text::secret) },
    Format::new("server-url", "invalid-server-url", network::server_url),
    Format::new("setting", "unknown-setting", kubernetes::setting),
    Format::new("sha256", "invalid-digest", text::sha256),
    Format::new("short-name", "invalid-name", network::short_name),
    Format::new("size-clause", "invalid-size-clause", storage::size_clause),
    Format {
        elements: Some(access::key_lines),
        ..Format::new("ssh-key", "invalid-ssh-key", access::ssh_key)
    },
    Format::new("sysctl-key", "invalid-sysctl-key", kernel::sysctl_key),
    Format::new("sysctl-value", "invalid-sysctl-value", kernel::sysctl_value),
    Format::new("taint", "invalid-taint", kubernetes::taint),
    Format { has_lines: true, ..Format::new("text", "invalid-text", text::text) },
    Format {
        directives: &network::TIME_DIRECTIVES,
        ..Format::new("time-server", "invalid-time-server", network::time_server)
    },
    Format::new("time-zone", "invalid-time-zone", text::time_zone),
    Format::new("token", "invalid-token", access::token),
    Format::new("tty", "invalid-tty", kernel::tty),
    Format::new("url", "invalid-url", network::http_url),
    Format::new("user-name", "invalid-user-name", access::user_name),
];

#[cfg(test)]
mod tests {
    use document::format::FormatFault;

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
                if let Err(FormatFault { suggestion: Some(better), .. }) = (format.check)(&text) {
                    let words = better.starts_with("a hash made by");
                    proptest::prop_assert!(words || (format.check)(&better).is_ok(), "{}: {text} -> {better}", format.name);
                }
            }
        }

        #[test]
        fn no_accepted_text_can_break_out_of_a_line(text in "\\PC{0,20}[\n\r\0]\\PC{0,20}") {
            // These may have several lines by their nature.
            for format in FORMATS.iter().filter(|format| !format.has_lines) {
                proptest::prop_assert!((format.check)(&text).is_err(), "{}", format.name);
            }
        }
    }
}
