//! The rules of `docs/architecture.md` that a program can check.

#![allow(clippy::unwrap_used, reason = "a test")]

use nqrust_structure::workspace::{FOLDERS, read_crates, workspace_root};
use nqrust_structure::{circles, imports};

#[test]
fn no_file_and_no_folder_imports_itself_by_way_of_others() {
    let imports = imports::imports(&read_crates(&workspace_root(), &FOLDERS).unwrap());
    assert!(imports.len() > 1000, "only {} imports were found: the sources are not read", imports.len());
    let found = circles::file_circles(&imports).into_iter().chain(circles::folder_circles(&imports));
    let found: Vec<_> = found.map(|circle| circle.to_string()).collect();
    assert!(found.is_empty(), "{} circles\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_crate_has_two_public_types_of_one_name() {
    let mut found = Vec::new();
    for one in read_crates(&workspace_root(), &FOLDERS).unwrap() {
        for (name, files) in one.public_types().into_iter().filter(|(_, files)| files.len() > 1) {
            found.push(format!("{}: {name} in {files:?}", one.name));
        }
    }
    assert!(found.is_empty(), "{} names\n{}", found.len(), found.join("\n"));
}
