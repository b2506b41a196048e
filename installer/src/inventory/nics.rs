//! Network cards from `/sys/class/net`.

use std::path::Path;

use super::{Nic, attribute, names, number};

/// Cards are what has a device behind it: bridges, bonds, tunnels and the loopback have none.
pub(crate) fn scan(sys: &Path) -> Vec<Nic> {
    let net = sys.join("class/net");
    let cards = names(&net).into_iter().filter(|name| net.join(name).join("device").exists());
    cards.filter_map(|name| nic(&net.join(&name), name)).collect()
}

fn nic(path: &Path, name: String) -> Option<Nic> {
    // In a bond all cards show the address of the bond; the kernel tells their own beside it.
    let own = attribute(&path.join("bonding_slave/perm_hwaddr"));
    let mac = own.or_else(|| attribute(&path.join("address")))?;
    // Both refuse to be read while the card is down, and speed is -1 without a link.
    let carrier = number(&path.join("carrier")).map(|carrier| carrier == 1);
    let speed = number(&path.join("speed")).and_then(|speed| u32::try_from(speed).ok());
    Some(Nic { name, mac, carrier, speed: speed.filter(|speed| *speed > 0 && *speed < u32::MAX) })
}
