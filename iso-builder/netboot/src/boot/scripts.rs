//! Boot scripts of iPXE and GRUB. Pure functions of what is served and of the machine.
//!
//! iPXE sends the MAC addresses of its cards, UUID, serial number and asset tag. The signed GRUB of Debian 12 sends only the
//! address of the card that it was started from, for it has no module that reads the firmware's tables; and its HTTP client
//! knows port 80 only.

use std::fmt::Write as _;

use anyhow::Result;
use base::digest::Digest;
use medium::iso::menu::screen_first;
use model::architecture::Architecture;
use model::boot::parameter;
use model::release::Purpose;

use crate::content::files::MediumFiles;
use crate::machines::machine::DiskBootReason;
use crate::protocol::{BOOT, ENROLL, GRUB, MEDIUM, REPORT, parameters};

/// Attempts of a loader before it boots from disk.
const ATTEMPTS: u32 = 5;
/// Seconds between two attempts.
const PAUSE: u32 = 10;
/// How often a loader asks again while the server's database does not answer, before it boots from disk: five minutes.
const WAITS: u32 = 30;
/// The iPXE setting that counts these.
const WAITED: &str = "waited";
/// The iPXE setting that counts failed loads. Settings outlive the script that makes them.
const FAILURES: &str = "failures";
/// How iPXE boots from disk. UEFI firmware tries the next entry of its boot order if a loader failed; if the loader
/// ended well, it shows its menu (UEFI 2.10, 3.1.1). A BIOS is told to start the first disk.
const IPXE_DISK: &str = "iseq ${platform} efi && exit 1 ||\nsanboot --no-describe --drive 0x80 || exit 1\n";

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

