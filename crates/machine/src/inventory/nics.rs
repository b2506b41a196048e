//! Network cards from `/sys/class/net`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use model::config::Interface;

use super::sysfs::{attribute, driver, names, number};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The kernel's name, such as `ens3`.
    pub name: String,
    /// Hardware address; for a card in a bond, its own.
    pub mac: String,
    /// Whether a cable is connected; unknown while the card is down.
    pub carrier: Option<bool>,
    /// Megabits per second, when there is a link.
    pub speed: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether the hardware address is not the card's own: random at this start, or set by a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary_mac: bool,
}

impl Nic {
    /// Whether it is the card that a configuration means: by its name, and by its address if it has one.
    #[must_use]
    pub fn is(&self, wanted: &Interface) -> bool {
        let name = wanted.name.as_deref().is_none_or(|name| name == self.name);
        name && wanted.hw_addr.as_deref().is_none_or(|address| address.eq_ignore_ascii_case(&self.mac))
    }
}

/// `NET_ADDR_PERM` (linux/netdevice.h): the address is the one that the hardware has.
const PERMANENT: u64 = 0;

/// Cards are the interfaces with a device: bridges, bonds, tunnels and the loopback have none.
pub fn scan(sys: &Path) -> Vec<Nic> {
    let net = sys.join("class/net");
    let cards = names(&net).into_iter().filter(|name| net.join(name).join("device").exists());
    cards.filter_map(|name| nic(&net.join(&name), name)).collect()
}

fn nic(path: &Path, name: String) -> Option<Nic> {
    // In a bond all cards show the address of the bond; the kernel has their own in another file.
    let own = attribute(&path.join("bonding_slave/perm_hwaddr"));
    let temporary_mac =
        own.is_none() && number(&path.join("addr_assign_type")).is_some_and(|kind| kind != PERMANENT);
    let mac = own.or_else(|| attribute(&path.join("address")))?;
    // Neither can be read while the card is down, and speed is -1 without a link.
    let carrier = number(&path.join("carrier")).map(|carrier| carrier == 1);
    let speed = number(&path.join("speed")).and_then(|speed| u32::try_from(speed).ok());
    let speed = speed.filter(|speed| *speed > 0 && *speed < u32::MAX);
    let driver = driver(&path.join("device"));
    Some(Nic { name, mac, carrier, speed, driver, temporary_mac })
}
