//! From a node document to files: a pure function. What depends on the image's own files (the accounts) is in
//! [`super::accounts`], the network profiles in [`machine::network`].

use super::proxies;
use machine::hostname::hostname;
use machine::machine_id::MachineId;
use machine::nics::CardSelectors;
use machine::node_files::{NOTE, NodeFile};
use machine::paths::HOST_KEYS;
use machine::{multipath, network};
use model::config::InstallConfig;
use model::config::formats::access;

/// The name of the login user.
pub const USER: &str = "rancher";

/// What tells programs the time zone, and where zones are (localtime(5)).
pub(super) const LOCALTIME: &str = "etc/localtime";
pub(super) const ZONES: &str = "usr/share/zoneinfo";

/// The files of a document, in a fixed order. The same arguments give the same bytes.
#[must_use]
pub fn render(config: &InstallConfig, machine: Option<&MachineId>, cards: &CardSelectors) -> Vec<NodeFile> {
    let os = &config.os;
    let name = hostname(config, machine);
    let mut files = vec![hosts(name.as_deref()), sudo_rule(config), login(config)];
    files.extend(network::files(config, cards));
    files.extend(multipath::file(&os.external_storage_config));
    files.extend(proxies::of_services(config));
    files.extend(name.map(|name| NodeFile::new("etc/hostname", 0o644, format!("{name}\n"))));
    files.extend(machine.map(|id| NodeFile::new("etc/machine-id", 0o444, format!("{id}\n"))));
    files.extend(os.timezone.iter().map(|zone| NodeFile::link(LOCALTIME, &format!("/{ZONES}/{zone}"))));
    let mut lines = |path: &str, head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            files.push(NodeFile::new(path, 0o644, format!("{head}{text}")));
        }
    };
    let further = os.users.iter().map(|user| (&*user.name, &user.ssh_authorized_keys));
    for (user, keys) in std::iter::once((USER, &os.ssh_authorized_keys)).chain(further) {
        // References are resolved by the installer only.
        let keys = keys.iter().filter(|key| access::remote_keys(key).is_none());
        lines(&format!("etc/ssh/authorized_keys.d/{user}"), NOTE, keys.map(ToString::to_string).collect());
    }
    lines("etc/environment", NOTE, proxies::environment(config));
    let servers: Vec<&str> = os.ntp_servers.iter().map(|server| &**server).collect();
    let time = if servers.is_empty() { vec![] } else { vec![format!("NTP={}", servers.join(" "))] };
    lines("etc/systemd/timesyncd.conf.d/nqrust.conf", &format!("{NOTE}[Time]\n"), time);
    let settings = os.sysctls.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    lines("etc/sysctl.d/90-nqrust.conf", NOTE, settings);
    lines("etc/modules-load.d/nqrust.conf", NOTE, os.modules.iter().map(ToString::to_string).collect());
    let nested = os.host.nested_virtualization.map(u8::from);
    let options =
        nested.iter().flat_map(|on| ["intel", "amd"].map(|maker| format!("options kvm_{maker} nested={on}")));
    lines("etc/modprobe.d/nqrust-host.conf", NOTE, options.collect());
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn hosts(name: Option<&str>) -> NodeFile {
    let mut text = format!("{NOTE}127.0.0.1 localhost\n");
    if let Some(name) = name {
        // The full name first, as hosts(5) requires, then its first label.
        let short = name.split('.').next().filter(|short| *short != name);
        let alias = short.map(|short| format!(" {short}")).unwrap_or_default();
        text.push_str(&format!("127.0.1.1 {name}{alias}\n"));
    }
    text.push_str("::1 localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n");
    NodeFile::new("etc/hosts", 0o644, text)
}

/// The login user may use sudo without a password, because programs that log in with a key know none; so may each user for whom
/// the document says so.
fn sudo_rule(config: &InstallConfig) -> NodeFile {
    let further = config.os.users.iter().filter(|user| user.sudo).map(|user| &*user.name);
    let rules: String = std::iter::once(USER)
        .chain(further)
        .map(|user| format!("{user} ALL=(ALL:ALL) NOPASSWD: ALL\n"))
        .collect();
    NodeFile::new("etc/sudoers.d/90-nqrust", 0o440, format!("{NOTE}{rules}"))
}

