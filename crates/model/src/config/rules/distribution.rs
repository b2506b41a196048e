//! Keys that work with some distributions of Kubernetes only.

use std::collections::BTreeSet;

use super::ranges::{NAME_SERVER, services};
use crate::config::registries::SETTING as REGISTRIES;
use crate::config::{Distribution, Harvester, InstallConfig, Secret, Token};
use document::finding::Finding;

/// The code of what a distribution does not have.
const WRONG: &str = "wrong-distribution";
/// A token with less can be found by machines that can be rented. In bits.
const TOKEN_BITS_MIN: u32 = 80;
/// A token of 16 characters or more has this many at least, unless it repeats itself. In bits.
const VARIETY_BITS_MIN: u32 = 45;
/// The entropy of a character that follows from those before it, in bits.
const FORESEEN_BITS: f64 = 1.0;

fn is_kubeadm(config: &InstallConfig) -> bool {
    config.kubernetes.distribution() == Distribution::Kubeadm
}

/// RKE2 and K3s bring the network of their pods, and set up their control plane themselves. A document that names no distribution
/// may be for any medium.
pub(super) fn only_with_kubeadm(config: &InstallConfig) -> Vec<Finding> {
    let named = config.kubernetes.distribution.filter(|named| *named != Distribution::Kubeadm);
    let Some(distribution) = named.map(Distribution::name) else { return Vec::new() };
    let keys = [
        ("network", config.kubernetes.network.is_some(), "which brings the network of its pods"),
        ("timing", config.kubernetes.timing.is_some(), "which has its own intervals"),
    ];
    let given = keys.into_iter().filter(|(_, given, _)| *given);
    let finding = |(key, _, why): (&str, bool, &str)| {
        let message =
            format!("`{key}` works with `kubernetes.distribution: kubeadm`; this is {distribution}, {why}");
        Finding::new(format!("kubernetes.{key}"), WRONG, message)
    };
    given.map(finding).collect()
}

/// kubeadm computes the address of the cluster's name server.
pub(super) fn name_server_is_the_tenth(config: &InstallConfig) -> Vec<Finding> {
    let server = config.install.cluster_dns.filter(|_| is_kubeadm(config));
    let tenth = services(config).nth(NAME_SERVER);
    let (Some(server), Some(tenth)) = (server, tenth) else { return Vec::new() };
    if server == tenth {
        return Vec::new();
    }
    let message =
        format!("kubeadm gives the cluster's name server the tenth address of the services, {tenth}");
    vec![Finding::new("install.cluster_dns", WRONG, message).suggest(tenth.to_string())]
}

/// Addons and settings are objects of kinds that come with the charts of the hypervisor.
pub(super) fn kinds_of_the_hypervisor(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    if !is_kubeadm(config) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    keys.extend((!install.addons.is_empty()).then(|| ("install.addons".to_owned(), "addons")));
    let harvester = install.harvester != Harvester::default();
    keys.extend(harvester.then(|| ("install.harvester".to_owned(), "storage of this kind")));
    let settings = config.system_settings.keys().filter(|name| **name != REGISTRIES);
    keys.extend(settings.map(|name| (format!("system_settings.{name}"), "settings of this kind")));
    let finding = |(path, what): (String, &str)| {
        let message =
            format!("no effect: this cluster has no {what}, which the charts of the hypervisor bring");
        Finding::warning(path, "no-effect", message)
    };
    keys.into_iter().map(finding).collect()
}

/// Why a token is too weak for a cluster of kubeadm. Anyone who reaches its API gets a text that the token has signed, and
/// can try tokens against it elsewhere, as fast as machines go; with RKE2 and K3s each try is a question to a server.
pub(super) fn weakness(token: &str) -> Option<String> {
    let bits = bits(&password(token));
    (bits < f64::from(TOKEN_BITS_MIN)).then(|| {
        format!(
            "the token has about {bits:.0} bits and should have {TOKEN_BITS_MIN}: it can be tried without asking the \
             cluster, because what it signs is public; `openssl rand -hex 24` makes a good one"
        )
    })
}

