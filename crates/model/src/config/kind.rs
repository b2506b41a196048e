//! Which document a text is, where one of another kind is expected: told once, instead of each of its keys.

use document::diagnostic::Problem;
use document::span::Span;
use document::tree::{NodeKind, TreeNode};

/// A kind of document that people write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    InstallConfiguration,
    ClusterFile,
    ImageDefinition,
    /// An object of Kubernetes.
    Manifest,
}

impl DocumentKind {
    /// The kind that the top keys of a document say; none where they are of no kind, or of several.
    #[must_use]
    pub fn of(root: &TreeNode) -> Option<Self> {
        let NodeKind::Map(entries) = &root.kind else { return None };
        let has = |keys: &[&str]| entries.iter().any(|(key, _)| keys.contains(&key.text.as_str()));
        let kinds = [
            (Self::InstallConfiguration, has(&["install", "os", "server_url", "serverUrl"])),
            // Talos has a `cluster` beside its `machine`.
            (Self::ClusterFile, has(&["cluster", "pools"]) && !has(&["machine"])),
            (Self::ImageDefinition, has(&["base", "id", "extends"])),
            (Self::Manifest, has(&["apiVersion"]) && has(&["kind"])),
        ];
        let mut said = kinds.into_iter().filter(|(_, said)| *said);
        said.next().filter(|_| said.next().is_none()).map(|(kind, _)| kind)
    }

    /// The message for such a document where another kind is expected.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::InstallConfiguration => {
                "this is an install configuration; check it with `installer validate`, and put it on a medium by \
                 `install_config` of an image definition or with `iso-builder customize --config`"
            }
            Self::ClusterFile => "this is a cluster file; check it with `installer validate --cluster`",
            Self::ImageDefinition => "this is an image definition; build it with `iso-builder build`",
            Self::Manifest => {
                "this is an object of Kubernetes; `manifests` of an image definition brings it into the cluster"
            }
        }
    }
}

/// The problem of an install configuration that is empty, or a document of another kind.
#[must_use]
pub fn fault(root: Option<&TreeNode>) -> Option<Problem> {
    let Some(root) = root else {
        let message = "the document is empty; an install configuration has at least one key, such as \
                       `install: {mode: create}`";
        return Some(Problem::new(Span::default(), "", "empty-document", message));
    };
    let kind = DocumentKind::of(root).filter(|kind| *kind != DocumentKind::InstallConfiguration)?;
    let span = Span { end: root.span.start, ..root.span };
    Some(Problem::new(span, "", "other-document", kind.told()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_known_by_its_top_keys() {
        use DocumentKind::{ClusterFile, ImageDefinition, InstallConfiguration, Manifest};
        for (text, kind) in [
            ("os: {hostname: a}\ntoken: b\n", Some(InstallConfiguration)),
            ("cluster: {name: a}\npools: []\n", Some(ClusterFile)),
            ("id: a\nbase: {debian: {}}\n", Some(ImageDefinition)),
            ("extends: default.yaml\n", Some(ImageDefinition)),
            ("apiVersion: v1\nkind: ConfigMap\ndata: {}\n", Some(Manifest)),
            ("machine: {type: controlplane}\ncluster: {}\n", None),
            ("hostname: a\n", None),
            ("os: {}\nid: a\n", None),
            ("- os\n", None),
        ] {
            let root = document::tree::read(text).unwrap().root.unwrap();
            assert_eq!(DocumentKind::of(&root), kind, "{text}");
        }
    }
}
