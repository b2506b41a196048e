//! Tokens: a boot script carries them so that its machine, and nobody else, can take a configuration and report.
//!
//! A token is a ticket, which names a record and one of its generations, with a signature under a key that only this server's
//! state has. Tokens are not stored: any number of them can be given out for one configuration, and none makes another
//! invalid. They all become void when the record's generation increases, which is when one of them has taken the configuration
//! or an operator has intervened.

use std::fmt;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::config::Secret;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

use super::id::MachineId;
use crate::moment::Moment;

/// Length in bytes: that of SHA-256's output (RFC 2104, section 3).
pub const KEY: usize = 32;
/// Length in bytes.
const TICKET: usize = 16 + 4 + 8 + 8;
/// Length in bytes: 128 bits of HMAC-SHA-256 (RFC 2104, section 5).
const SIGNATURE: usize = 16;

/// A token is valid for one purpose only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPurpose {
    Configuration,
    Report,
}

/// The content of a token. The two tokens of one boot script have the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentTicket {
    pub machine: MachineId,
    /// The record's generation when the ticket was made.
    pub generation: u32,
    pub issued: Moment,
    /// Random; tells tickets of the same second apart. An install that is begun again keeps that of the one before.
    pub nonce: u64,
}

impl DeploymentTicket {
    pub fn new(machine: MachineId, generation: u32, issued: Moment) -> Result<Self> {
        Ok(Self { machine, generation, issued, nonce: u64::from_be_bytes(random()?) })
    }

    /// A word that identifies the deployment to its machine and does not reveal a token.
    #[must_use]
    pub fn word(&self) -> String {
        let mut bytes = b"nqrust.install.reinstall ".to_vec();
        bytes.extend(self.machine.as_uuid().as_bytes());
        bytes.extend(self.nonce.to_be_bytes());
        let mut word = Digest::of(&bytes).to_string();
        word.truncate(16);
        word
    }

