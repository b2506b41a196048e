//! One connection to an NVMe subsystem over TCP. The kernel makes it, and makes it again when it is lost: what is written to its device
//! for fabrics is a list of options (`drivers/nvme/host/fabrics.c`), which no other program has to put together.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use uuid::{Builder, Uuid};

use super::Refusal;
use base::digest::Digest;
use model::network_disks::TargetPortal;

/// From the root.
const DEVICE: &str = "dev/nvme-fabrics";
/// Between two attempts of the kernel to connect again.
const RECONNECT_SECONDS: u32 = 5;
/// How long a subsystem may be silent before the connection counts as lost.
const KEEP_ALIVE_SECONDS: u32 = 10;
/// The names of machines that are their UUIDs (NVM Express Base Specification 2.0, section 4.5).
const UUID_NAME: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Connects to subsystems, as the machine called `name`.
pub(super) struct Host<'a> {
    pub(super) root: &'a Path,
    pub(super) name: Option<&'a str>,
    /// How long the kernel holds back what is read and written while all connections are lost, before it fails.
    pub(super) hold: Duration,
}

impl Host<'_> {
    /// # Errors
    /// What the subsystem or the kernel does, in a few words.
    pub(super) fn connect(&self, way: &TargetPortal) -> Result<()> {
        let name = self.name.ok_or_else(|| anyhow!("this machine has no name for NVMe subsystems"))?;
        let mut device =
            OpenOptions::new().read(true).write(true).open(self.root.join(DEVICE)).map_err(short)?;
        device.write_all(options(name, way, self.hold).as_bytes()).map_err(short)
    }
}

/// The kernel tries again without end. What is held back fails after `hold`, and what comes after that works again once the subsystem is
/// back: with an end of the attempts the disk would go away for good.
fn options(name: &str, way: &TargetPortal, hold: Duration) -> String {
    format!(
        "transport=tcp,traddr={},trsvcid={},nqn={},hostnqn={name},hostid={},reconnect_delay={RECONNECT_SECONDS},ctrl_loss_tmo=-1,\
         fast_io_fail_tmo={},keep_alive_tmo={KEEP_ALIVE_SECONDS}",
        way.portal.ip(),
        way.portal.port(),
        way.target,
        host_id(name),
        hold.as_secs(),
    )
}

/// The identity that belongs to the name, which has to be the same at every start: subsystems and the kernel refuse another one for a name
/// that they know. That of a name without a UUID follows from its digest (RFC 9562, version 8).
fn host_id(name: &str) -> Uuid {
    let of_name = name.strip_prefix(UUID_NAME).and_then(|text| text.parse().ok());
    of_name.unwrap_or_else(|| {
        let digest = Digest::of(name.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Builder::from_custom_bytes(bytes).into_uuid()
    })
}

/// What an error of the kernel means; its own words for others. A subsystem that refuses a connection has a reason that only the log of
/// the kernel tells.
fn short(error: std::io::Error) -> anyhow::Error {
    let words = match error.kind() {
        ErrorKind::NotFound => "the kernel of this system has no NVMe over TCP (module nvme-tcp)",
        ErrorKind::ConnectionRefused => "nothing listens at this address and port",
        ErrorKind::TimedOut => "it does not answer",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "it cannot be reached",
        ErrorKind::ConnectionReset => "it ended the connection",
        _ if error.raw_os_error() == Some(nix::libc::EIO) => {
            let words =
                "it refuses this machine: it may not have this subsystem, or not allow the name of the host";
            return Refusal(words).into();
        }
        _ => return error.into(),
    };
    anyhow!("{words}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::network_disks::DiskProtocol;

    const NAME: &str = "nqn.2014-08.org.nvmexpress:uuid:6e717273-0000-4000-8000-000000000001";

    fn way() -> TargetPortal {
        TargetPortal {
            protocol: DiskProtocol::NvmeTcp,
            target: "nqn.2026-01.com.example:array-1".into(),
            portal: "192.0.2.9:4420".parse().unwrap(),
            chap: None,
        }
    }

    #[test]
    fn the_kernel_gets_address_names_and_how_long_it_holds_back_what_is_written() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        let device = root.path().join(DEVICE);
        let host = Host { root: root.path(), name: Some(NAME), hold: Duration::from_secs(120) };
        let error = host.connect(&way()).unwrap_err().to_string();
        assert!(error.contains("module nvme-tcp") && !device.exists(), "{error}");
        std::fs::write(&device, "").unwrap();
        host.connect(&way()).unwrap();
        assert_eq!(
            std::fs::read_to_string(&device).unwrap(),
            "transport=tcp,traddr=192.0.2.9,trsvcid=4420,nqn=nqn.2026-01.com.example:array-1,hostnqn=nqn.2014-08.org.nvmexpress:uuid:\
             6e717273-0000-4000-8000-000000000001,hostid=6e717273-0000-4000-8000-000000000001,reconnect_delay=5,ctrl_loss_tmo=-1,\
             fast_io_fail_tmo=120,keep_alive_tmo=10"
        );
    }

    #[test]
    fn each_name_has_an_identity_of_its_own_that_stays() {
        let ids = ["nqn.2026-01.com.example:node-1", "nqn.2026-01.com.example:node-2"].map(host_id);
        assert_ne!(ids[0], ids[1]);
        assert_eq!(host_id("nqn.2026-01.com.example:node-1"), ids[0]);
        assert_eq!(ids[0].get_version_num(), 8);
    }

    #[test]
    fn an_error_says_what_the_subsystem_does() {
        use nix::libc::{ECONNREFUSED, EHOSTUNREACH, EINVAL, EIO, ETIMEDOUT};
        for (number, words) in [
            (ECONNREFUSED, "nothing listens"),
            (ETIMEDOUT, "does not answer"),
            (EHOSTUNREACH, "cannot be reached"),
            (EIO, "refuses this machine"),
            (EINVAL, "Invalid argument"),
        ] {
            let text = short(std::io::Error::from_raw_os_error(number)).to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
