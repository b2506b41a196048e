//! The server's boot scripts, read as iPXE runs them.

use model::boot::parameter;
use model::kernel_line;

use crate::virtual_machine::VirtualMachine;

/// The path of a URL without scheme and host, with its query; a path stays as it is.
pub(crate) fn path_of(url: &str) -> String {
    match url.split_once("://") {
        None => url.to_owned(),
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]).to_owned(),
    }
}

/// The request for the machine's own script, from the script of every machine: the first `chain`, with the values of iPXE's
/// settings in place of their names. None if there is no such line.
pub(crate) fn boot_request(start: &str, machine: VirtualMachine) -> Option<String> {
    let line = start.lines().find_map(|line| line.strip_prefix("chain --replace "))?;
    let mut path = path_of(line.split(' ').next()?);
    let mac = machine.mac()?.hyphenated();
    for (setting, value) in [
        ("${netX/mac:hexhyp}", mac.as_str()),
        ("${net0/mac:hexhyp}", mac.as_str()),
        // Settings of what is absent are empty.
        ("${net1/mac:hexhyp}", ""),
        ("${net2/mac:hexhyp}", ""),
        ("${net3/mac:hexhyp}", ""),
        ("${uuid}", &machine.uuid().to_string()),
        ("${serial:uristring}", &base::percent::encode(&machine.serial())),
        ("${asset:uristring}", ""),
    ] {
        path = path.replace(setting, value);
    }
    (!path.contains("${")).then_some(path)
}

/// The script of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BootScript {
    Install(Box<InstallScript>),
    /// The machine starts from its disk, and why.
    Disk(String),
    /// The server cannot decide now; the machine asks again.
    AskAgain,
}

/// The paths of what a machine loads, and what its installer learns from the kernel's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstallScript {
    pub(crate) kernel: String,
    pub(crate) initrd: String,
    pub(crate) os_image: String,
    /// The digest of the OS image, as `sha256:HEX`.
    pub(crate) os_image_digest: String,
    /// Without a slash at its end.
    pub(crate) medium: String,
    /// The digest of the release manifest, as `sha256:HEX`.
    pub(crate) release: String,
    pub(crate) configuration: String,
    pub(crate) report: String,
}

impl BootScript {
    /// Reads a script; none if it is neither an install nor a start from disk.
    pub(crate) fn parse(script: &str) -> Option<Self> {
        let line = |start: &str| script.lines().find_map(|line| line.strip_prefix(start));
        if let Some(kernel) = line("kernel ") {
            return InstallScript::parse(kernel, line("initrd --name initrd ")?)
                .map(|script| Self::Install(Box::new(script)));
        }
        if let Some(why) = line("echo Booting from disk: ") {
            return Some(Self::Disk(why.to_owned()));
        }
        line("chain --replace ").map(|_| Self::AskAgain)
    }
}

impl InstallScript {
    /// Reads the arguments of the commands `kernel` and `initrd`.
    fn parse(kernel: &str, initrd: &str) -> Option<Self> {
        let words = kernel_line::words(kernel.split(" || ").next()?);
        let value = |key: &str| {
            let mut values =
                words.iter().filter(|word| word.key == key).filter_map(|word| word.value.clone());
            values.next().map(|(text, _)| text)
        };
        Some(Self {
            kernel: path_of(&words.first()?.key),
            initrd: path_of(initrd.split(' ').next()?),
            os_image: path_of(value("root")?.strip_prefix("live:")?),
            os_image_digest: value(parameter::ROOTFS)?,
            medium: path_of(&value("nqrust.install.medium")?),
            release: value(parameter::RELEASE)?,
            configuration: path_of(&value("nqrust.install.config_url")?),
            report: path_of(&value(parameter::REPORT)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_a_machine_has_the_values_of_its_settings() {
        let start = "#!ipxe\nset attempts:int32 0\n:ask\nchain --replace /v1/boot?mac=${netX/mac:hexhyp}&mac=${net1/mac:hexhyp}\
                     &uuid=${uuid}&serial=${serial:uristring}&asset=${asset:uristring} || goto again\n";
        let expected = "/v1/boot?mac=52-54-00-00-00-05&mac=&uuid=6e717275-7374-4c0d-8000-000000000005&serial=LOAD-000005&asset=";
        assert_eq!(boot_request(start, VirtualMachine::new(5, 1)).as_deref(), Some(expected));
        assert_eq!(boot_request("#!ipxe\nchain --replace /a?${new}\n", VirtualMachine::new(5, 1)), None);
        assert_eq!(boot_request("#!ipxe\nexit\n", VirtualMachine::new(5, 1)), None);
    }

    #[test]
    fn scripts_are_an_install_a_start_from_disk_or_another_request() {
        let script = "#!ipxe\necho Load 1: installing this machine\n\
            kernel http://a/medium/vmlinuz initrd=initrd root=live:http://a/medium/rootfs nqrust.rootfs=sha256:aa rd.shell=0 \
            nqrust.release=sha256:bb nqrust.install.medium=http://a/medium nqrust.install.config_url=http://a/v1/config/T \
            nqrust.report=http://a/v1/report/R || goto failed\n\
            initrd --name initrd http://a/medium/initrd || goto failed\nboot || goto failed\n\
            chain --replace http://a/boot.ipxe || goto failed\necho The system did not load: booting from disk\n";
        let Some(BootScript::Install(install)) = BootScript::parse(script) else { panic!("no install") };
        assert_eq!((install.kernel.as_str(), install.initrd.as_str()), ("/medium/vmlinuz", "/medium/initrd"));
        assert_eq!((install.os_image.as_str(), install.medium.as_str()), ("/medium/rootfs", "/medium"));
        assert_eq!((install.release.as_str(), install.os_image_digest.as_str()), ("sha256:bb", "sha256:aa"));
        assert_eq!(
            (install.configuration.as_str(), install.report.as_str()),
            ("/v1/config/T", "/v1/report/R")
        );
        let disk = BootScript::parse("#!ipxe\necho Booting from disk: it is installed\nexit 1\n");
        assert_eq!(disk, Some(BootScript::Disk("it is installed".into())));
        let wait = "#!ipxe\n:again\necho The database of the server does not answer\nchain --replace /boot.ipxe || goto again\n";
        assert_eq!(BootScript::parse(wait), Some(BootScript::AskAgain));
        assert_eq!(BootScript::parse("#!ipxe\nkernel http://a/k initrd=initrd || goto failed\n"), None);
        assert_eq!(BootScript::parse("not found"), None);
    }
}
