//! Arithmetic of IPv4 addresses and network masks.

use std::net::Ipv4Addr;

/// True if an address can be that of one machine as others see it.
pub(super) fn is_one_machine(ip: Ipv4Addr) -> bool {
    !(ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() || ip.octets()[0] == 0)
}

/// The reason why no host can have an address: it names the network itself or all its nodes. Networks of two or fewer addresses have
/// neither (RFC 3021).
pub(super) fn reserved(ip: Ipv4Addr, mask: Ipv4Addr, length: u8) -> Option<&'static str> {
    match ip & !mask {
        _ if length >= 31 => None,
        Ipv4Addr::UNSPECIFIED => Some("network"),
        host if host == !mask => Some("broadcast"),
        _ => None,
    }
}

/// The length of the prefix that a mask means; `None` where its ones are not all in front, or there are none.
#[must_use]
pub fn prefix_length(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let length = bits.leading_ones();
    (length == bits.count_ones() && length > 0).then(|| u8::try_from(length).unwrap_or(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_have_their_ones_in_front() {
        for (mask, length) in [([255, 255, 255, 0], 24), ([128, 0, 0, 0], 1), ([255, 255, 255, 255], 32)] {
            assert_eq!(prefix_length(mask.into()), Some(length));
        }
        for mask in [[255, 0, 255, 0], [0, 0, 0, 0], [0, 255, 255, 255]] {
            assert_eq!(prefix_length(mask.into()), None);
        }
    }

    proptest! {
        #[test]
        fn every_prefix_length_survives_its_mask(length in 1_u8..=32) {
            let mask = Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(length)));
            prop_assert_eq!(prefix_length(mask), Some(length));
        }
    }
}
