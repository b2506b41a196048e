//! A finished node, and why it is left as it is, in words.

use super::decide::LeaveReason;
use super::read::{FinishedNode, NodeOrigin};
use base::digest::Digest;

impl FinishedNode {
    /// Its disk, or both disks.
    #[must_use]
    pub fn disks(&self) -> String {
        let first = self.place.disk.display();
        match &self.twin {
            Some(twin) => format!("{first} and {}", twin.display()),
            None => first.to_string(),
        }
    }

    #[must_use]
    pub fn headline(&self) -> String {
        let name = self.identity.as_ref().and_then(|identity| identity.hostname.as_deref());
        let name = name.map(|name| format!(", {name}")).unwrap_or_default();
        let holds = if self.twin.is_some() { "hold" } else { "holds" };
        format!("{} {holds} a finished node{name}", self.disks())
    }

    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        match &self.identity {
            Some(identity) => {
                facts.push(("node", identity.hostname.clone().unwrap_or_else(|| "without a name".into())));
                facts.push(("role", identity.role.to_string()));
                facts.extend(identity.cluster.clone().map(|cluster| ("cluster", cluster)));
            }
            None => facts.push(("node", "its node document could not be read".into())),
        }
        facts.push(("disk", self.place.description.clone()));
        facts.extend(self.twin.as_ref().map(|twin| ("mirror", twin.display().to_string())));
        match &self.origin {
            NodeOrigin::Recorded(record) => {
                let medium = &record.medium;
                facts.push(("since", record.installed().replace('T', " ").replace('Z', " UTC")));
                let customized = if record.is_customized() { ", customized" } else { "" };
                let product = format!("{} {}{customized}", medium.product, medium.version);
                facts.push(("medium", product));
                facts.push(("", short(medium.release)));
                let sources = match &record.sources[..] {
                    [] => "the defaults".to_owned(),
                    sources => sources.join(", "),
                };
                facts.push(("configured by", sources));
                facts.push(("", format!("fingerprint {}", record.configuration())));
            }
            NodeOrigin::Unrecorded(Some(known)) => {
                facts.push(("since", "not recorded".into()));
                facts.push(("medium", known.product.clone()));
                facts.push(("", short(known.release)));
            }
            NodeOrigin::Unrecorded(None) => facts.push(("since", "not recorded".into())),
            NodeOrigin::Unreadable(why) => facts.push(("not known", why.clone())),
        }
        facts
    }

    /// All of it as text.
    #[must_use]
    pub fn describe(&self) -> String {
        let facts = self.facts().into_iter().map(|(name, value)| format!("  {name:<14} {value}\n"));
        format!("{}\n{}", self.headline(), facts.collect::<String>())
    }
}

/// The digits of a release's digest that distinguish it; a medium has the same digits in the name of its mark.
fn short(release: Digest) -> String {
    let digits = release.to_string();
    format!("release {}", digits.get(..16).unwrap_or(&digits))
}

impl LeaveReason {
    /// Why nothing is installed.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NotAsked => "install.reinstall is false".into(),
            Self::Same => {
                "install.reinstall is true, and the node was installed from this medium with this configuration".into()
            }
            Self::Used(word) => {
                format!("install.reinstall is once:{}, and the node has recorded that word", word.as_str())
            }
            Self::Unknown => {
                "it is not known whether the node was installed from this medium with this configuration".into()
            }
            Self::NoConfiguration(why) => format!("the configuration could not be loaded: {why}"),
        }
    }

    /// What to do to install anyway.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unknown => "To install over it, use the console.",
            Self::NoConfiguration(_) => {
                "To install over it, start the medium again when its configuration can be loaded and has \
                    install.reinstall, or use the console."
            }
            _ => {
                "To install over it once, start the medium with nqrust.install.reinstall=once:WORD, with a \
                    WORD that was not used before, or use the console."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installed::decide::tests::{node, recorded};
    use crate::installed::record::tests::offer;

    #[test]
    fn a_node_says_who_it_is_since_when_and_from_what() {
        let offer = offer("{os: {hostname: node-1}}");
        let text = recorded(&offer, &[]).describe();
        for part in [
            "/dev/vda holds a finished node, node-1\n",
            "  role           management (asked: default)\n",
            "  cluster        192.0.2.10\n",
            "  disk           /dev/vda: 32 GiB, model QEMU HARDDISK, serial serial-vda\n",
            " UTC\n",
            &format!("release {}\n", &offer.release.to_string()[..16]),
            "  configured by  embedded configuration (config/install.yaml)\n",
            "fingerprint ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_not_known_of_a_node_is_said() {
        let mut node = node(NodeOrigin::Unreadable("Input/output error".into()));
        node.identity = None;
        let text = node.describe();
        assert!(text.contains("  not known      Input/output error\n"), "{text}");
        assert!(text.contains("its node document could not be read"), "{text}");
    }
}
