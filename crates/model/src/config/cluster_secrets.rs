//! The secrets of a cluster that kubeadm joins, all made from its one token.
//!
//! kubeadm wants a bootstrap token, whose form it gives, for the nodes that join, and a key under which the private keys of the
//! cluster's authorities are kept for further servers. Anyone who reaches the API can read a text that is signed with the bootstrap
//! token (ConfigMap `kube-public/cluster-info`), and try tokens against it. So each try is made slow (Argon2id, RFC 9106), and what is
//! made is spread from there (HKDF, RFC 5869), so that none of it tells the others.
//!
//! Nodes that run no control plane get a token of their own, [`agent_token`], unless the cluster has one that a person chose. The
//! secrets of servers do not follow from it: the derivation goes one way.

use super::{Login, Secret, Token};
use anyhow::{Context, Result};
use argon2::{Algorithm, Argon2, Params, Version};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

/// The salt says what is made, and by which version of these rules: every node of a cluster has to make the same.
const SALT: &[u8] = b"nqrust/kubeadm/1";
/// Memory for one try in KiB, and how often it is gone over.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;
/// Length in bytes of what Argon2 gives to HKDF.
const ROOT_BYTES: usize = 32;
/// The alphabet of bootstrap tokens (kubeadm, `BootstrapTokenPattern`).
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Characters of the public part of a bootstrap token, and of its secret part.
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Bytes of the key of certificates, AES-256.
const KEY_BYTES: usize = 32;
/// Bytes of the token of agents, as many as nobody can guess.
const AGENT_TOKEN_BYTES: usize = 32;

/// The secrets that follow from the token of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSecrets {
    /// `ID.SECRET`, as kubeadm has it. The part before the dot is public.
    pub bootstrap_token: Secret,
    /// The key of the authorities' keys in the Secret `kube-system/kubeadm-certs`, 64 hexadecimal digits.
    pub certificate_key: Secret,
    /// The token of agents that follows from this one, 64 hexadecimal digits.
    pub agent_token: Secret,
}

/// The token of the agents of a cluster that follows from `token`, the one of its servers. It names the same authority. Takes some
/// tenths of a second and 64 MiB.
///
/// # Errors
/// If the token cannot be read, or there is no memory for it.
pub fn agent_token(token: &Secret) -> Result<Secret> {
    let token = Token::read(token).map_err(|wrong| anyhow::anyhow!("the token {wrong}"))?;
    let agents = ClusterSecrets::derive(token.password())?.agent_token;
    Ok(match token.authority {
        Some(authority) => Token { authority: None, login: Login::Password(agents) }.pinned_to(authority),
        None => agents,
    })
}

impl ClusterSecrets {
    /// The secrets of the cluster with this token, or of its agents. Takes some tenths of a second and 64 MiB.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn derive(token: &Secret) -> Result<Self> {
        let parameters = Params::new(MEMORY_KIB, PASSES, 1, Some(ROOT_BYTES)).context("setting up Argon2")?;
        let mut root = [0; ROOT_BYTES];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(token.expose().as_bytes(), SALT, &mut root)
            .context("deriving the secrets of the cluster from its token")?;
        let root = Prk::new_less_safe(HKDF_SHA256, &root);
        let (id, secret) =
            (digits(&root, "bootstrap-id", ID_LENGTH)?, digits(&root, "bootstrap-secret", SECRET_LENGTH)?);
        Ok(Self {
            bootstrap_token: Secret::new(format!("{id}.{secret}")),
            certificate_key: Secret::new(hex::encode(expand(&root, "certificate-key", KEY_BYTES)?)),
            agent_token: Secret::new(hex::encode(expand(&root, "agent-token", AGENT_TOKEN_BYTES)?)),
        })
    }

    /// The public part of the bootstrap token.
    #[must_use]
    pub fn id(&self) -> &str {
        self.parts().0
    }

    /// The secret part of the bootstrap token, which signs what the cluster says of itself.
    #[must_use]
    pub fn signing_key(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.bootstrap_token.expose().split_once('.').unwrap_or_default()
    }
}

/// `length` digits to the base 36, each as likely as the others.
fn digits(root: &Prk, purpose: &str, length: usize) -> Result<String> {
    // Of 256 values the last four would make four digits likelier; they are left out. Of four times as many bytes enough remain,
    // but for once in 10^30 tokens.
    let fair = |byte: u8| (byte < 252).then(|| DIGITS.get(usize::from(byte % 36)).copied()).flatten();
    let found: String = expand(root, purpose, length * 4)?
        .into_iter()
        .filter_map(fair)
        .take(length)
        .map(char::from)
        .collect();
    anyhow::ensure!(found.len() == length, "this token yields no bootstrap token; choose another one");
    Ok(found)
}

fn expand(root: &Prk, purpose: &str, length: usize) -> Result<Vec<u8>> {
    struct Length(usize);

    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }

    let mut bytes = vec![0; length];
    // HKDF gives up to 8160 bytes; the caller wants fewer.
    let filled = root.expand(&[purpose.as_bytes()], Length(length)).and_then(|key| key.fill(&mut bytes));
    filled.map_err(|_| anyhow::anyhow!("expanding the key for {purpose}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn derive(token: &str) -> ClusterSecrets {
        ClusterSecrets::derive(&Secret::new(token)).unwrap()
    }

    /// Made by the reference implementation of Argon2 and by Python's `hmac`; nodes of all versions have to make the same.
    #[test]
    fn the_secrets_of_a_token_stay_the_same_for_ever() {
        let secrets = derive("golden-token");
        assert_eq!(secrets.bootstrap_token.expose(), "c06e4y.ok7v1uhcukxmhqb7");
        assert_eq!(
            secrets.certificate_key.expose(),
            "245996012108d47369862c717bbfb0d83ed0fd3487bb499009b656b9c2cb67a9"
        );
        assert_eq!(
            secrets.agent_token.expose(),
            "3a913ec109eb6bf906fac4ffbfa3e83551024b73958125198afdf86579362007"
        );
    }

    #[test]
    fn another_token_has_nothing_in_common_and_nothing_is_shown() {
        let (one, other) = (derive("golden-token"), derive("golden-tokem"));
        assert_ne!(one.id(), other.id());
        assert_ne!(one.signing_key(), other.signing_key());
        assert_ne!(one.certificate_key, other.certificate_key);
        assert!(!format!("{one:?}").contains(one.signing_key()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4))]
        #[test]
        fn every_token_makes_a_bootstrap_token_of_kubeadms_form(token in ".{0,80}") {
            let secrets = derive(&token);
            let is = |part: &str, length| {
                part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            };
            prop_assert!(is(secrets.id(), 6) && is(secrets.signing_key(), 16));
            prop_assert_eq!(secrets.certificate_key.expose().len(), 64);
        }
    }
}