/// True if a token is long and still easy to guess, as `aaaaaaaaaaaaaaaaaaaaaaaa` is.
pub(super) fn has_little_variety(token: &str) -> bool {
    bits(&password(token)) < f64::from(VARIETY_BITS_MIN)
}

/// The part of a token that is secret. One that cannot be read is judged as it stands.
fn password(token: &str) -> String {
    let token = Secret::new(token);
    let read = Token::read(&token);
    read.as_ref().map_or(&token, Token::password).expose().to_owned()
}

/// An upper estimate of how many bits a text has: each character those of the alphabet that the text is of, but one that
/// goes on with a repetition or a sequence next to nothing.
fn bits(text: &str) -> f64 {
    let characters: Vec<char> = text.chars().collect();
    let each = f64::from(u32::try_from(alphabet(&characters)).unwrap_or(u32::MAX)).log2();
    let of = |index: usize| if is_foreseen(&characters, index) { FORESEEN_BITS.min(each) } else { each };
    (0..characters.len()).map(of).sum()
}

/// How many characters there are of the kinds that occur; of those that mostly separate words only what occurs itself.
fn alphabet(characters: &[char]) -> usize {
    let any = |is: fn(&char) -> bool| characters.iter().any(is);
    if characters.iter().all(char::is_ascii_digit) {
        return 10;
    }
    let one_case = !(any(char::is_ascii_lowercase) && any(char::is_ascii_uppercase));
    if one_case && characters.iter().all(char::is_ascii_hexdigit) {
        return 16;
    }
    let of_kind = |is, size| if any(is) { size } else { 0 };
    let others: BTreeSet<_> = characters.iter().filter(|c| !c.is_ascii_alphanumeric()).collect();
    of_kind(char::is_ascii_digit, 10)
        + of_kind(char::is_ascii_lowercase, 26)
        + of_kind(char::is_ascii_uppercase, 26)
        + others.len()
}

/// True if a character follows from those before it: it goes on as the two before it did (`aaa`, `abc`, `321`), or it ends
/// three characters that have been there.
fn is_foreseen(characters: &[char], index: usize) -> bool {
    let Some(start) = index.checked_sub(2) else { return false };
    let last = &characters[start..=index];
    let step = |pair: &[char]| i64::from(u32::from(pair[1])) - i64::from(u32::from(pair[0]));
    let goes_on = step(&last[..2]) == step(&last[1..]) && step(&last[..2]).abs() <= 1;
    goes_on || characters[..index].windows(3).any(|earlier| earlier == last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_alphabet_without_what_can_be_foreseen() {
        for (token, from, to) in [
            ("", 0, 0),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 40, 50),
            ("0123456789abcdef0123456789abcdef0123456789abcdef", 40, 75),
            ("correcthorse", 50, 60),
            ("passwordpasswordpasswordpassword", 55, 75),
            // As `openssl rand -hex` prints them: 12, 16 and 24 bytes.
            ("9f86d081884c7d659a2feaa0", 88, 96),
            ("2cf24dba5fb0a30e26e83b2ac5b9e29e", 118, 128),
            ("1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d", 175, 192),
            ("07401b.f395accd246ae52d", 80, 140),
            ("Tr0ub4dor&3xyzzy", 85, 100),
        ] {
            let bits = bits(token);
            assert!(f64::from(from) <= bits && bits <= f64::from(to), "{token}: {bits}");
        }
    }

    #[test]
    fn of_a_whole_token_the_password_counts() {
        let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(password(&format!("K10{digest}::server:short")), "short");
        assert_eq!(password("K10 and no more"), "K10 and no more");
        assert!(weakness(&format!("K10{digest}::server:correcthorse")).unwrap().contains("about 56 bits"));
        assert!(weakness("1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d").is_none());
    }
}
