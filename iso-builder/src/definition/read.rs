//! Reading a definition, strictly, with the reader of install configurations: every mistake is reported with its place,
//! and paths must exist.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::size::ByteSize;
use document::diagnostic::Problem;
use document::echo::{MistakePaths, UnusableValues};
use document::shape_check::ShapeCheck;
use document::tree::TreeNode;
use model::architecture::Architecture;
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
use crate::wording::enumerated;

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
    /// Reads and checks a definition of one architecture.
    ///
    /// # Errors
    /// As of [`LoadedDefinition::read_each`]; [`Class::Invalid`] if the definition is for several architectures.
    pub fn read(file: &Path) -> Result<Self> {
        Self::read_one(file, None)
    }

    /// Reads and checks a definition, for its only architecture or for that which is named.
    ///
    /// # Errors
    /// As of [`LoadedDefinition::read_each`]; [`Class::Invalid`] if the definition is for several architectures and none is named.
    pub fn read_one(file: &Path, only: Option<Architecture>) -> Result<Self> {
        let mut each = Self::read_each(file, only)?;
        match each.pop() {
            Some(loaded) if each.is_empty() => Ok(loaded),
            _ => {
                let what = format!("{} is for more than one architecture", named::told(file));
                Err(Failure::new(Class::Invalid, what).hint("Name one: --architecture amd64.").into())
            }
        }
    }

    /// Reads and checks a definition, once for each of its architectures, or only for one of them. All mistakes are reported together,
    /// up to a hundred; paths must exist.
    ///
    /// # Errors
    /// [`Class::Invalid`] if it cannot be read, has mistakes, or is not for the architecture `only`.
    pub fn read_each(file: &Path, only: Option<Architecture>) -> Result<Vec<Self>> {
        let search = |path: &Path, target: PathTarget| {
            let path = beside(file, path);
            if target.is_at(&path) { Ok(()) } else { Err(path) }
        };
        let (digest, read) = read(file, &search)?;
        let extended = read.chain.extended();
        let whole = read.definition;
        let all = if whole.architectures.is_empty() {
            vec![whole.architecture]
        } else {
            whole.architectures.clone()
        };
        if let Some(other) = only.filter(|only| !all.contains(only)) {
            let what = format!("{} is not for {other}", named::told(file));
            let why = anyhow!("it is for {}", enumerated(&all));
            let hint =
                format!("Leave out --architecture, or set `architectures: [{}]`.", joined(&all, other));
            return Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into());
        }
        let wanted = all.into_iter().filter(|architecture| only.is_none_or(|only| only == *architecture));
        let of = |architecture| Self {
            file: file.to_owned(),
            digest,
            definition: whole.clone().for_architecture(architecture),
            extended: extended.clone(),
        };
        Ok(wanted.map(of).collect())
    }

    /// A path of the definition, relative to the current directory.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        beside(&self.file, path)
    }

    /// A client for the definition's registries; `rate` limits it to that many bytes a second.
    pub fn registries(&self, rate: Option<ByteSize>, retry: RetryPolicy) -> Result<Client> {
        let directory = self.file.parent().unwrap_or(Path::new(""));
        Client::new(Settings {
            registries: self.definition.registries.clone().relative_to(directory),
            authorities: Vec::new(),
            docker_config: true,
            retry,
            rate,
        })
    }
}

/// The elements of the list `architectures` with one more.
fn joined(all: &[Architecture], other: Architecture) -> String {
    let names: Vec<_> = all.iter().copied().chain([other]).map(Architecture::debian).collect();
    names.join(", ")
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
    /// With the packages of all architectures.
    pub definition: Definition,
    pub chain: Chain,
    pub root: TreeNode,
    /// The characters of the texts that must not be shown.
    pub hidden: Vec<Range<usize>>,
}

impl ReadDefinition {
    pub(super) fn shown(&self) -> ShownDefinition {
        let whole = self.definition.clone();
        // One for several architectures is shown as it is, with the packages of all.
        let definition = match whole.architectures.is_empty() {
            true => whole.for_architecture(self.definition.architecture),
            false => whole,
        };
        ShownDefinition::of(&definition, &self.chain, &self.root, &self.hidden)
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
        true => serde_json::from_value(value).map_err(drop),
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
