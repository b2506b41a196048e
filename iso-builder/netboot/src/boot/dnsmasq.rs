//! DHCP and TFTP by dnsmasq, which runs as a child with a configuration written here: beside an existing DHCP server
//! (ProxyDHCP), or as the only one. It gives a machine's firmware a loader, and iPXE its script.
//!
//! Options are those of dnsmasq(8). The numbers of architectures are those of the IANA registry of RFC 4578 and RFC 5970:
//! 0 is a BIOS, 6, 7 and 9 are UEFI of x86 over TFTP, 11 is that of 64-bit Arm, 16 and 19 are the same over HTTP.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use base::files::write_atomically;
use model::architecture::Architecture;
use tempfile::{Builder, TempDir};
use tokio::process::{Child, Command};
use transfer::server::served_file::ServedFile;

use medium::network_boot::loaders::NetworkLoaders;

const PROGRAM: &str = "dnsmasq";
/// The directory for files that a restart of the machine removes.
const RUN: &str = "/run";
/// Lease time where this is the only DHCP server.
const LEASE: &str = "1h";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DhcpMode {
    /// ProxyDHCP: adds boot information to the answers of another DHCP server.
    Proxy {
        /// Any address of the network.
        network: Ipv4Addr,
    },
    /// The only DHCP server of the network.
    Full {
        first: Ipv4Addr,
        /// The last address of the range, inclusive.
        last: Ipv4Addr,
        /// The gateway, if the network has one.
        router: Option<Ipv4Addr>,
        dns: Vec<Ipv4Addr>,
    },
}

#[derive(Clone, Debug)]
pub struct DnsmasqSettings {
    pub mode: DhcpMode,
    /// The architecture of the machines that get a loader. Others get none.
    pub architecture: Architecture,
    /// The only interface to answer on; all interfaces if none.
    pub interface: Option<String>,
    /// Where machines reach the HTTP server, without a slash at its end.
    pub base: String,
    pub tftp: PathBuf,
    pub leases: PathBuf,
}

