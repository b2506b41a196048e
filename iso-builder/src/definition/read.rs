//! Reading a definition, strictly, with the reader of install configurations: every mistake is reported with its place,
//! and paths must exist.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::size::ByteSize;
use model::config::Invalid;
use model::config::diagnostic::{Problem, Source};
use model::config::echo::{Mistakes, Unusable};
use model::config::kind::DocumentKind;
use model::config::span::Span;
use model::config::tree::{self, NodeKind, TreeNode};
use model::config::walk::{Help, Walk};
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

use super::rules::{PathTarget, Search};
use super::shape::{schema, shape};
use super::{Definition, rules, spellings};

/// The place of the first character of a document.
const DOCUMENT_BEGIN: Span = Span { start: 0, end: 0, line: 1, column: 1 };

/// A definition, with the file that its paths are relative to.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The path of the definition; `-` where it came by standard input, and its paths are relative to the current directory.
    pub file: PathBuf,
    /// The digest of its text.
    pub digest: Digest,
    pub definition: Definition,
}

impl Loaded {
    /// Reads and checks a definition. All mistakes are reported together, up to a hundred; paths must exist.
    pub fn read(file: &Path) -> Result<Self> {
        let name = named::told(file);
        let text = named::read_text(file)
            .class(Class::Invalid, || format!("reading the image definition {name}"))?;
        let search = |path: &Path, target: PathTarget| {
            let path = beside(file, path);
            if target.is_at(&path) { Ok(()) } else { Err(path) }
        };
        match parse(&text, &name, &search) {
            Ok(definition) => {
                Ok(Self { file: file.to_owned(), digest: Digest::of(text.as_bytes()), definition })
            }
            Err(invalid) => {
                let count = invalid.errors();
                let mistakes = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
                let what = format!("{name} is not a valid image definition; it has {mistakes}\n{invalid}");
                let hint = "Correct the definition; `iso-builder schema` prints every key.";
                Err(Failure::new(Class::Invalid, what).places(&invalid.0).because(invalid).hint(hint).into())
            }
        }
    }

    /// A path of the definition, relative to the current directory.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        beside(&self.file, path)
    }

    /// A client for the definition's registries; `rate` limits it to that many bytes a second.
    pub fn registries(&self, rate: Option<ByteSize>) -> Result<Client> {
        let directory = self.file.parent().unwrap_or(Path::new(""));
        Client::new(Settings {
            registries: self.definition.registries.clone().relative_to(directory),
            authorities: Vec::new(),
            docker_config: true,
            retry: RetryPolicy::default(),
            rate,
        })
    }
}

/// A path of the definition `file`, relative to the current directory.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Reads and checks the text of a definition; `name` is its name in messages. Every mistake has its place.
pub(super) fn parse(text: &str, name: &str, search: Search<'_>) -> Result<Definition, Invalid> {
    let unread = |problem| Source::unread(name, text).diagnose(vec![problem]);
    let tree = tree::read_linked(text).map_err(unread)?;
    // An empty document lacks the required keys.
    let mut root = tree.root.unwrap_or(TreeNode { span: DOCUMENT_BEGIN, kind: NodeKind::Map(Vec::new()) });
    if let Some(kind) = DocumentKind::of(&root).filter(|kind| *kind != DocumentKind::ImageDefinition) {
        let problem = Problem::new(DOCUMENT_BEGIN, "", "other-document", kind.told());
        return Err(Source::new(name, text, Vec::new(), &tree.comments).diagnose(vec![problem]));
    }
    spellings::settle(&mut root, schema());
    let place = |key: &str| shape().places(key, "").into_iter().next();
    let mut walk = Walk { help: Some(Help { within: None, place }), ..Walk::default() };
    let value = walk.value(&root, shape(), "").unwrap_or_default();
    let mistakes = Mistakes::of(walk.problems.iter());
    // The rules see the whole document, not only the part that has the right form, so that no mistake hides another.
    walk.unusable = Unusable::default();
    walk.findings(rules::check(&root, &value, search), &mistakes);
    let definition = match walk.is_clean() {
        true => serde_json::from_value(value).map_err(drop),
        false => Err(()),
    };
    if definition.is_err() && walk.is_clean() {
        // The formats accept a value that its type refuses: a defect of the builder, and still no reason to accept the
        // document.
        let message = "the definition holds a value that cannot be used";
        walk.problems.push(Problem::new(DOCUMENT_BEGIN, "", "invalid-value", message));
    }
    let source = Source::new(name, text, walk.hidden, &tree.comments);
    definition.map_err(|()| source.diagnose(walk.problems))
}

/// The mistakes of a part of a definition, as `PATH: MESSAGE`, if all files are there.
#[cfg(test)]
pub(crate) fn mistakes_of_form(part: &str) -> Vec<String> {
    let text = format!("id: a\nname: A\nversion: '1'\nbase: {{debian: {{include: [dash]}}}}\n{part}");
    let told = parse(&text, "image.yaml", &|_, _| Ok(())).err();
    let told = told.into_iter().flat_map(|invalid| invalid.0);
    told.map(|told| format!("{}: {}", told.path, told.message)).collect()
}
