//! The installing system of a release, and the commands with which iPXE and GRUB start it. Pure functions of what is served.

use anyhow::Result;
use base::digest::Digest;
use model::architecture::Architecture;
use model::boot::parameter;
use model::release::Purpose;

use super::files::MediumFiles;
use super::{IPXE_START, MEDIUM};
use crate::iso::menu::screen_first;

/// Attempts of a loader before it boots from disk.
pub const ATTEMPTS: u32 = 5;
/// Seconds between two attempts.
pub const PAUSE: u32 = 10;
/// The iPXE setting that counts failed loads. Settings outlive the script that makes them.
const FAILURES: &str = "failures";
/// How iPXE boots from disk. UEFI firmware tries the next entry of its boot order if a loader failed; if the loader
/// ended well, it shows its menu (UEFI 2.10, 3.1.1). A BIOS is told to start the first disk.
pub const IPXE_DISK: &str =
    "iseq ${platform} efi && exit 1 ||\nsanboot --no-describe --drive 0x80 || exit 1\n";

/// The installing system, which is the same for every machine.
#[derive(Clone, Debug)]
pub struct BootSystem {
    architecture: Architecture,
    product: String,
    kernel: String,
    initrd: String,
    rootfs: String,
    rootfs_sha256: Digest,
    release: Digest,
    /// The path of the medium's files on the server, below the digest of their release.
    medium: String,
    arguments: Vec<String>,
}

impl BootSystem {
    /// The system on the medium; `further` are more kernel arguments.
    pub fn of(files: &MediumFiles, further: &[String]) -> Result<Self> {
        let release = files.release();
        let path = |purpose| files.path_of(purpose).map(|(path, _)| path.to_owned());
        let (rootfs, rootfs_sha256) = files.path_of(Purpose::Rootfs)?;
        Ok(Self {
            architecture: release.architecture,
            product: format!("{} {}", release.name, release.version),
            kernel: path(Purpose::Kernel)?,
            initrd: path(Purpose::Initrd)?,
            rootfs: rootfs.to_owned(),
            rootfs_sha256,
            release: files.release_digest(),
            medium: format!("{MEDIUM}{}", files.folder()),
            arguments: release.kernel_arguments.iter().chain(further).cloned().collect(),
        })
    }

    /// The path of the medium's files on the server, below the digest of their release, with a slash at its end.
    #[must_use]
    pub fn medium(&self) -> &str {
        &self.medium
    }

    /// The kernel's arguments, for a server that machines reach at `base`; the last ones are `install`, those for the
    /// installer. The OS image is checked against `nqrust.rootfs` in the initrd before it is mounted, everything else against
    /// `nqrust.release`.
    #[must_use]
    pub fn arguments(&self, base: &str, install: &[String]) -> Vec<String> {
        let medium = format!("{base}{}", self.medium);
        let mut arguments = vec![
            format!("root=live:{medium}{}", self.rootfs),
            format!("{}={}", parameter::ROOTFS, self.rootfs_sha256.oci()),
        ];
        let fixed = "rd.live.image rd.live.overlay.overlayfs=1 rd.neednet=1 ip=dhcp rd.shell=0";
        arguments.extend(fixed.split(' ').map(str::to_owned));
        arguments.push(format!("{}=install", parameter::MODE));
        arguments.push(format!("{}={}", parameter::RELEASE, self.release.oci()));
        arguments.extend(screen_first(self.architecture).split(' ').map(str::to_owned));
        arguments.extend(self.arguments.iter().chain(install).cloned());
        arguments
    }

    /// The script with which iPXE starts an install.
    #[must_use]
    pub fn ipxe(&self, base: &str, install: &[String]) -> String {
        let Self { product, kernel, initrd, medium, .. } = self;
        let arguments = self.arguments(base, install).join(" ");
        format!(
            "#!ipxe\n\
             echo {product}: installing this machine\n\
             kernel {base}{medium}{kernel} initrd=initrd {arguments} || goto failed\n\
             initrd --name initrd {base}{medium}{initrd} || goto failed\n\
             boot || goto failed\n\
             :failed\n\
             inc {FAILURES}\n\
             iseq ${{{FAILURES}}} {ATTEMPTS} && goto leave ||\n\
             echo The system did not load; asking again in {PAUSE} seconds\n\
             sleep {PAUSE}\n\
             imgfree\n\
             chain --replace {base}{IPXE_START} || goto failed\n\
             :leave\n\
             imgfree\n\
             echo The system did not load: booting from disk\n\
             {IPXE_DISK}"
        )
    }

    /// The commands with which GRUB starts an install. If that fails, GRUB goes on with what follows them.
    #[must_use]
    pub fn grub(&self, base: &str, install: &[String]) -> String {
        let Self { product, kernel, initrd, medium, .. } = self;
        let arguments: Vec<_> = self.arguments(base, install).iter().map(|word| quoted(word)).collect();
        format!(
            "echo {}\n\
             if linux {medium}{kernel} {}; then\n\
             \x20   if initrd {medium}{initrd}; then boot; fi\n\
             fi\n\
             echo 'The system did not load.'\n",
            quoted(&format!("{product}: installing this machine")),
            arguments.join(" "),
        )
    }
}

/// Quotes a word for GRUB's command line, where single quotes keep everything but themselves.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// True if a URL or a kernel argument can stand in scripts: nothing in it ends a word or is expanded.
#[must_use]
pub fn is_plain(word: &str) -> bool {
    let plain =
        |c: char| c.is_ascii_graphic() && !matches!(c, '\'' | '"' | '\\' | '`' | '$' | '#' | '&' | '|' | ';');
    !word.is_empty() && word.chars().all(plain)
}

/// True for a name or an address with an optional port, in which nothing has a meaning in a script.
#[must_use]
pub fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !host.is_empty() && host.len() <= 255 && host.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_grub_keep_what_is_in_them() {
        for (word, expected) in
            [("a=b", "a=b"), ("a b", "'a b'"), ("$a;b", "'$a;b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_word_with_a_meaning_in_a_script_is_not_plain() {
        for (word, plain) in [
            ("http://192.0.2.1:8080", true),
            ("https://[2001:db8::1]:8443", true),
            ("console=ttyS1,115200n8", true),
            ("${net0/mac}", false),
            ("a b", false),
            ("a\nb", false),
            ("a&&b", false),
            ("", false),
        ] {
            assert_eq!(is_plain(word), plain, "{word}");
        }
        for (host, good) in [
            ("192.0.2.1:7480", true),
            ("[2001:db8::1]:80", true),
            ("a/b", false),
            ("${x}", false),
            ("", false),
        ] {
            assert_eq!(is_host(host), good, "{host}");
        }
    }
}
