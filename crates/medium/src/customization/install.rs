//! The effect of a customized medium on an install: the configuration for a machine, and additional files.

use std::collections::BTreeSet;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Content, FILE};
use model::config::os::{Encoding, WriteFile};
use model::config::sources::{Document, SourceKind};
use model::config::{InstallConfig, Secret};
use model::machine::{Identity, Nodes};

impl Content {
    /// The configurations by their machines. A name without a machine, or two for one machine, is an error.
    pub fn by_machine(&self) -> Result<Nodes> {
        Nodes::of(FILE, self.nodes.keys().cloned())
    }

    /// The configuration for the machine, with a sentence that says which one it is and why.
    pub fn document(&self, identity: &Identity) -> Result<Option<(String, Document)>> {
        let nodes = self.by_machine()?;
        let Some(chosen) = nodes.choose(identity)? else { return Ok(None) };
        let told = format!("the medium was customized and has {chosen}");
        let text = self.nodes.get(chosen.file).map_or("", Secret::expose);
        Ok(Some((told, Document::yaml(SourceKind::Embedded, format!("{FILE}:/nodes/{}", chosen.file), text))))
    }

    /// Adds the medium's files to those that the node writes. A file that the configuration has too is the
    /// configuration's.
    pub fn add_files(&self, config: &mut InstallConfig) {
        let there: BTreeSet<String> =
            config.os.write_files.iter().map(|file| file.path.to_string()).collect();
        for (path, file) in &self.files {
            let path = format!("/{path}");
            let (Ok(absolute), Ok(content)) = (path.parse(), STANDARD.encode(&file.bytes).parse()) else {
                continue;
            };
            if !there.contains(&path) {
                let permissions = format!("{:04o}", file.mode).parse().ok();
                let encoding = Encoding::Base64;
                let file = WriteFile { path: absolute, content, encoding, owner: None, permissions };
                config.os.write_files.push(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::customization::File;
    use base::failure::{Class, class_of};
    use model::config::encoding::decode;
    use model::config::parse;

    fn content(names: &[&str]) -> Content {
        let nodes = names.iter().map(|name| ((*name).to_owned(), Secret::new("os: {hostname: a}\n")));
        Content { nodes: nodes.collect(), ..Content::default() }
    }

    fn identity() -> Identity {
        Identity { serial: Some("CZ12".into()), ..Identity::default() }
    }

    #[test]
    fn a_machine_gets_its_own_document_and_is_told_why() {
        let (told, document) =
            content(&["serial-CZ12.yaml", "default.yaml"]).document(&identity()).unwrap().unwrap();
        assert_eq!(
            told,
            "the medium was customized and has serial-CZ12.yaml, because this machine has serial:CZ12"
        );
        assert_eq!(
            (document.kind(), document.name()),
            (SourceKind::Embedded, "custom.img:/nodes/serial-CZ12.yaml")
        );
        assert!(content(&["serial-other.yaml"]).document(&identity()).unwrap().is_none());
        let error = content(&["node.yaml"]).document(&identity()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
    }

    #[test]
    fn files_of_the_medium_are_written_by_the_node_unless_the_configuration_has_them() {
        let file = |bytes: &[u8]| File { mode: 0o755, bytes: bytes.to_vec() };
        let files =
            [("etc/own".to_owned(), file(b"\0\xff")), ("etc/both".to_owned(), file(b"medium"))].into();
        let text = "os: {write_files: [{path: /etc/both, content: configuration}]}";
        let mut config = parse(text, "f").unwrap();
        Content { files, ..Content::default() }.add_files(&mut config);
        let found: Vec<_> =
            config.os.write_files.iter().map(|file| (&*file.path, decode(file).unwrap())).collect();
        assert_eq!(found, [("/etc/both", b"configuration".to_vec()), ("/etc/own", b"\0\xff".to_vec())]);
        assert_eq!(config.os.write_files[1].permissions.as_deref(), Some("0755"));
    }
}
