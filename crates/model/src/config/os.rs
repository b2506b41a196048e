//! Settings of the operating system, applied at every boot.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{
    AbsolutePath, FileMode, Hostname, KernelArguments, KeyboardLayout, Line, ModuleName, Owner,
    PersistentPath, SshKey, SysctlValue, Text, TimeServer, TimeZone, UserName,
};
use crate::architecture::Architecture;
use crate::kernel_line::unquoted;

use super::{BootPassword, HostSettings, Secret, Trust};

/// Settings of the operating system, applied at every boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// Host name, lower-case letters, digits, `-` and `.` (RFC 1123), at most 63; also the name of the node
    /// in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Hostname>,
    /// Public keys that may log in as `rancher`: literal ones, or `github:NAME`, `gitlab:NAME` and URLs, which the
    /// installer fetches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_authorized_keys: Vec<SshKey>,
    /// Password of `rancher`: a crypt(5) hash, or clear text that is hashed before it is stored. Without one only keys log
    /// in; what locks an account in shadow(5), such as `*` or `!`, is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "password"))]
    pub password: Option<Secret>,
    /// A file of the installing system that holds the password, instead of `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<AbsolutePath>,
    /// Password of the boot menu, for its editor and its command line, as a hash by `grub-mkpasswd-pbkdf2`; the user is
    /// `root`. Set at the install, on the node and on a medium that carries the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_password: Option<BootPassword>,
    /// Further users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Files to write at every boot, below `/etc`, below what lasts, and not those that other keys make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write_files: Vec<WriteFile>,
    /// Name servers, in order. A management network with `method: static` needs one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_nameservers: Vec<Ipv4Addr>,
    /// Time servers: names or addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<TimeServer>,
    /// Time zone of logs and sessions by its name in the tz database, such as `Europe/Berlin`; UTC unless given, and where the
    /// node does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<TimeZone>,
    /// Layout of the keyboard at the screen: a keymap such as `de-latin1`, or a layout of XKB such as `gb` or `de(nodeadkeys)`; `us`
    /// unless given, and where the node has no keymap for it. Serial consoles have the layout of their terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyboard: Option<KeyboardLayout>,
    /// Kernel modules to load at boot, beside `kvm` and `vhost_net`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleName>,
    /// Kernel settings, as in sysctl.conf(5).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "sysctl-key" }))]
    pub sysctls: BTreeMap<String, SysctlValue>,
    /// Variables of `/etc/environment`, which every user of the node can read. The proxies among them (`HTTP_PROXY`,
    /// `HTTPS_PROXY`, `NO_PROXY`, in any case) are also those of containerd, the kubelet, RKE2, K3s and the installer; a login
    /// in their URLs goes to these alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "environment-name" }))]
    pub environment: BTreeMap<String, Line>,
    /// Labels of the node in the cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "label-key" }))]
    pub labels: BTreeMap<String, super::LabelValue>,
    /// The SSH server.
    pub sshd: Sshd,
    /// Directories of the node whose content lasts, beside those that last anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persistent_state_paths: Vec<PersistentPath>,
    /// Storage that is reached over several paths.
    pub external_storage_config: ExternalStorage,
    /// The machine under the virtual machines: huge pages, devices for virtual machines, processors.
    #[serde(skip_serializing_if = "HostSettings::is_empty")]
    pub host: HostSettings,
    /// Which releases are installed on this node, and which it is updated to.
    #[serde(skip_serializing_if = "Trust::is_empty")]
    pub trust: Trust,
    /// Arguments to add to the kernel command line of the installed node, after all others. `multipath=off`
    /// stays with them; `external_storage_config.enabled` takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_kernel_arguments: Option<KernelArguments>,
}

impl Os {
    /// The arguments of the kernel that follow from `host`, without those that `additional_kernel_arguments` sets itself.
    #[must_use]
    pub fn host_words(&self, architecture: Architecture) -> Vec<String> {
        let own = unquoted(self.additional_kernel_arguments.as_deref().unwrap_or_default());
        let name = |word: &str| word.split_once('=').map_or(word, |(name, _)| name).to_owned();
        let mut words = self.host.kernel_words(architecture);
        words.retain(|word| !own.iter().any(|own| name(own) == name(word)));
        words
    }
}

/// One user beside `rancher`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Login name.
    pub name: UserName,
    /// A crypt(5) hash, or clear text that is hashed before it is stored; without one, only keys log in. What locks an
    /// account in shadow(5), such as `*` or `!`, is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "password"))]
    pub password: Option<Secret>,
    /// Public keys that may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_authorized_keys: Vec<SshKey>,
    /// Whether the user may become root without a password.
    #[serde(default)]
    pub sudo: bool,
}

/// One file to write at every boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// Where.
    pub path: AbsolutePath,
    /// What, as `encoding` says; never shown in messages.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    pub content: Text,
    /// How `content` is written.
    #[serde(default)]
    pub encoding: Encoding,
    /// User, or user and group joined by `:`. Unless given it is the user whose home the file is in, else root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Permissions in octal digits, `0600` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<FileMode>,
}

/// How the content of a file is written in the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Encoding {
    /// As it is.
    #[default]
    #[serde(rename = "")]
    Plain,
    /// Base64.
    #[serde(rename = "b64")]
    B64,
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
    /// Gzip in base64.
    #[serde(rename = "gz+b64")]
    GzB64,
    /// Gzip in base64.
    #[serde(rename = "gz+base64")]
    GzBase64,
    /// Gzip in base64.
    #[serde(rename = "gzip+b64")]
    GzipB64,
    /// Gzip in base64.
    #[serde(rename = "gzip+base64")]
    GzipBase64,
}

/// The SSH server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sshd {
    /// Whether files can be transferred over SFTP.
    pub sftp: bool,
    /// Whether only keys can log in over SSH, no passwords; some user needs a key then.
    pub disable_password_auth: bool,
}

/// Storage that is reached over several paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExternalStorage {
    /// Whether multipathd takes every disk with several paths. Those that the node is on it takes in any case; where there are none
    /// and this is false, the kernel is told `multipath=off`.
    pub enabled: bool,
    /// Which devices multipathd leaves alone: a list names the only vendors and products that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_path_config: Option<MultiPath>,
}

/// Which devices multipathd leaves alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MultiPath {
    /// It takes only these.
    Only(Vec<MultiPathDevice>),
    /// It takes all but those.
    Lists(MultiPathLists),
}

/// The lists of multipath.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MultiPathLists {
    /// Devices to leave alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blacklist: Vec<MultiPathDevice>,
    /// World wide identifiers to leave alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blacklist_wwids: Vec<Line>,
    /// Devices to take all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blacklist_exceptions: Vec<MultiPathDevice>,
    /// World wide identifiers to take all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blacklist_exception_wwids: Vec<Line>,
}

/// A device by vendor and product, both regular expressions of multipath.conf(5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiPathDevice {
    /// The vendor.
    pub vendor: Line,
    /// The product.
    pub product: Line,
}