/// The tokens of one deployment of one machine.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentTokens<'a> {
    /// For [`CONFIGURATION`](crate::protocol::CONFIGURATION).
    pub configuration: &'a str,
    pub report: &'a str,
    pub word: &'a str,
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

    /// The kernel's arguments, for a server that machines reach at `base`. The OS image is checked against
    /// `nqrust.rootfs` in the initrd before it is mounted, everything else against `nqrust.release`.
    #[must_use]
    pub fn arguments(&self, base: &str, deployment: DeploymentTokens<'_>) -> Vec<String> {
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
        arguments.extend(self.arguments.iter().cloned());
        arguments.extend(parameters(base, &self.medium, deployment.configuration, deployment.word));
        arguments.push(format!("{}={base}{REPORT}{}", parameter::REPORT, deployment.report));
        arguments
    }

    /// The script with which iPXE starts an install.
    #[must_use]
    pub fn ipxe(&self, base: &str, deployment: DeploymentTokens<'_>) -> String {
        let Self { product, kernel, initrd, medium, .. } = self;
        let arguments = self.arguments(base, deployment).join(" ");
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
             chain --replace {base}/boot.ipxe || goto failed\n\
             :leave\n\
             imgfree\n\
             echo The system did not load: booting from disk\n\
             {IPXE_DISK}"
        )
    }

    /// The commands with which GRUB starts an install. If that fails, [`grub_start`] continues.
    #[must_use]
    pub fn grub(&self, base: &str, deployment: DeploymentTokens<'_>) -> String {
        let Self { product, kernel, initrd, medium, .. } = self;
        let arguments: Vec<_> = self.arguments(base, deployment).iter().map(|word| quoted(word)).collect();
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

/// The first script of every iPXE: it asks for [`BOOT`] with all that it knows of the machine. URLs are relative to
/// that of the script. If the server does not answer, iPXE tries [`ATTEMPTS`] times, which takes longer than a restart
/// of the server; then the machine boots from its disk, as does one of another architecture, whose iPXE is not from here.
/// `enroll` is the token that the request for this script brought.
#[must_use]
pub fn ipxe_start(architecture: Architecture, enroll: Option<&str>) -> String {
    // iPXE has one name for machines with a BIOS, another one with UEFI.
    let other = match architecture {
        Architecture::Amd64 => "iseq ${buildarch} arm64 && goto other ||",
        Architecture::Arm64 => "iseq ${buildarch} arm64 || goto other",
    };
    // Without colons: iPXE 1.0 takes the text before one for the scheme, even in a relative URL.
    let mut query = "mac=${netX/mac:hexhyp}".to_owned();
    for card in 0..4 {
        let _ = write!(query, "&mac=${{net{card}/mac:hexhyp}}");
    }
    query.push_str("&uuid=${uuid}&serial=${serial:uristring}&asset=${asset:uristring}");
    if let Some(token) = enroll {
        let _ = write!(query, "&{ENROLL}={token}");
    }
    format!(
        "#!ipxe\n\
         {other}\n\
         set attempts:int32 0\n\
         :ask\n\
         chain --replace {BOOT}?{query} || goto again\n\
         :again\n\
         inc attempts\n\
         iseq ${{attempts}} {ATTEMPTS} && goto leave ||\n\
         echo The server does not answer; asking again in {PAUSE} seconds\n\
         sleep {PAUSE}\n\
         goto ask\n\
         :leave\n\
         echo The server does not answer: booting from disk\n\
         {IPXE_DISK}\
         :other\n\
         echo This server installs {architecture}, and this machine is ${{buildarch}}: booting from disk\n\
         {IPXE_DISK}"
    )
}

/// The first commands of every GRUB, `/grub/grub.cfg`, with the same attempts. A script that boots nothing returns to
/// them.
#[must_use]
pub fn grub_start() -> String {
    let attempts: Vec<String> = (1..=ATTEMPTS).map(|number| number.to_string()).collect();
    format!(
        "set timeout=0\n\
         for attempt in {}; do\n\
         \x20   configfile {GRUB}$net_default_mac\n\
         \x20   echo 'The server does not answer; asking again in {PAUSE} seconds.'\n\
         \x20   sleep {PAUSE}\n\
         done\n\
         echo 'The server does not answer: booting from disk.'\n\
         exit\n",
        attempts.join(" "),
    )
}

/// The script of an iPXE whose request cannot be decided now: it asks again, with all that it knows.
#[must_use]
pub fn ipxe_wait(enroll: Option<&str>) -> String {
    let leave = WAITS + 1;
    let query = enroll.map(|token| format!("?{ENROLL}={token}")).unwrap_or_default();
    format!(
        "#!ipxe\n\
         :again\n\
         inc {WAITED}\n\
         iseq ${{{WAITED}}} {leave} && goto leave ||\n\
         echo The database of the server does not answer; asking again in {PAUSE} seconds\n\
         sleep {PAUSE}\n\
         chain --replace /boot.ipxe{query} || goto again\n\
         :leave\n\
         echo The database of the server does not answer: booting from disk\n\
         {IPXE_DISK}"
    )
}

/// The commands of a GRUB whose request cannot be decided now. [`grub_start`], which continues after them, asks again; all its
/// attempts take as long as those of [`ipxe_wait`].
#[must_use]
pub fn grub_wait() -> String {
    let (all, pause) = (WAITS * PAUSE / ATTEMPTS, WAITS * PAUSE / ATTEMPTS - PAUSE);
    let text = format!("The database of the server does not answer; asking again in {all} seconds.");
    format!("echo {}\nsleep {pause}\n", quoted(&text))
}

#[must_use]
pub fn ipxe_disk(why: DiskBootReason) -> String {
    format!("#!ipxe\necho Booting from disk: {why}\n{IPXE_DISK}")
}

#[must_use]
pub fn grub_disk(why: DiskBootReason) -> String {
    format!("echo {}\nsleep 2\nexit\n", quoted(&format!("Booting from disk: {why}")))
}

/// Quotes a word for GRUB's command line, where single quotes keep everything but themselves.
fn quoted(word: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{golden, medium};
    use model::release::MediumKind;

    const BASE: &str = "http://192.0.2.1:8080";
    const DEPLOYMENT: DeploymentTokens<'static> = DeploymentTokens {
        configuration: "0123456789abcdef_0123456789abcdef",
        report: "fedcba9876543210-fedcba98",
        word: "0123456789abcdef",
    };

    fn system() -> BootSystem {
        let sample = medium(MediumKind::Full);
        BootSystem::of(&MediumFiles::open(&sample.tree()).unwrap(), &["console=hvc0".to_owned()]).unwrap()
    }

    #[test]
    fn scripts_read_as_recorded() {
        let system = system();
        golden("start.ipxe", &ipxe_start(Architecture::Amd64, None));
        golden("start-arm64.ipxe", &ipxe_start(Architecture::Arm64, None));
        golden("install.ipxe", &system.ipxe(BASE, DEPLOYMENT));
        golden("disk.ipxe", &ipxe_disk(DiskBootReason::Installed));
        golden("wait.ipxe", &ipxe_wait(None));
        golden("start-enroll.ipxe", &ipxe_start(Architecture::Amd64, Some("nqrust_0123abcd_0")));
        golden("wait-enroll.ipxe", &ipxe_wait(Some("nqrust_0123abcd_0")));
        golden("wait.grub", &grub_wait());
        golden("start.grub", &grub_start());
        golden("install.grub", &system.grub(BASE, DEPLOYMENT));
        golden("disk.grub", &grub_disk(DiskBootReason::Unknown));
    }

    #[test]
    fn a_script_that_boots_from_disk_loads_nothing() {
        for why in [
            DiskBootReason::Unknown,
            DiskBootReason::Incomplete,
            DiskBootReason::Denied,
            DiskBootReason::Started,
            DiskBootReason::Installed,
            DiskBootReason::Conflict,
            DiskBootReason::Trouble,
        ] {
            for text in [ipxe_disk(why), grub_disk(why)] {
                assert!(text.contains(&why.to_string()), "{text}");
                assert!(
                    !["kernel", "linux", "http", "chain "].iter().any(|word| text.contains(word)),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn no_script_asks_for_ever() {
        let ipxe = [ipxe_start(Architecture::Amd64, None), system().ipxe(BASE, DEPLOYMENT), ipxe_wait(None)];
        for text in ipxe {
            // Each loop has a counter after which the machine boots from disk.
            let (before, after) = text.split_once("&& goto leave ||\n").unwrap();
            assert!(before.lines().rev().nth(1).is_some_and(|line| line.starts_with("inc ")), "{text}");
            assert!(after.contains("\n:leave\n") && text.ends_with(IPXE_DISK), "{text}");
            assert!(!before.contains("sleep") && !before.contains("goto ask"), "{text}");
        }
        // GRUB's install script has no loop, and that of the first script ends.
        let system = system().grub(BASE, DEPLOYMENT);
        assert!(!system.contains("configfile") && !system.contains("/grub/grub.cfg"), "{system}");
        let start = grub_start();
        assert!(start.contains("for attempt in 1 2 3 4 5; do\n") && start.ends_with("exit\n"), "{start}");
        assert!(!start.contains("configfile /grub/grub.cfg"), "{start}");
        assert!(!grub_wait().contains("configfile"), "it returns to the first script, whose loop ends");
    }

    #[test]
    fn grub_understands_its_scripts() {
        let directory = tempfile::tempdir().unwrap();
        for text in
            [grub_start(), grub_wait(), grub_disk(DiskBootReason::Conflict), system().grub(BASE, DEPLOYMENT)]
        {
            let file = directory.path().join("grub.cfg");
            std::fs::write(&file, &text).unwrap();
            let output = std::process::Command::new("grub-script-check").arg(&file).output().unwrap();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn the_command_line_fits_into_what_a_kernel_takes() {
        // COMMAND_LINE_SIZE of x86 is 2048; the image definition's arguments need room too.
        let token = "0".repeat(70);
        let deployment = DeploymentTokens { configuration: &token, report: &token, word: "0123456789abcdef" };
        let line = system().arguments("http://a-rather-long-name.of-a-server.example.org:8080", deployment);
        assert!(line.join(" ").len() < 1152, "{line:?}");
    }

    #[test]
    fn every_deployment_installs_over_a_node_once() {
        let all = parameters(BASE, MEDIUM, "token", "0123456789abcdef");
        let one = all.into_iter().find(|word| word.ends_with("reinstall=once:0123456789abcdef")).unwrap();
        let shape = model::config::shape::install_config();
        let document = model::config::sources::Document::command_line(&one, shape);
        assert!(model::config::sources::check_partial(document).is_ok(), "{one}");
    }

    #[test]
    fn words_of_grub_keep_what_is_in_them() {
        for (word, expected) in
            [("a=b", "a=b"), ("a b", "'a b'"), ("$a;b", "'$a;b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), expected);
        }
        for (word, plain) in [
            (BASE, true),
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
    }
}