    fn to_bytes(self) -> [u8; TICKET] {
        let mut bytes = [0; TICKET];
        bytes[..16].copy_from_slice(self.machine.as_uuid().as_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.issued.0.to_be_bytes());
        bytes[28..].copy_from_slice(&self.nonce.to_be_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (machine, rest) = bytes.split_first_chunk::<16>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let (issued, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            machine: MachineId::of(Uuid::from_bytes(*machine)),
            generation: u32::from_be_bytes(*generation),
            issued: Moment(u64::from_be_bytes(*issued)),
            nonce: u64::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

pub struct TokenSigner(hmac::Key);

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSigner")
    }
}

impl TokenSigner {
    #[must_use]
    pub fn new(key: &[u8; KEY]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    #[must_use]
    pub fn token(&self, purpose: TokenPurpose, ticket: DeploymentTicket) -> Secret {
        let ticket = ticket.to_bytes();
        let signature = hmac::sign(&self.0, &signed(purpose, &ticket));
        let mut token = ticket.to_vec();
        token.extend(&signature.as_ref()[..SIGNATURE]);
        Secret::new(URL_SAFE_NO_PAD.encode(token))
    }

    /// The token of the fleet page for all servers that have this key: 128 bits as 32 hexadecimal digits.
    #[must_use]
    pub fn fleet_token(&self) -> Secret {
        Secret::new(hex::encode(&hmac::sign(&self.0, b"fleet page\n").as_ref()[..SIGNATURE]))
    }

    /// A secret that follows from this key, a purpose and the digest of a token: 128 bits as 32 hexadecimal digits.
    #[must_use]
    pub fn derived(&self, purpose: &str, token: &Digest) -> String {
        let text = format!("{purpose} of the token {token}\n");
        hex::encode(&hmac::sign(&self.0, text.as_bytes()).as_ref()[..SIGNATURE])
    }

    /// The ticket of a token that was signed with this key for this purpose; none for any other text.
    #[must_use]
    pub fn ticket(&self, purpose: TokenPurpose, token: &str) -> Option<DeploymentTicket> {
        if token.len() > 2 * (TICKET + SIGNATURE) {
            return None;
        }
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (ticket, signature) = token.split_at_checked(TICKET)?;
        let expected = hmac::sign(&self.0, &signed(purpose, ticket));
        let same = signature.len() == SIGNATURE && same(signature, &expected.as_ref()[..SIGNATURE]);
        same.then(|| DeploymentTicket::of_bytes(ticket)).flatten()
    }
}

/// The bytes that are signed: the purpose and the ticket.
fn signed(purpose: TokenPurpose, ticket: &[u8]) -> Vec<u8> {
    let purpose: &[u8] = match purpose {
        TokenPurpose::Configuration => b"configuration\n",
        TokenPurpose::Report => b"report\n",
    };
    [purpose, ticket].concat()
}

/// Compares in a time that depends on the lengths alone.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |found, (one, other)| found | (one ^ other));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    // The error says nothing.
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::new(Class::Unexpected, "reading random numbers of the operating system"))?;
    Ok(bytes)
}

/// A random password: 128 bits as 32 hexadecimal digits.
pub fn password() -> Result<Secret> {
    Ok(Secret::new(hex::encode(random::<16>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> DeploymentTicket {
        DeploymentTicket::new(MachineId::random(), 7, Moment(1_700_000_000)).unwrap()
    }

    #[test]
    fn a_token_gives_back_its_ticket_for_its_purpose_alone() {
        let (signer, ticket) = (TokenSigner::new(&[1; KEY]), ticket());
        let token = signer.token(TokenPurpose::Configuration, ticket);
        assert_eq!(signer.ticket(TokenPurpose::Configuration, token.expose()), Some(ticket));
        assert_eq!(signer.ticket(TokenPurpose::Report, token.expose()), None);
        assert_eq!(TokenSigner::new(&[2; KEY]).ticket(TokenPurpose::Configuration, token.expose()), None);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        assert!(token.expose().chars().all(plain), "it stands in URLs and in boot scripts");
    }

    #[test]
    fn a_token_with_any_bit_changed_is_none() {
        let (signer, ticket) = (TokenSigner::new(&[1; KEY]), ticket());
        let token = URL_SAFE_NO_PAD.decode(signer.token(TokenPurpose::Report, ticket).expose()).unwrap();
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                signer.ticket(TokenPurpose::Report, &URL_SAFE_NO_PAD.encode(changed)),
                None,
                "bit {bit}"
            );
        }
        for text in ["", "0", &"0".repeat(32), &"0".repeat(10_000), "é"] {
            assert_eq!(signer.ticket(TokenPurpose::Report, text), None, "{text:.40}");
        }
        for length in 0..token.len() {
            assert_eq!(signer.ticket(TokenPurpose::Report, &URL_SAFE_NO_PAD.encode(&token[..length])), None);
        }
    }

    #[test]
    fn the_word_of_a_deployment_is_the_same_for_its_tickets_and_tells_none_of_them() {
        let first = ticket();
        let again = DeploymentTicket { generation: 8, issued: Moment(1), ..first };
        assert_eq!((first.word(), first.word().len()), (again.word(), 16));
        assert_ne!(first.word(), ticket().word());
        let nonce = format!("{:x}", first.nonce);
        assert!(!first.word().contains(&nonce), "{}", first.word());
    }

    #[test]
    fn the_token_of_the_fleet_page_follows_from_the_key_and_signs_nothing() {
        let token = |key: u8| TokenSigner::new(&[key; KEY]).fleet_token().expose().to_owned();
        assert_eq!((token(1), token(1).len()), (token(1), 32));
        assert_ne!(token(1), token(2));
        let signer = TokenSigner::new(&[1; KEY]);
        assert_eq!(signer.ticket(TokenPurpose::Report, &token(1)), None);
    }

    #[test]
    fn two_tickets_of_one_second_differ() {
        let id = MachineId::random();
        let one = || DeploymentTicket::new(id, 1, Moment(1)).unwrap();
        assert_ne!(one(), one());
        assert_ne!(password().unwrap().expose(), password().unwrap().expose());
    }
}
