//! The module tree of one crate, read by following its `mod` declarations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Item, UseTree, Visibility};

/// One module: a file, or a block within one.
#[derive(Debug, Default)]
pub struct Module {
    /// The file that contains it, relative to the workspace.
    pub file: PathBuf,
    pub lines: usize,
    pub children: BTreeMap<String, Module>,
    /// The items that are defined in it, by name.
    pub items: BTreeMap<String, Definition>,
    pub uses: Vec<Import>,
    /// Everything in it except `use` declarations, child modules and tests.
    pub body: Vec<TokenStream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// A struct, enum, union, trait or type alias that other modules may name.
    PublicType,
    Other,
}

/// One leaf of a `use` declaration.
#[derive(Debug, Clone)]
pub struct Import {
    /// `["crate", "digest", "Sha256"]`; without the last segment for a glob.
    pub path: Vec<String>,
    /// The name in this module; `*` for a glob.
    pub name: String,
    /// Re-exported.
    pub public: bool,
}

/// Reads the module in `file` and its children, which are in `folder`.
///
/// # Errors
///
/// If a source file cannot be read or is not Rust.
pub fn read_module(root: &Path, file: &Path, folder: &Path) -> Result<Module> {
    let text =
        std::fs::read_to_string(root.join(file)).with_context(|| format!("reading {}", file.display()))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
    let mut module = Module { file: file.to_owned(), lines: text.lines().count(), ..Module::default() };
    fill(root, &mut module, parsed.items, folder)?;
    Ok(module)
}

fn fill(root: &Path, module: &mut Module, items: Vec<Item>, folder: &Path) -> Result<()> {
    for item in items {
        if is_for_tests(attributes(&item)) {
            continue;
        }
        match item {
            Item::Mod(declared) => {
                let name = declared.ident.to_string();
                let below = folder.join(&name);
                let child = if let Some((_, items)) = declared.content {
                    let mut child = Module { file: module.file.clone(), ..Module::default() };
                    fill(root, &mut child, items, &below)?;
                    child
                } else {
                    let flat = folder.join(format!("{name}.rs"));
                    let file = if root.join(&flat).is_file() { flat } else { below.join("mod.rs") };
                    read_module(root, &file, &below)?
                };
                module.children.insert(name, child);
            }
            Item::Use(declared) => {
                let public = !matches!(declared.vis, Visibility::Inherited);
                leaves(&declared.tree, &mut Vec::new(), public, &mut module.uses);
            }
            other => {
                if let Some((name, definition)) = defined(&other) {
                    module.items.insert(name, definition);
                }
                module.body.push(other.into_token_stream());
            }
        }
    }
    Ok(())
}

fn leaves(tree: &UseTree, path: &mut Vec<String>, public: bool, found: &mut Vec<Import>) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            leaves(&step.tree, path, public, found);
            path.pop();
        }
        UseTree::Name(leaf) if leaf.ident == "self" => {
            let name = path.last().cloned().unwrap_or_default();
            found.push(Import { path: path.clone(), name, public });
        }
        UseTree::Name(leaf) => {
            push_leaf(path, &leaf.ident.to_string(), leaf.ident.to_string(), public, found)
        }
        UseTree::Rename(leaf) => {
            push_leaf(path, &leaf.ident.to_string(), leaf.rename.to_string(), public, found)
        }
        UseTree::Glob(_) => found.push(Import { path: path.clone(), name: "*".into(), public }),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, path, public, found)),
    }
}

fn push_leaf(path: &[String], last: &str, name: String, public: bool, found: &mut Vec<Import>) {
    let mut path = path.to_vec();
    path.push(last.to_owned());
    found.push(Import { path, name, public });
}

fn defined(item: &Item) -> Option<(String, Definition)> {
    let kind = |visibility: &Visibility| match visibility {
        Visibility::Inherited => Definition::Other,
        _ => Definition::PublicType,
    };
    Some(match item {
        Item::Struct(item) => (item.ident.to_string(), kind(&item.vis)),
        Item::Enum(item) => (item.ident.to_string(), kind(&item.vis)),
        Item::Trait(item) => (item.ident.to_string(), kind(&item.vis)),
        Item::Type(item) => (item.ident.to_string(), kind(&item.vis)),
        Item::Union(item) => (item.ident.to_string(), kind(&item.vis)),
        Item::Const(item) => (item.ident.to_string(), Definition::Other),
        Item::Static(item) => (item.ident.to_string(), Definition::Other),
        Item::Fn(item) => (item.sig.ident.to_string(), Definition::Other),
        Item::Macro(item) => (item.ident.as_ref()?.to_string(), Definition::Other),
        _ => return None,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, also within `any(…)`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let text = list.tokens.to_string();
                !text.contains("not")
                    && text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
            })
    })
}
