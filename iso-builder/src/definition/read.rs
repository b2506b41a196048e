//! Reading a definition, strictly, with the reader of install configurations: every mistake is reported with its place,
//! and paths must exist.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::size::ByteSize;
use document::diagnostic::Problem;
use document::echo::{MistakePaths, UnusableValues};
use document::shape_check::ShapeCheck;
use document::tree::TreeNode;
use model::config::Invalid;
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

use super::chain::{Chain, DOCUMENT_BEGIN, DefinitionText, ExtendedDefinition, ReadText};
use super::dialect::DefinitionDialect;
use super::formats::PathTarget;
use super::rules::Search;
use super::shape::{schema, shape};
use super::show::ShownDefinition;
use super::{Definition, rules, spellings};

/// A definition, with the file that its paths are relative to.
#[derive(Clone, Debug)]
pub struct LoadedDefinition {
    /// The path of the definition; `-` where it came by standard input, and its paths are relative to the current directory.
    pub file: PathBuf,
    pub digest: Digest,
    pub definition: Definition,
    /// The definitions that it extends, the nearest first.
    pub extended: Vec<ExtendedDefinition>,
}

impl LoadedDefinition {
    /// Reads and checks a definition. All mistakes are reported together, up to a hundred; paths must exist.
    pub fn read(file: &Path) -> Result<Self> {
        let search = |path: &Path, target: PathTarget| {
            let path = beside(file, path);
            if target.is_at(&path) { Ok(()) } else { Err(path) }
        };
        let (digest, read) = read(file, &search)?;
        let extended = read.chain.extended();
        Ok(Self { file: file.to_owned(), digest, definition: read.definition, extended })
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

/// A definition as it is after `extends`; whether its paths exist is not checked.
///
/// # Errors
/// As of [`LoadedDefinition::read`].
pub fn show(file: &Path) -> Result<ShownDefinition> {
    let (_, read) = read(file, &|_, _| Ok(()))?;
    Ok(read.shown())
}

fn read(file: &Path, search: Search<'_>) -> Result<(Digest, ReadDefinition)> {
    let name = named::told(file);
    let text =
        named::read_text(file).class(Class::Invalid, || format!("reading the image definition {name}"))?;
    let digest = Digest::of(text.as_bytes());
    let others = |path: &Path| {
        let path = beside(file, path);
        let text = named::read_text(&path)?;
        Ok(DefinitionText { name: path.display().to_string(), identity: path.canonicalize()?, text })
    };
    let identity = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let first = DefinitionText { name: name.clone(), identity, text };
    let read = parse(first, &others, search).map_err(|invalid| {
        let count = invalid.errors();
        let mistakes = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
        let what = format!("{name} is not a valid image definition; it has {mistakes}\n{invalid}");
        let hint = "Correct the definition; `iso-builder schema` prints every key.";
        Failure::new(Class::Invalid, what).places(&invalid.0).because(invalid).hint(hint)
    })?;
    Ok((digest, read))
}

/// A path of the definition `file`, relative to the current directory.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// A definition with the document that it is after `extends`.
#[derive(Debug)]
pub(super) struct ReadDefinition {
    pub definition: Definition,
    pub chain: Chain,
    pub root: TreeNode,
    /// The characters of the texts that must not be shown.
    pub hidden: Vec<Range<usize>>,
}

impl ReadDefinition {
    pub(super) fn shown(&self) -> ShownDefinition {
        ShownDefinition::of(&self.definition, &self.chain, &self.root, &self.hidden)
    }
}

/// Reads and checks the text of a definition and of those that it extends. Every mistake has its place.
pub(super) fn parse(
    first: DefinitionText,
    others: ReadText<'_>,
    search: Search<'_>,
) -> Result<ReadDefinition, Invalid> {
    let (chain, mut root, problems) = Chain::read(first, others)?;
    spellings::settle(&mut root, schema());
    let mut walk = ShapeCheck::new(&DefinitionDialect);
    // After a mistake in `extends`, missing keys are only a consequence.
    let is_whole = problems.is_empty();
    walk.problems = problems;
    let value = walk.value(&root, shape(), "").unwrap_or_default();
    if !is_whole {
        walk.problems.retain(|problem| problem.code != "missing-value");
    }
    let mistakes = MistakePaths::of(walk.problems.iter());
    // The rules see the whole document, not only the part that has the right form, so that no mistake hides another.
    walk.unusable = UnusableValues::default();
    walk.findings(rules::check(&root, &value, search), &mistakes);
    let definition = match walk.is_clean() {
        true => serde_json::from_value(value).map(Definition::for_its_architecture).map_err(drop),
        false => Err(()),
    };
    if definition.is_err() && walk.is_clean() {
        // The formats accept a value that its type refuses: a defect of the builder, and still no reason to accept the
        // document.
        let message = "the definition holds a value that cannot be used";
        walk.problems.push(Problem::new(DOCUMENT_BEGIN, "", "invalid-value", message));
    }
    match definition {
        Ok(definition) => Ok(ReadDefinition { definition, chain, root, hidden: walk.hidden }),
        Err(()) => Err(chain.diagnose(&walk.problems, &walk.hidden)),
    }
}

/// A text that extends no file, for tests.
#[cfg(test)]
pub(super) fn alone(text: &str) -> DefinitionText {
    DefinitionText { name: "image.yaml".into(), identity: "image.yaml".into(), text: text.to_owned() }
}

/// The mistakes of a part of a definition, as `PATH: MESSAGE`, if all files are there.
#[cfg(test)]
pub(crate) fn mistakes_of_form(part: &str) -> Vec<String> {
    let text = format!("id: a\nname: A\nversion: '1'\nbase: {{debian: {{include: [dash]}}}}\n{part}");
    let others = |_: &Path| anyhow::bail!("there is no other definition");
    let told = parse(alone(&text), &others, &|_, _| Ok(())).err();
    let told = told.into_iter().flat_map(|invalid| invalid.0);
    told.map(|told| format!("{}: {}", told.path, told.message)).collect()
}