/// sshd uses the first value it reads for each setting, and Debian's own file includes this directory first.
fn login(config: &InstallConfig) -> NodeFile {
    let os = &config.os;
    let some = os.password.is_some() || os.users.iter().any(|user| user.password.is_some());
    let passwords = if some && !os.sshd.disable_password_auth { "yes" } else { "no" };
    let sftp = if os.sshd.sftp { "Subsystem sftp internal-sftp\n" } else { "" };
    let host_keys: String = ["ed25519", "ecdsa"]
        .iter()
        .map(|kind| format!("HostKey {HOST_KEYS}/ssh_host_{kind}_key\n"))
        .collect();
    let text = format!(
        "{NOTE}AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u .ssh/authorized_keys\n\
         PasswordAuthentication {passwords}\nKbdInteractiveAuthentication no\nPermitRootLogin no\n{sftp}{host_keys}"
    );
    NodeFile::new("etc/ssh/sshd_config.d/10-nqrust.conf", 0o644, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;
    use proptest::prelude::*;

    #[test]
    fn a_document_gives_the_golden_files() {
        let machine = "0123456789abcdef0123456789abcdef".parse().unwrap();
        for name in ["create", "join-management", "join-witness", "join-worker", "single-node", "bare"] {
            let example = format!("{}/../../configs/nodes/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
            let text =
                if name == "bare" { "{}".to_owned() } else { std::fs::read_to_string(example).unwrap() };
            let config = parse(&text, name).unwrap();
            let rendered: String = render(&config, Some(&machine), &CardSelectors::default())
                .iter()
                .map(|file| {
                    let text = String::from_utf8_lossy(&file.bytes);
                    format!("==> {} {:04o}\n{text}", file.path, file.mode)
                })
                .collect();
            golden(name, &rendered);
        }
    }

    /// Compares with the file of this name in `golden/`; with `UPDATE_GOLDEN` set, writes it.
    fn golden(name: &str, text: &str) {
        let path = format!("{}/src/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
    }

    #[test]
    fn without_name_and_machine_id_the_image_keeps_its_own() {
        let files = render(&InstallConfig::default(), None, &CardSelectors::default());
        assert!(!files.iter().any(|file| file.path == "etc/hostname" || file.path == "etc/machine-id"));
    }

    #[test]
    fn nested_virtualization_is_an_option_of_both_modules_where_it_is_set() {
        let file = |text: &str| {
            let config = parse(text, "f").unwrap();
            let files = render(&config, None, &CardSelectors::default());
            let file = files.into_iter().find(|file| file.path == "etc/modprobe.d/nqrust-host.conf")?;
            String::from_utf8(file.bytes).ok()
        };
        let on = file("os: {host: {nested_virtualization: true}}").unwrap();
        assert!(on.ends_with("\noptions kvm_intel nested=1\noptions kvm_amd nested=1\n"), "{on}");
        let off = file("os: {host: {nested_virtualization: false}}").unwrap();
        assert!(off.contains("kvm_intel nested=0\n"), "{off}");
        assert_eq!(file("os: {host: {iommu: true}}"), None);
    }

    #[test]
    fn debug_output_does_not_show_content() {
        let config = parse("os: {sysctls: {a.b: marked}}", "f").unwrap();
        assert!(!format!("{:?}", render(&config, None, &CardSelectors::default())).contains("marked"));
    }

    proptest! {
        #[test]
        fn no_file_that_others_read_has_the_password_of_a_proxy(
            name in "(?i)(http|https|all)_proxy",
            scheme in "(https?://)?",
            login in "[!-~]{0,5}:MARK[!-~]{0,5}",
        ) {
            let mut config = InstallConfig::default();
            let url = format!("{scheme}{login}@proxy.example.org:3128");
            config.os.environment.insert(name, url.parse().unwrap());
            for file in render(&config, None, &CardSelectors::default()) {
                let text = String::from_utf8_lossy(&file.bytes).into_owned();
                prop_assert!(file.mode & 0o077 == 0 || !text.contains("MARK"), "{}: {text}", file.path);
            }
        }

        #[test]
        fn a_setting_stays_on_its_line(value in "[!-~]([ -~]{0,40}[!-~])?") {
            let mut config = InstallConfig::default();
            config.os.sysctls.insert("a.b".into(), value.parse().unwrap());
            let files = render(&config, None, &CardSelectors::default());
            let file = files.iter().find(|file| file.path.contains("sysctl")).unwrap();
            let text = String::from_utf8(file.bytes.clone()).unwrap();
            prop_assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), [format!("a.b = {value}")]);
        }
    }
}
