//! The node that the tests install, and the checks of the result.
//!
//! A [`Document`] has the values that a test sets in an install configuration; [`Document::to_json`] is the complete
//! configuration for the medium or the node. [`Checks`] collects every difference instead of ending at the first: a
//! boot costs minutes.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, bail};
use model::release::Release;
use serde_json::{Value, json};

use crate::deadline::{Deadline, MACHINE_INTERVAL};
use crate::identity::Identity;
use crate::ssh::Ssh;

/// The path of the node document on the node.
pub const NODE_DOCUMENT: &str = "/oem/node.yaml";

/// The directory of the installer's logs on the node.
pub const INSTALL_LOGS: &str = "/var/log/nqrust";

/// The metrics that the node keeps.
const METRICS: &str = "/run/nqrust-metrics/node.prom";

/// They are written every minute, which an emulated machine can be late for.
const METRICS_LIMIT: Duration = Duration::from_secs(240);

/// Hardware address of the first network card of every test node.
pub const MAC: &str = "52:54:00:6e:71:01";

/// Name servers that QEMU's DHCP server does not offer, so that they can only come from the document.
const NAME_SERVERS: [&str; 2] = ["192.0.2.53", "192.0.2.54"];

/// The beginning of the paths that webhooks request; the name of the event follows.
pub const HOOK: &str = "hook-";

/// A directory that the document asks to keep.
const KEPT: &str = "/etc/e2e-kept";

/// A file that the document asks to write.
const WRITTEN: &str = "/home/operator/greeting";

#[derive(Clone, Debug)]
pub struct Document {
    pub hostname: String,
    /// A static address in 10.0.2.0/24; `None` for DHCP.
    pub address: Option<String>,
    pub swappiness: u32,
    /// The URL where a net-install medium finds its blobs, and which webhooks call.
    pub medium: Option<String>,
    /// The disk of the system; `None` for the only disk.
    pub device: Option<String>,
    /// A second disk for the system.
    pub mirror: Option<String>,
    pub data_disk: Option<String>,
    /// A registry that is a mirror of all others.
    pub registry: Option<RegistryMirror>,
    /// The role; all but management join a cluster that does not exist.
    pub role: &'static str,
}

/// A mirror in a document: its address, its certificate authority, and the credentials.
#[derive(Clone, Debug)]
pub struct RegistryMirror {
    /// Host and port, as the node reaches them.
    pub host: String,
    /// Certificate of its authority, PEM.
    pub authority: String,
    /// Name and password.
    pub login: (String, String),
}

impl Document {
    /// A node called `hostname` on DHCP.
    #[must_use]
    pub fn new(hostname: &str) -> Self {
        Self {
            hostname: hostname.to_owned(),
            address: None,
            swappiness: 7,
            medium: None,
            device: Some("/dev/vda".to_owned()),
            mirror: None,
            data_disk: None,
            registry: None,
            role: "management",
        }
    }

    /// The document, with the secrets of `identity`.
    #[must_use]
    pub fn to_json(&self, identity: &Identity) -> Value {
        let mut interface = json!({ "interfaces": [{ "hw_addr": MAC }], "method": "dhcp" });
        if let Some(address) = &self.address {
            interface["method"] = "static".into();
            interface["ip"] = address.as_str().into();
            interface["subnet_mask"] = "255.255.255.0".into();
            interface["gateway"] = "10.0.2.2".into();
        }
        let mut install = json!({
            "automatic": true, "mode": "create", "role": self.role, "profile": "trial",
            "management_interface": interface,
        });
        for (key, disk) in
            [("device", &self.device), ("mirror", &self.mirror), ("data_disk", &self.data_disk)]
        {
            if let Some(disk) = disk {
                install[key] = disk.as_str().into();
            }
        }
        if self.role != "management" {
            install["mode"] = "join".into();
            // The cluster to join does not exist; only the node's images are checked.
            install["skipchecks"] = true.into();
        }
        if let Some(medium) = &self.medium {
            install["medium"] = medium.as_str().into();
            let hook = |event: &str| {
                let name = event.to_lowercase();
                json!({ "event": event, "method": "GET", "url": format!("{}/{HOOK}{name}?node={{{{.Hostname}}}}", medium.trim_end_matches('/')) })
            };
            install["webhooks"] = json!([hook("STARTED"), hook("SUCCEEDED")]);
        }
        if let Some(registry) = &self.registry {
            install["ca_certificates"] = json!([registry.authority]);
        }
        let mut document = json!({
            "scheme_version": 1,
            "token": identity.token,
            "os": {
                "hostname": self.hostname,
                "ssh_authorized_keys": [identity.public_key],
                "password": identity.password,
                "dns_nameservers": NAME_SERVERS,
                "ntp_servers": ["ntp1.example.org", "ntp2.example.org"],
                "modules": ["br_netfilter"],
                "sysctls": { "vm.swappiness": self.swappiness.to_string() },
                "users": [{ "name": "operator", "ssh_authorized_keys": [identity.public_key], "sudo": true }],
                "environment": { "E2E_VARIABLE": "two words" },
                "persistent_state_paths": [KEPT],
                "write_files": [{
                    "path": WRITTEN, "content": "aGVsbG8K", "encoding": "base64",
                    "owner": "operator", "permissions": "0640",
                }],
            },
            "install": install,
        });
        if self.role != "management" {
            document["server_url"] = "https://10.0.2.99:443".into();
        }
        if let Some(RegistryMirror { host, login: (user, password), .. }) = &self.registry {
            let registries = json!({
                "Mirrors": { "*": { "Endpoints": [format!("https://{host}")] } },
                "Configs": { host: { "Auth": { "Username": user, "Password": password } } },
            });
            document["system_settings"] = json!({ "containerd-registry": registries.to_string() });
        }
        document
    }
}

