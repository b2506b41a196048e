//! One question to one name server: the addresses of a name (RFC 1035, sections 3 and 4).
//!
//! Only as much as a check needs: one UDP datagram each way. An answer too long for a datagram still has its header, and that
//! says enough.

use std::net::Ipv4Addr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The IPv4 addresses of the name, perhaps none.
    Addresses(Vec<Ipv4Addr>),
    NoSuchName,
    /// It refuses this question; the reason.
    Unwilling(String),
}

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

/// The datagram that asks for the addresses of `name`; the empty name is the root. `None` if `name` is not a DNS name.
pub(super) fn query(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut bytes = id.to_be_bytes().to_vec();
    // A question, recursion desired; one question and nothing else.
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).ok().filter(|length| *length < 64)?);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend([TYPE_A, CLASS_IN].iter().flat_map(|word| word.to_be_bytes()));
    Some(bytes)
}

/// Reads the answer to the query `asked`; `None` for any other datagram.
pub(super) fn answer(asked: &[u8], datagram: &[u8]) -> Option<DnsAnswer> {
    let is_answer = datagram.get(..2)? == asked.get(..2)? && datagram.get(2)? & 0x80 != 0;
    let header = datagram.get(..HEADER_BYTES).filter(|_| is_answer)?;
    match header[3] & 0x0f {
        0 => {}
        3 => return Some(DnsAnswer::NoSuchName),
        code => return Some(DnsAnswer::Unwilling(reason(code))),
    }
    let questions = u16::from_be_bytes([header[4], header[5]]);
    let answers = u16::from_be_bytes([header[6], header[7]]);
    let mut place = HEADER_BYTES;
    for _ in 0..questions {
        place = after_name(datagram, place)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        // A truncated datagram ends here.
        let Some((address, next)) = record(datagram, place) else { break };
        found.extend(address);
        place = next;
    }
    Some(DnsAnswer::Addresses(found))
}

/// The address in the record at `place`, if it is one, and where the next record begins.
fn record(datagram: &[u8], place: usize) -> Option<(Option<Ipv4Addr>, usize)> {
    let fixed = after_name(datagram, place)?;
    let word = |offset| datagram.get(fixed + offset..)?.first_chunk().copied().map(u16::from_be_bytes);
    let (kind, class, length) = (word(0)?, word(2)?, usize::from(word(8)?));
    let data = datagram.get(fixed + 10..fixed + 10 + length)?;
    let address = <[u8; 4]>::try_from(data).ok().filter(|_| (kind, class) == (TYPE_A, CLASS_IN));
    Some((address.map(Ipv4Addr::from), fixed + 10 + length))
}

/// The position after a name. A pointer ends a name (4.1.4).
fn after_name(datagram: &[u8], mut place: usize) -> Option<usize> {
    loop {
        match *datagram.get(place)? {
            0 => return Some(place + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(place + 2),
            length => place += usize::from(length) + 1,
        }
    }
}

/// The names of response codes (IANA, DNS RCODEs).
fn reason(code: u8) -> String {
    match code {
        1 => "FORMERR".into(),
        2 => "SERVFAIL".into(),
        4 => "NOTIMP".into(),
        5 => "REFUSED".into(),
        other => format!("response code {other}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server's answer to `asked`: a response code and addresses, behind a pointer to the question's name.
    pub(crate) fn reply(asked: &[u8], code: u8, addresses: &[[u8; 4]]) -> Vec<u8> {
        let mut bytes = asked.to_vec();
        (bytes[2], bytes[3]) = (0x81, 0x80 | code);
        bytes[7] = u8::try_from(addresses.len()).unwrap();
        for address in addresses {
            bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            bytes.extend(address);
        }
        bytes
    }

    #[test]
    fn an_answer_is_read_and_a_stranger_s_is_not() {
        let asked = query(7, "time.example.org.").unwrap();
        assert_eq!(&asked[12..], b"\x04time\x07example\x03org\0\0\x01\0\x01");
        let good = reply(&asked, 0, &[[192, 0, 2, 1], [192, 0, 2, 2]]);
        let addresses = vec![Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        assert_eq!(answer(&asked, &good), Some(DnsAnswer::Addresses(addresses)));
        assert_eq!(answer(&asked, &reply(&asked, 3, &[])), Some(DnsAnswer::NoSuchName));
        assert_eq!(answer(&asked, &reply(&asked, 5, &[])), Some(DnsAnswer::Unwilling("REFUSED".into())));
        let other = query(8, "time.example.org").unwrap();
        assert_eq!(answer(&asked, &reply(&other, 0, &[])), None);
        assert_eq!(answer(&asked, &asked), None, "a question is no answer");
    }

    #[test]
    fn an_alias_before_the_address_is_stepped_over() {
        let asked = query(7, "a.b").unwrap();
        let mut bytes = reply(&asked, 0, &[]);
        bytes[7] = 2;
        bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'c', 0xc0, 14]);
        bytes.extend([1, b'c', 0xc0, 14, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1]);
        assert_eq!(answer(&asked, &bytes), Some(DnsAnswer::Addresses(vec![[10, 0, 0, 1].into()])));
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(answer(&asked, cut), Some(DnsAnswer::Addresses(vec![])));
    }

    #[test]
    fn the_root_is_a_name_and_a_label_of_64_bytes_is_not() {
        assert_eq!(query(1, "").map(|bytes| bytes.len()), Some(17));
        assert_eq!(query(1, &"a".repeat(64)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_datagram_comes_to_an_end(mut noise: Vec<u8>) {
            let asked = query(0, "a").unwrap();
            noise.splice(..noise.len().min(3), [0, 0, 0x80]);
            if let Some(DnsAnswer::Addresses(found)) = answer(&asked, &noise) {
                proptest::prop_assert!(found.len() * 10 <= noise.len());
            }
        }
    }
}
