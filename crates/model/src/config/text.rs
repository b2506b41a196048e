//! Texts that have been checked: a value of one of these types has passed the check of its format.

use document::checked_text;

use super::formats::{access, kernel, kubernetes, network, storage, text, webhook};

checked_text! {
    /// A host name: RFC 1123, lower case, at most 64 characters.
    Hostname, "hostname", network::hostname
}
checked_text! {
    /// The hardware address of one network card, in the spelling of the document.
    MacAddress, "mac", network::mac
}
checked_text! {
    /// IPv4 addresses joined by commas, at most 16.
    ArpTargets, "arp-targets", network::arp_targets
}
checked_text! {
    /// The kernel's name of a network card.
    InterfaceName, "interface", network::interface
}
checked_text! {
    /// A short name of ours that goes into names of files and network devices: letters, digits and `-`.
    NetworkName, "short-name", network::short_name
}
checked_text! {
    /// The name of a cluster, of a pool of machines or of a template.
    GroupName, "group-name", network::group_name
}
checked_text! {
    /// The name or the address of a time server.
    TimeServer, "time-server", network::time_server
}
checked_text! {
    /// The address of a cluster, `https://HOST`.
    ServerUrl, "server-url", network::server_url
}

impl ServerUrl {
    /// The host of the cluster.
    #[must_use]
    pub fn host(&self) -> &str {
        let rest = self.0.strip_prefix("https://").unwrap_or(&self.0);
        rest.split([':', '/']).next().unwrap_or(rest)
    }

    /// A port that the document names and that clusters do not answer for users on.
    #[must_use]
    pub fn unused_port(&self) -> Option<&str> {
        let rest = self.0.strip_prefix("https://").unwrap_or(&self.0);
        rest.split_once(':').map(|(_, port)| port).filter(|port| *port != "443")
    }
}

checked_text! {
    /// A name or an address that a certificate is good for.
    San, "san", network::san
}
checked_text! {
    /// An `http` or `https` URL without credentials. It is displayed without its query.
    HttpUrl, "url", network::http_url, shown by base::url::shown
}
checked_text! {
    /// The URL of a webhook, perhaps with placeholders. It is displayed without its query.
    HookUrl, "hook-url", webhook::url, shown by base::url::shown
}
checked_text! {
    /// The body of a webhook, perhaps with placeholders.
    #[derive(Default)]
    HookPayload, "hook-payload", webhook::payload
}
checked_text! {
    /// The name of an iSCSI node: a target, or a machine that uses one.
    IscsiName, "iscsi-name", storage::iscsi_name
}
checked_text! {
    /// The name of an NVMe subsystem, or of a machine that uses one (NQN).
    Nqn, "nqn", storage::nqn
}
checked_text! {
    /// Where a target is reached: an IPv4 address, perhaps with a port.
    Portal, "portal", storage::portal
}
checked_text! {
    /// Where a medium is: `local`, a path, or the URL of a directory or of an ISO. A URL is displayed without its query.
    IsoUrl, "iso-url", storage::iso_url, shown by base::url::shown
}

impl IsoUrl {
    /// True if it is the URL of an ISO as one file, which is read by ranges where a medium lacks payloads.
    #[must_use]
    pub fn is_iso_file(&self) -> bool {
        storage::is_iso_file(&self.0)
    }
}
checked_text! {
    /// The path of a disk.
    DevicePath, "device", storage::device
}
checked_text! {
    /// A path from the root, without detours.
    AbsolutePath, "path", storage::absolute_path
}
checked_text! {
    /// A directory whose content can be kept.
    PersistentPath, "persistent-path", storage::persistent_path
}
checked_text! {
    /// Permissions in octal digits.
    FileMode, "file-mode", access::file_mode
}
checked_text! {
    /// A user, or user and group joined by `:`.
    Owner, "owner", access::owner
}
checked_text! {
    /// A login name.
    UserName, "user-name", access::user_name
}
checked_text! {
    /// The name of a kernel module.
    ModuleName, "module", kernel::module
}
checked_text! {
    /// The name of a time zone, such as `Europe/Berlin`.
    TimeZone, "time-zone", text::time_zone
}
checked_text! {
    /// The name of a keyboard layout, such as `de` or `de(nodeadkeys)`.
    KeyboardLayout, "keyboard", text::keyboard
}
checked_text! {
    /// The value of a kernel setting, one line.
    SysctlValue, "sysctl-value", kernel::sysctl_value
}
checked_text! {
    /// Arguments of the kernel command line.
    KernelArguments, "kernel-arguments", kernel::arguments
}
checked_text! {
    /// Numbers of processors as the kernel lists them, such as `2-7,10`.
    CpuList, "cpu-list", kernel::cpu_list
}
checked_text! {
    /// Memory for a kernel that writes dumps: `true`, `false`, or a size such as `384M`.
    CrashMemory, "crash-memory", kernel::crash_memory
}
checked_text! {
    /// Devices on the PCI bus: `VENDOR:DEVICE` in hexadecimal digits, or the address of one.
    PciSelector, "pci-device", kernel::pci_device
}
checked_text! {
    /// A console with its speed.
    Tty, "tty", kernel::tty
}
checked_text! {
    /// A public key as in authorized_keys(5), without options, or where to fetch some.
    SshKey, "ssh-key", access::ssh_key
}
checked_text! {
    /// One line of text.
    Line, "line", text::line
}
checked_text! {
    /// Text of any number of lines.
    #[derive(Default)]
    Text, "text", text::text
}
checked_text! {
    /// Certificates in PEM.
    Pem, "pem", text::pem
}
checked_text! {
    /// A SHA-256 digest, 64 hexadecimal digits.
    Sha256, "sha256", text::sha256
}
checked_text! {
    /// The name of a check of the machine.
    CheckName, "check-name", text::check_name
}
checked_text! {
    /// The value of a Kubernetes label.
    LabelValue, "label-value", kubernetes::label_value
}
checked_text! {
    /// A taint, `KEY=VALUE:EFFECT`.
    Taint, "taint", kubernetes::taint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checked_text_gets_in() {
        assert!("node-1".parse::<Hostname>().is_ok());
        assert!("Node 1".parse::<Hostname>().is_err());
        assert!(serde_json::from_str::<ModuleName>("\"../x\"").is_err());
    }

    #[test]
    fn a_url_is_displayed_without_its_query_and_kept_with_it() {
        let text = "https://host/a.iso?X-Amz-Signature=secret";
        let (url, medium): (HttpUrl, IsoUrl) = (text.parse().unwrap(), text.parse().unwrap());
        assert_eq!(
            (url.to_string(), medium.to_string()),
            ("https://host/a.iso".into(), "https://host/a.iso".into())
        );
        assert_eq!((url.as_str(), medium.as_str()), (text, text));
        assert_eq!(serde_json::to_value(&url).unwrap(), text);
        assert_eq!("local".parse::<IsoUrl>().unwrap().to_string(), "local");
    }
}