/// The differences found so far.
#[derive(Debug, Default)]
pub struct Checks(Vec<String>);

impl Checks {
    pub fn that(&mut self, what: &str, holds: bool) {
        if !holds {
            self.0.push(what.to_owned());
        }
    }

    pub fn equal<T: PartialEq<U> + Debug, U: Debug>(&mut self, what: &str, found: T, expected: U) {
        if found != expected {
            self.0.push(format!("{what} is {found:?}, not {expected:?}"));
        }
    }

    pub fn contains(&mut self, what: &str, text: &str, part: &str) {
        if !text.contains(part) {
            self.0.push(format!("{what} has no {part:?}: {text:?}"));
        }
    }

    /// An error with all differences, if there are any.
    pub fn finish(self, what: &str) -> Result<()> {
        if !self.0.is_empty() {
            bail!("{what}: {} of the checks failed:\n- {}", self.0.len(), self.0.join("\n- "));
        }
        Ok(())
    }
}

/// Checks that the node is as `document` says.
pub fn check_document(ssh: &Ssh, document: &Document, checks: &mut Checks) -> Result<()> {
    checks.equal("the host name", ssh.run("hostname")?, document.hostname.as_str());
    checks.equal(
        "vm.swappiness",
        ssh.run("sudo -n sysctl -n vm.swappiness")?,
        document.swappiness.to_string(),
    );
    checks.that("br_netfilter is loaded", ssh.succeeds("grep -q '^br_netfilter ' /proc/modules")?);
    let resolver = ssh.run("cat /etc/resolv.conf")?;
    let servers: Vec<_> = resolver.lines().filter_map(|line| line.strip_prefix("nameserver ")).collect();
    checks.that(
        &format!("the first name servers are those of the document: {servers:?}"),
        servers.starts_with(&NAME_SERVERS),
    );
    let time = ssh.run("timedatectl show-timesync --property=SystemNTPServers --value")?;
    checks.equal("the list of time servers", time, "ntp1.example.org ntp2.example.org");
    checks.equal("the number of the further user", ssh.run("id -u operator")?, "1001");
    checks.that("the further user may become root", ssh.succeeds("sudo -n -u operator sudo -n true")?);
    checks.equal("/etc/environment", ssh.run("grep E2E /etc/environment")?, "E2E_VARIABLE=two words");
    let written = ssh.run(&format!("sudo -n stat -c '%U %a %s' {WRITTEN}"))?;
    checks.equal("owner, mode and size of a file of the document", written, "operator 640 6");
    checks.that("a directory of the document is kept", ssh.succeeds(&format!("findmnt {KEPT}"))?);
    checks.equal("SFTP, which is off", ssh.run("sudo -n sshd -T | grep -c '^subsystem sftp' || true")?, "0");
    checks.equal("multipathd, which is off", ssh.run("systemctl is-active multipathd || true")?, "inactive");
    let data = ssh.run("findmnt -no SOURCE /var/lib/harvester/defaultdisk")?;
    let system = if document.mirror.is_some() { Some("/dev/md") } else { document.device.as_deref() };
    let disk = document.data_disk.as_deref().or(system).unwrap_or("/dev/");
    let node = match disk.starts_with("/dev/disk/") {
        true => ssh.run(&format!("readlink -f {disk}"))?,
        false => disk.to_owned(),
    };
    checks.that(&format!("data is on {disk}, {node}: {data}"), data.starts_with(node.trim()));
    check_network(ssh, document, checks)
}

fn check_network(ssh: &Ssh, document: &Document, checks: &mut Checks) -> Result<()> {
    // One line for each address: number, name, family, address/prefix, and `dynamic` after a lease.
    let addresses = ssh.run("ip -o -4 addr show dev mgmt-br scope global")?;
    let expected = document.address.as_deref().unwrap_or("10.0.2.15");
    checks.contains("the address", &addresses, &format!("inet {expected}/24"));
    checks.equal("the bridge's hardware address", ssh.run("cat /sys/class/net/mgmt-br/address")?, MAC);
    checks.equal("the bond of the bridge", ssh.run("ls /sys/class/net/mgmt-br/brif")?, "mgmt-bo");
    let leased = addresses.split_whitespace().any(|word| word == "dynamic");
    checks.equal("whether the address is leased", leased, document.address.is_none());
    // QEMU's DHCP server names no router on an isolated network.
    if document.address.is_some() {
        let route = ssh.run("ip -4 route show default")?;
        checks.contains("the default route", &route, "via 10.0.2.2");
    }
    Ok(())
}

