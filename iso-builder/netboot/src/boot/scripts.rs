//! Boot scripts of iPXE and GRUB. Pure functions of what is served and of the machine.
//!
//! iPXE sends the MAC addresses of its cards, UUID, serial number and asset tag. The signed GRUB of Debian 12 sends only the
//! address of the card that it was started from, for it has no module that reads the firmware's tables; and its HTTP client
//! knows port 80 only.

use std::fmt::Write as _;

use medium::network_boot::IPXE_START;
use medium::network_boot::system::{ATTEMPTS, BootSystem, IPXE_DISK, PAUSE, quoted};
use model::architecture::Architecture;
use model::boot::parameter;

use crate::machines::machine::DiskBootReason;
use crate::protocol::{BOOT, ENROLL, GRUB, REPORT, parameters};

/// How often a loader asks again while the server's database does not answer, before it boots from disk: five minutes.
const WAITS: u32 = 30;
/// The iPXE setting that counts these.
const WAITED: &str = "waited";

/// The tokens of one deployment of one machine.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentTokens<'a> {
    /// For [`CONFIGURATION`](crate::protocol::CONFIGURATION).
    pub configuration: &'a str,
    pub report: &'a str,
    pub word: &'a str,
}

impl DeploymentTokens<'_> {
    /// The kernel arguments for the installer of this deployment, on a server that machines reach at `base`.
    fn arguments(self, system: &BootSystem, base: &str) -> Vec<String> {
        let report = format!("{}={base}{REPORT}{}", parameter::REPORT, self.report);
        parameters(base, system.medium(), self.configuration, self.word).into_iter().chain([report]).collect()
    }
}

/// The script with which iPXE starts an install.
#[must_use]
pub fn ipxe_install(system: &BootSystem, base: &str, deployment: DeploymentTokens<'_>) -> String {
    system.ipxe(base, &deployment.arguments(system, base))
}

/// The commands with which GRUB starts an install. If that fails, [`grub_start`] continues.
#[must_use]
pub fn grub_install(system: &BootSystem, base: &str, deployment: DeploymentTokens<'_>) -> String {
    system.grub(base, &deployment.arguments(system, base))
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
         chain --replace {IPXE_START}{query} || goto again\n\
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{golden, medium};
    use medium::network_boot::MEDIUM;
    use medium::network_boot::files::MediumFiles;
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
        golden("install.ipxe", &ipxe_install(&system, BASE, DEPLOYMENT));
        golden("disk.ipxe", &ipxe_disk(DiskBootReason::Installed));
        golden("wait.ipxe", &ipxe_wait(None));
        golden("start-enroll.ipxe", &ipxe_start(Architecture::Amd64, Some("nqrust_0123abcd_0")));
        golden("wait-enroll.ipxe", &ipxe_wait(Some("nqrust_0123abcd_0")));
        golden("wait.grub", &grub_wait());
        golden("start.grub", &grub_start());
        golden("install.grub", &grub_install(&system, BASE, DEPLOYMENT));
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
        let ipxe = [
            ipxe_start(Architecture::Amd64, None),
            ipxe_install(&system(), BASE, DEPLOYMENT),
            ipxe_wait(None),
        ];
        for text in ipxe {
            // Each loop has a counter after which the machine boots from disk.
            let (before, after) = text.split_once("&& goto leave ||\n").unwrap();
            assert!(before.lines().rev().nth(1).is_some_and(|line| line.starts_with("inc ")), "{text}");
            assert!(after.contains("\n:leave\n") && text.ends_with(IPXE_DISK), "{text}");
            assert!(!before.contains("sleep") && !before.contains("goto ask"), "{text}");
        }
        // GRUB's install script has no loop, and that of the first script ends.
        let system = grub_install(&system(), BASE, DEPLOYMENT);
        assert!(!system.contains("configfile") && !system.contains("/grub/grub.cfg"), "{system}");
        let start = grub_start();
        assert!(start.contains("for attempt in 1 2 3 4 5; do\n") && start.ends_with("exit\n"), "{start}");
        assert!(!start.contains("configfile /grub/grub.cfg"), "{start}");
        assert!(!grub_wait().contains("configfile"), "it returns to the first script, whose loop ends");
    }

    #[test]
    fn grub_understands_its_scripts() {
        let directory = tempfile::tempdir().unwrap();
        for text in [
            grub_start(),
            grub_wait(),
            grub_disk(DiskBootReason::Conflict),
            grub_install(&system(), BASE, DEPLOYMENT),
        ] {
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
        let (system, base) = (system(), "http://a-rather-long-name.of-a-server.example.org:8080");
        let line = system.arguments(base, &deployment.arguments(&system, base));
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
}
