//! Which file imports which names from which other file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};

use crate::modules::{Import, Module};
use crate::workspace::Crate;

/// From file to file, with the imported names.
pub type Imports = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

/// Every import within `crates` and between them.
#[must_use]
pub fn imports(crates: &[Crate]) -> Imports {
    let mut found = Imports::new();
    for (index, one) in crates.iter().enumerate() {
        visit(&Resolver { crates, home: index }, &one.root, &mut Vec::new(), &mut found);
    }
    found
}

fn visit(resolver: &Resolver<'_>, module: &Module, place: &mut Vec<String>, found: &mut Imports) {
    let mut paths = Vec::new();
    let mut words = BTreeSet::new();
    for item in &module.body {
        token_paths(item.clone(), &mut paths, &mut words);
    }
    // A re-exported name ties the files that use it, not the module that re-exports it.
    for import in module.uses.iter().filter(|import| !import.public || words.contains(&import.name)) {
        paths.push(import.path.clone());
    }
    for path in paths {
        if let Some((file, name)) = resolver.definition(place, &path, 0)
            && *file != module.file
        {
            found.entry((module.file.clone(), file.clone())).or_default().insert(name);
        }
    }
    for (name, child) in &module.children {
        place.push(name.clone());
        visit(resolver, child, place, found);
        place.pop();
    }
}

/// Collects the paths of two segments or more in a stream of tokens, and all its words.
fn token_paths(tokens: TokenStream, paths: &mut Vec<Vec<String>>, words: &mut BTreeSet<String>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    let mut end = |path: &mut Vec<String>| {
        if path.len() > 1 {
            paths.push(std::mem::take(path));
        }
        path.clear();
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                words.insert(word.clone());
                if colons != 2 {
                    end(&mut path);
                }
                path.push(word);
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                end(&mut path);
                colons = 0;
                groups.push(group.stream());
            }
            _ => {
                end(&mut path);
                colons = 0;
            }
        }
    }
    end(&mut path);
    for group in groups {
        token_paths(group, paths, words);
    }
}

struct Resolver<'a> {
    crates: &'a [Crate],
    /// The index of the crate that contains the paths.
    home: usize,
}

/// How many re-exports are followed.
const DEPTH_LIMIT: usize = 16;

impl<'a> Resolver<'a> {
    /// The file that defines `path` in the module `place`, and the name. `None` for a module, a primitive, and external
    /// items.
    fn definition(&self, place: &[String], path: &[String], depth: usize) -> Option<(&'a PathBuf, String)> {
        if depth > DEPTH_LIMIT {
            return None;
        }
        let first = path.first()?;
        match first.as_str() {
            "crate" => self.look_up(self.home, &[], &path[1..], depth),
            "self" => self.look_up(self.home, place, &path[1..], depth),
            "super" => {
                let up = path.iter().take_while(|segment| *segment == "super").count();
                let above = place.len().checked_sub(up)?;
                self.look_up(self.home, &place[..above], &path[up..], depth)
            }
            _ => {
                let module = self.module(self.home, place)?;
                if module.children.contains_key(first)
                    || module.uses.iter().any(|import| import.name == *first)
                {
                    return self.look_up(self.home, place, path, depth);
                }
                let other = self.crates.iter().position(|one| one.name == *first)?;
                self.look_up(other, &[], &path[1..], depth)
            }
        }
    }

    fn look_up(
        &self,
        home: usize,
        place: &[String],
        path: &[String],
        depth: usize,
    ) -> Option<(&'a PathBuf, String)> {
        let module = self.module(home, place)?;
        let name = path.first()?;
        // After `pub use install::install;` the name is the module's if the path goes on.
        if path.len() > 1 && module.children.contains_key(name) {
            let mut below = place.to_vec();
            below.push(name.clone());
            if let Some(found) = self.look_up(home, &below, &path[1..], depth) {
                return Some(found);
            }
        }
        if let Some(import) = module.uses.iter().find(|import| import.name == *name) {
            return self.through(home, place, import, &path[1..], depth);
        }
        if module.items.contains_key(name) {
            return Some((&module.file, name.clone()));
        }
        module
            .uses
            .iter()
            .filter(|import| import.name == "*")
            .find_map(|import| self.through(home, place, import, path, depth))
    }

    fn through(
        &self,
        home: usize,
        place: &[String],
        import: &Import,
        rest: &[String],
        depth: usize,
    ) -> Option<(&'a PathBuf, String)> {
        let mut path = import.path.clone();
        path.extend_from_slice(rest);
        // `use cards::Card;` beside `mod cards;` must not find itself.
        if import.path.len() == 1 && import.path[0] == import.name {
            return None;
        }
        Resolver { crates: self.crates, home }.definition(place, &path, depth + 1)
    }

    fn module(&self, home: usize, place: &[String]) -> Option<&'a Module> {
        let mut module = &self.crates.get(home)?.root;
        for name in place {
            module = module.children.get(name)?;
        }
        Some(module)
    }
}
