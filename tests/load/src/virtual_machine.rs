//! The identity and the configuration of a virtual machine, which follow from its number.

use std::net::Ipv4Addr;

use model::machine::{Identity, Mac};
use uuid::Uuid;

/// The first bytes of every UUID: these machines are no others.
const UUID_BASE: u128 = 0x6e71_7275_7374_4c0d_8000_0000_0000_0000;
/// The first address that a virtual machine has on the loopback interface, 127.1.0.0.
const FIRST_ADDRESS: u32 = 0x7f01_0000;

/// The beginning of every password; six digits follow.
pub(crate) const PASSWORD: &str = "the-password-of-";

/// One of up to 2^24 machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualMachine {
    pub number: u32,
    /// The number of the machine that creates its cluster; its own where it creates one.
    pub creator: u32,
}

impl VirtualMachine {
    /// The machine `number`, where each cluster has `cluster_size` machines.
    #[must_use]
    pub fn new(number: u32, cluster_size: u32) -> Self {
        Self { number, creator: number - number % cluster_size.max(1) }
    }

    #[must_use]
    pub fn creates(self) -> bool {
        self.creator == self.number
    }

    /// Locally administered, of one card.
    #[must_use]
    pub fn mac(self) -> Option<Mac> {
        let [a, b, c, d] = self.number.to_be_bytes();
        format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}").parse().ok()
    }

    #[must_use]
    pub fn uuid(self) -> Uuid {
        Uuid::from_u128(UUID_BASE | u128::from(self.number))
    }

    #[must_use]
    pub fn serial(self) -> String {
        format!("LOAD-{:06}", self.number)
    }

    #[must_use]
    pub fn hostname(self) -> String {
        format!("node-{}", self.number)
    }

    /// What the firmware tells of it.
    #[must_use]
    pub fn identity(self) -> Identity {
        Identity {
            macs: self.mac().into_iter().collect(),
            serial: Some(self.serial()),
            uuid: Some(self.uuid()),
            asset_tag: None,
        }
    }

    /// The address that its requests come from, on the loopback interface.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_ADDRESS + self.number)
    }

    /// A secret that no other configuration has.
    #[must_use]
    pub fn password(self) -> String {
        format!("{PASSWORD}{:06}", self.number)
    }

    /// The virtual address of its cluster.
    fn cluster_address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a80_0000 | self.creator)
    }

    /// Its install configuration.
    #[must_use]
    pub fn configuration(self) -> String {
        let (name, password) = (self.hostname(), self.password());
        // One token for each cluster.
        let head = format!(
            "token: {:032x}\nos: {{hostname: {name}, password: {password}, ntp_servers: [192.0.2.123]}}\n",
            UUID_BASE | u128::from(self.creator)
        );
        let address = self.cluster_address();
        match self.creates() {
            true => format!("{head}install: {{mode: create, vip: {address}, device: /dev/vda}}\n"),
            false => format!(
                "{head}server_url: https://{address}\ninstall: {{mode: join, role: worker, device: /dev/vda}}\n"
            ),
        }
    }

    /// Whether `text` is its configuration and that of no other machine.
    #[must_use]
    pub fn is_its_configuration(self, text: &str) -> bool {
        text.contains(&format!("hostname: {},", self.hostname()))
            && text.contains(&format!("password: {},", self.password()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_differ_in_everything_and_belong_to_the_cluster_of_their_creator() {
        let [first, second] = [6, 7].map(|number| VirtualMachine::new(number, 3));
        assert!(first.creates() && !second.creates() && second.creator == 6);
        assert_eq!(second.mac().unwrap().to_string(), "52:54:00:00:00:07");
        assert_eq!(VirtualMachine::new(70_000, 1).address().to_string(), "127.2.17.112");
        assert_eq!(model::machine::identity::real_uuid(&second.uuid().to_string()), Some(second.uuid()));
        assert!(first.is_its_configuration(&first.configuration()));
        assert!(!first.is_its_configuration(&second.configuration()));
        assert!(!VirtualMachine::new(1, 1).is_its_configuration(&VirtualMachine::new(11, 1).configuration()));
    }
}