/// Checks that the root file system is read-only and that only root can read the node's secrets.
pub fn check_immutable(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let options = ssh.run("findmnt -no OPTIONS /")?;
    checks
        .that(&format!("/ is mounted read-only: {options}"), options.split(',').any(|option| option == "ro"));
    checks.that("root cannot write to /usr", !ssh.succeeds("sudo -n touch /usr/x")?);
    let document = ssh.run(&format!("sudo -n stat -c '%a %U' {NODE_DOCUMENT}"))?;
    checks.equal("mode and owner of the node document", document, "600 root");
    checks.that("others cannot read the node document", !ssh.succeeds(&format!("cat {NODE_DOCUMENT}"))?);
    let failed = ssh.run("systemctl list-units --state=failed --no-legend --plain")?;
    checks.equal("the list of failed units", failed, "");
    Ok(())
}

/// Checks that the node keeps its metrics up to date, for everybody to read, and says nothing of it.
pub fn check_metrics(ssh: &Ssh, release: &Release, checks: &mut Checks) -> Result<()> {
    let deadline = Deadline::after(METRICS_LIMIT).every(MACHINE_INTERVAL);
    let read = format!("cat {}", METRICS);
    let text = deadline.poll("writing metrics", || {
        let read = ssh.attempt(&read, METRICS_LIMIT)?;
        Ok((read.code == 0).then_some(read.stdout))
    })?;
    let info = format!("nqrust_node_info{{version=\"{}\",slot=\"a\",role=", release.version);
    checks.contains("the metrics", &text, &info);
    for line in ["nqrust_node_configuration_pending 0\n", "nqrust_node_update_rolled_back 0\n"] {
        checks.contains("the metrics", &text, line);
    }
    let size = ssh.run("df --block-size=1 --output=size /var | tail -1")?;
    checks.contains("the metrics", &text, &format!("nqrust_node_persistent_size_bytes {}\n", size.trim()));
    let mode = ssh.run(&format!("stat -c '%U %a' {}", METRICS))?;
    checks.equal("owner and mode of the metrics", mode, "root 644");
    checks.equal("lines about them", ssh.run("sudo -n journalctl -q -o cat -u nqrust-metrics")?, "");
    let written = format!("stat -c %Y {METRICS}");
    let first = ssh.run(&written)?;
    let again = || Ok((ssh.run(&written)? != first).then_some(()));
    deadline.poll("writing the metrics again", again)?;
    Ok(())
}

/// Checks that containerd has exactly the images of `release` for a node of this role, complete, and keeps a kubelet from
/// removing them.
pub fn check_images(ssh: &Ssh, release: &Release, role: &str, checks: &mut Checks) -> Result<()> {
    let listed = ssh.run("sudo -n ctr -n k8s.io images ls -q")?;
    let names = image_names(release, role);
    checks.that("the medium carries at least two images", names.len() >= 2);
    for image in &release.images {
        let is_there = listed.lines().any(|line| line == image.name);
        checks.equal(
            &format!("whether {} is in containerd", image.name),
            is_there,
            names.contains(&&*image.name),
        );
    }
    let pinned = r#"'labels."io.cri-containerd.pinned"==pinned'"#;
    let pinned = ssh.run(&format!("sudo -n ctr -n k8s.io images ls -q {pinned}"))?;
    let checked = ssh.run("sudo -n ctr -n k8s.io images check")?;
    for name in &names {
        let line = checked.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        checks.contains(&format!("the check of {name}"), line, " complete (");
        // Not so the names that containerd's CRI plug-in adds, which are digests: one that is pinned is enough for it.
        checks.that(&format!("{name} is pinned"), pinned.lines().any(|line| line == *name));
    }
    checks.that(
        "the installer's own check of the images passes",
        ssh.succeeds("sudo -n installer images check")?,
    );
    Ok(())
}

/// The names of the images for a node of this role.
#[must_use]
pub fn image_names<'a>(release: &'a Release, role: &str) -> Vec<&'a str> {
    let for_us = |roles: &[String]| roles.is_empty() || roles.iter().any(|name| name == role);
    release.images.iter().filter(|image| for_us(&image.roles)).map(|image| image.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_a_configuration() {
        let mut identity = Identity::sample("marked-password-1", "marked-token-1");
        identity.public_key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g e2e".to_owned();
        for address in [None, Some("10.0.2.40".to_owned())] {
            let medium = Some("http://10.0.2.2:8000".to_owned());
            let document = Document { address, medium, ..Document::new("node") };
            let text = document.to_json(&identity).to_string();
            assert!(model::config::parse(&text, "e2e").is_ok(), "{text}");
        }
    }
}