impl DnsmasqSettings {
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines = vec![
            "# Written by `iso-builder serve`; changes are lost.".to_owned(),
            "# No DNS.".into(),
            "port=0".into(),
            "log-dhcp".into(),
            format!("dhcp-leasefile={}", self.leases.display()),
            "enable-tftp".into(),
            format!("tftp-root={}", self.tftp.display()),
        ];
        if let Some(interface) = &self.interface {
            lines.push(format!("interface={interface}"));
            lines.push("bind-interfaces".into());
        }
        lines.push("# iPXE identifies itself by its own option or by its user class.".into());
        lines.push("dhcp-match=set:ipxe,175".into());
        lines.push("dhcp-userclass=set:ipxe,iPXE".into());
        match &self.mode {
            DhcpMode::Proxy { network } => lines.extend(self.proxy(*network)),
            DhcpMode::Full { first, last, router, dns } => {
                lines.extend(self.full(*first, *last, *router, dns));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
    /// ProxyDHCP offers PXE services: a loader to firmware, the script to iPXE.
    fn proxy(&self, network: Ipv4Addr) -> Vec<String> {
        let Self { base, architecture, .. } = self;
        let loaders = NetworkLoaders::of(*architecture);
        // dnsmasq's names of architectures.
        let (bios, uefi): (&[_], &[_]) = match architecture {
            Architecture::Amd64 => (&["x86PC"], &["BC_EFI", "X86-64_EFI"]),
            Architecture::Arm64 => (&[], &["ARM64_EFI"]),
        };
        let mut lines = vec![
            "# Beside another DHCP server, which assigns the addresses.".to_owned(),
            format!("dhcp-range={network},proxy"),
        ];
        let service =
            |tag: &str, kind: &str, what: &str| format!("pxe-service=tag:{tag},{kind},\"NQRust\",{what}");
        lines.extend(bios.iter().zip(loaders.bios).map(|(kind, loader)| service("!ipxe", kind, loader)));
        lines.extend(uefi.iter().map(|kind| service("!ipxe", kind, loaders.uefi)));
        let script = format!("{base}/boot.ipxe");
        lines.extend(bios.iter().chain(uefi).map(|kind| service("ipxe", kind, &script)));
        lines
    }

    /// A DHCP server answers by architecture; the last matching line applies.
    fn full(
        &self,
        first: Ipv4Addr,
        last: Ipv4Addr,
        router: Option<Ipv4Addr>,
        dns: &[Ipv4Addr],
    ) -> Vec<String> {
        let Self { base, architecture, .. } = self;
        let NetworkLoaders { bios, uefi, .. } = NetworkLoaders::of(*architecture);
        let (over_tftp, over_http): (&[u8], u8) = match architecture {
            Architecture::Amd64 => (&[6, 7, 9], 16),
            Architecture::Arm64 => (&[11], 19),
        };
        let list: Vec<_> = dns.iter().map(ToString::to_string).collect();
        // An option without a value keeps dnsmasq from sending its own address.
        let router = router.map(|router| format!(",{router}")).unwrap_or_default();
        let dns = if list.is_empty() { String::new() } else { format!(",{}", list.join(",")) };
        let mut lines = vec![
            "# The only DHCP server of the network.".to_owned(),
            "dhcp-authoritative".into(),
            format!("dhcp-range={first},{last},{LEASE}"),
            format!("dhcp-option=option:router{router}"),
            format!("dhcp-option=option:dns-server{dns}"),
        ];
        lines.extend(bios.map(|_| "dhcp-match=set:bios,option:client-arch,0".to_owned()));
        lines.extend(
            over_tftp.iter().map(|number| format!("dhcp-match=set:uefi,option:client-arch,{number}")),
        );
        lines.push(format!("dhcp-match=set:http,option:client-arch,{over_http}"));
        lines.extend(bios.map(|loader| format!("dhcp-boot=tag:!ipxe,tag:bios,{loader}")));
        lines.push(format!("dhcp-boot=tag:!ipxe,tag:uefi,{uefi}"));
        lines.push("# UEFI accepts HTTP boot only from a server with this vendor class.".into());
        lines.push("dhcp-option-force=tag:!ipxe,tag:http,option:vendor-class,HTTPClient".into());
        lines.push(format!("dhcp-boot=tag:!ipxe,tag:http,\"{base}/loaders/{uefi}\""));
        lines.push(format!("dhcp-boot=tag:ipxe,\"{base}/boot.ipxe\""));
        lines
    }
}

/// Makes an empty directory for TFTP that every user can read, as dnsmasq drops its privileges. The directory of the
/// state is closed to others, as may be the home that it is in. The directory is removed when dropped.
pub fn tftp_directory() -> Result<TempDir> {
    let make = |parent: &Path| Builder::new().prefix("nqrust-tftp-").tempdir_in(parent);
    let made = make(Path::new(RUN)).or_else(|_| make(&std::env::temp_dir()));
    // Set the mode explicitly: the umask of the caller may be stricter.
    let made = made.and_then(|made| {
        fs::set_permissions(made.path(), Permissions::from_mode(0o755))?;
        Ok(made)
    });
    made.class(Class::DiskIo, || "making a directory for TFTP".into())
}

/// Writes the loaders into the directory for TFTP, and dnsmasq's configuration into `configuration`.
pub fn prepare(
    settings: &DnsmasqSettings,
    loaders: &BTreeMap<String, ServedFile>,
    configuration: &Path,
) -> Result<()> {
    let needed = NetworkLoaders::of(settings.architecture);
    for name in needed.ipxe() {
        let Some(served) = loaders.get(name) else {
            let what =
                format!("this host lacks the loader {name} for machines with {}", settings.architecture);
            let hint = match needed.bios {
                Some(_) => "Install it with `apt-get install ipxe`, or name its directory with --loaders.",
                None => {
                    "Take it from the package ipxe of Debian 13 or later, and name its directory with --loaders."
                }
            };
            return Err(Failure::new(Class::Hardware, what).hint(hint).into());
        };
        let what = || format!("reading {name}");
        let mut bytes = vec![0; usize::try_from(served.length).class(Class::Unexpected, what)?];
        let count = served.read_at(&mut bytes, 0).class(Class::DiskIo, what)?;
        bytes.truncate(count);
        write_atomically(&settings.tftp.join(name), &bytes, 0o644).class(Class::DiskIo, what)?;
    }
    write_atomically(configuration, settings.render().as_bytes(), 0o644)
        .class(Class::DiskIo, || "writing the configuration of dnsmasq".into())
}

/// Starts dnsmasq in the foreground. It is killed when the child is dropped.
pub fn spawn(configuration: &Path) -> Result<Child> {
    let mut command = Command::new(PROGRAM);
    command.arg("--keep-in-foreground").arg("--log-facility=-");
    command.arg(format!("--conf-file={}", configuration.display()));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let failure = Failure::new(Class::Hardware, "starting dnsmasq").because(error);
        match missing {
            true => failure.hint("Install it with `apt-get install dnsmasq-base`."),
            false => failure,
        }
        .into()
    })
}

