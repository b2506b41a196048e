//! Reading a definition, strictly, with the reader of install configurations: every mistake is reported with its place,
//! and paths must exist.

use std::collections::HashSet;
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
use model::architecture::Architecture;
use model::config::Invalid;
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

use super::chain::{Chain, DOCUMENT_BEGIN, DefinitionText, ExtendedDefinition, ReadText, WholeDocument};
use super::choice::{self, ImageChoice, ImageSet};
use super::dialect::DefinitionDialect;
use super::formats::PathTarget;
use super::rules::Search;
use super::shape::{schema, shape};
use super::show::ShownDefinition;
use super::{Definition, rules, spellings, variants};

/// A definition, with the file that its paths are relative to.
#[derive(Clone, Debug)]
pub struct LoadedDefinition {
    /// The path of the definition; `-` where it came by standard input, and its paths are relative to the current directory.
    pub file: PathBuf,
    pub digest: Digest,
    /// Which of its variants it is, if it has some.
    pub variant: Option<String>,
    pub definition: Definition,
    /// The definitions that it extends, the nearest first.
    pub extended: Vec<ExtendedDefinition>,
}

impl LoadedDefinition {
    /// Reads and checks a definition of one image.
    ///
    /// # Errors
    /// As of [`LoadedDefinition::read_each`]; [`Class::Invalid`] if the definition has several variants or architectures.
    pub fn read(file: &Path) -> Result<Self> {
        Self::read_one(file, &ImageChoice::default())
    }

    /// Reads and checks a definition, for the only image that is meant.
    ///
    /// # Errors
    /// As of [`LoadedDefinition::read_each`]; [`Class::Invalid`] if several are meant.
    pub fn read_one(file: &Path, choice: &ImageChoice) -> Result<Self> {
        let mut each = Self::read_each(file, choice)?;
        match each.pop() {
            Some(loaded) if each.is_empty() => Ok(loaded),
            last => {
                let all: Vec<_> = each.iter().chain(&last).map(|loaded| loaded.variant.as_deref()).collect();
                Err(choice::several(file, &all).into())
            }
        }
    }

    /// Reads and checks a definition, once for each image that is meant: for each of its variants, each of their architectures.
    /// All mistakes are reported together, up to a hundred; paths must exist.
    ///
    /// # Errors
    /// [`Class::Invalid`] if it cannot be read, has mistakes, or does not have what `choice` names.
    pub fn read_each(file: &Path, choice: &ImageChoice) -> Result<Vec<Self>> {
        let search = |path: &Path, target: PathTarget| {
            let path = beside(file, path);
            if target.is_at(&path) { Ok(()) } else { Err(path) }
        };
        let (digest, read) = read(file, &search)?;
        let extended = read.chain.extended();
        let of = |(at, architecture): (usize, Architecture)| {
            let ReadVariant { name, definition, .. } = &read.variants[at];
            Self {
                file: file.to_owned(),
                digest,
                variant: name.clone(),
                definition: definition.clone().for_architecture(architecture),
                extended: extended.clone(),
            }
        };
        Ok(choice.of(&read.images(), file)?.into_iter().map(of).collect())
    }

    /// What tells this image from the others of its definition: its variant, and its architecture where the definition has several.
    #[must_use]
    pub fn own_names(&self) -> Vec<&str> {
        let architecture = self.definition.own_architecture().map(Architecture::debian);
        self.variant.as_deref().into_iter().chain(architecture).collect()
    }

    /// The path of the definition for people, with the image of it that is meant if it has several.
    #[must_use]
    pub fn told(&self) -> String {
        let own = self.own_names();
        let names = if own.is_empty() { String::new() } else { format!(" ({})", own.join(", ")) };
        format!("{}{names}", named::told(&self.file))
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

/// A definition as it is after `extends`, or one of its variants; whether its paths exist is not checked.
///
/// # Errors
/// As of [`LoadedDefinition::read`]; [`Class::Invalid`] if it has several variants and none is named.
pub fn show(file: &Path, variant: Option<&str>) -> Result<ShownDefinition> {
    let (_, read) = read(file, &|_, _| Ok(()))?;
    let variants = variant.into_iter().map(str::to_owned).collect();
    let choice = ImageChoice { architecture: None, variants };
    let mut meant: Vec<_> = choice.of(&read.images(), file)?.into_iter().map(|(at, _)| at).collect();
    meant.dedup();
    match &meant[..] {
        [at] => Ok(read.variants[*at].shown(&read.chain)),
        _ => {
            let names: Vec<_> = read.variants.iter().map(|variant| variant.name.as_deref()).collect();
            Err(choice::several(file, &names).into())
        }
    }
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

/// A definition with the texts that it is made of.
#[derive(Debug)]
pub(super) struct ReadDefinition {
    pub chain: Chain,
    /// One without a name where there is no variant.
    pub variants: Vec<ReadVariant>,
}

/// A definition, or one of its variants, with the document that it is after `extends`.
#[derive(Debug)]
pub(super) struct ReadVariant {
    pub name: Option<String>,
    /// With the packages of all architectures.
    pub definition: Definition,
    pub root: TreeNode,
    /// The characters of the texts that must not be shown.
    pub hidden: Vec<Range<usize>>,
}

impl ReadDefinition {
    fn images(&self) -> Vec<ImageSet> {
        let of = |ReadVariant { name, definition, .. }: &ReadVariant| {
            let architectures = match &definition.architectures[..] {
                [] => vec![definition.architecture],
                several => several.to_vec(),
            };
            ImageSet { name: name.clone(), architectures }
        };
        self.variants.iter().map(of).collect()
    }
}

impl ReadVariant {
    pub(super) fn shown(&self, chain: &Chain) -> ShownDefinition {
        let whole = self.definition.clone();
        // One for several architectures is shown as it is, with the packages of all.
        let definition = match whole.architectures.is_empty() {
            true => whole.for_architecture(self.definition.architecture),
            false => whole,
        };
        ShownDefinition::of(&definition, chain, &self.root, &self.hidden)
    }
}

/// Reads and checks the text of a definition and of those that it extends. Every mistake has its place.
pub(super) fn parse(
    first: DefinitionText,
    others: ReadText<'_>,
    search: Search<'_>,
) -> Result<ReadDefinition, Invalid> {
    let (chain, documents) = Chain::read(first, others)?;
    let (mut variants, mut problems, mut hidden) = (Vec::new(), Vec::<Problem>::new(), Vec::new());
    let mut told = HashSet::new();
    for document in documents {
        match checked(document, search) {
            Ok(variant) => variants.push(variant),
            Err((found, ranges)) => {
                // What variants have in common has the same mistakes in each.
                problems.extend(found.into_iter().filter(|Problem { span, path, message, .. }| {
                    told.insert((span.start, path.clone(), message.clone()))
                }));
                hidden.extend(ranges);
            }
        }
    }
    match problems.is_empty() {
        true => Ok(ReadDefinition { chain, variants }),
        false => Err(chain.diagnose(&problems, &hidden)),
    }
}

/// The mistakes of a document, and the characters of the texts that must not be shown.
type Mistakes = (Vec<Problem>, Vec<Range<usize>>);

/// Checks a document.
fn checked(document: WholeDocument, search: Search<'_>) -> Result<ReadVariant, Mistakes> {
    let WholeDocument { variant, mut root, problems } = document;
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
    let (problems, hidden) = (walk.problems, walk.hidden);
    match (definition, variant) {
        (Ok(definition), variant) => {
            let name = variant.map(|(name, _)| name);
            Ok(ReadVariant { name, definition, root, hidden })
        }
        (Err(()), Some((name, place))) => Err((variants::located(problems, &name, place), hidden)),
        (Err(()), None) => Err((problems, hidden)),
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