/// The error for dnsmasq ending while the server runs.
#[must_use]
pub fn ended(status: std::io::Result<std::process::ExitStatus>) -> anyhow::Error {
    let why = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    Failure::new(Class::Network, "dnsmasq has ended")
        .because(anyhow!("{why}"))
        .hint("See its messages above. It needs root, and the ports 67, 69 and 4011 must be free.")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::golden;
    use base::failure::render;

    const BIOS: &str = "undionly.kpxe";
    const UEFI: &str = "ipxe.efi";

    fn settings(mode: DhcpMode) -> DnsmasqSettings {
        DnsmasqSettings {
            mode,
            architecture: Architecture::Amd64,
            interface: Some("eth1".into()),
            base: "http://192.0.2.1:8080".into(),
            tftp: "/var/lib/nqrust/dnsmasq/tftp".into(),
            leases: "/var/lib/nqrust/dnsmasq/leases".into(),
        }
    }

    fn arm64(mode: DhcpMode) -> DnsmasqSettings {
        DnsmasqSettings { architecture: Architecture::Arm64, ..settings(mode) }
    }

    fn modes() -> [(&'static str, DhcpMode); 3] {
        let full = |router, dns| DhcpMode::Full {
            first: Ipv4Addr::new(192, 0, 2, 100),
            last: Ipv4Addr::new(192, 0, 2, 199),
            router,
            dns,
        };
        let address = |last| Ipv4Addr::new(192, 0, 2, last);
        [
            ("proxy", DhcpMode::Proxy { network: address(0) }),
            ("full", full(Some(address(254)), vec![address(53), address(54)])),
            ("isolated", full(None, vec![])),
        ]
    }

    #[test]
    fn configurations_read_as_recorded() {
        for (name, mode) in modes() {
            golden(&format!("dnsmasq-{name}.conf"), &settings(mode.clone()).render());
            golden(&format!("dnsmasq-{name}-arm64.conf"), &arm64(mode).render());
        }
    }

    #[test]
    fn dnsmasq_itself_accepts_them() {
        let directory = tempfile::tempdir().unwrap();
        for (name, settings) in
            modes().into_iter().flat_map(|(name, mode)| [(name, settings(mode.clone())), (name, arm64(mode))])
        {
            let path = directory.path().join(name);
            fs::write(&path, settings.render()).unwrap();
            let argument = format!("--conf-file={}", path.display());
            let output = std::process::Command::new(PROGRAM).arg("--test").arg(argument).output();
            // `make setup` installs dnsmasq; without it this part is left out.
            assert!(output.is_ok() || std::env::var_os("CI").is_none(), "this test needs {PROGRAM}");
            let Ok(output) = output else { return };
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn a_missing_loader_is_told_with_the_package_that_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let settings =
            DnsmasqSettings { tftp: directory.path().join("tftp"), ..settings(modes()[0].1.clone()) };
        let configuration = directory.path().join("dnsmasq.conf");
        let only = BTreeMap::from([(BIOS.to_owned(), ServedFile::in_memory(b"loader".to_vec()))]);
        let text = render(&prepare(&settings, &only, &configuration).unwrap_err());
        assert!(text.contains(UEFI) && text.contains("apt-get install ipxe"), "{text}");
        let arm64 = DnsmasqSettings { architecture: Architecture::Arm64, ..settings.clone() };
        let text = render(&prepare(&arm64, &only, &configuration).unwrap_err());
        assert!(text.contains("ipxe-arm64.efi") && text.contains("ipxe of Debian 13 or later"), "{text}");
        let both = BTreeMap::from(
            [BIOS, UEFI].map(|name| (name.to_owned(), ServedFile::in_memory(b"loader".to_vec()))),
        );
        prepare(&settings, &both, &configuration).unwrap();
        assert_eq!(fs::read_to_string(configuration).unwrap(), settings.render());
        assert_eq!(fs::read(directory.path().join("tftp").join(BIOS)).unwrap(), b"loader");
    }

    #[test]
    fn every_user_can_read_the_directory_for_tftp_and_it_goes_with_the_server() {
        let directory = tftp_directory().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let closed = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o001 == 0;
        assert!(!path.ancestors().any(closed), "{}", path.display());
        drop(directory);
        assert!(!path.exists());
    }
}
