//! Prints the structure as a table: each crate's files, lines and public type names, then the names that occur twice,
//! then every circle with its edges. With a folder as argument, only what is in it.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use anyhow::Result;
use nqrust_structure::{circles, imports, workspace};

fn main() -> Result<()> {
    let crates = workspace::read_crates(&workspace::workspace_root(), &workspace::FOLDERS)?;
    println!("{:<14} {:>6} {:>8} {:>12} {:>10}", "crate", "files", "lines", "public types", "names twice");
    for one in &crates {
        let names = one.public_types();
        let twice = names.values().filter(|files| files.len() > 1).count();
        println!("{:<14} {:>6} {:>8} {:>12} {:>10}", one.name, one.files(), one.lines(), names.len(), twice);
    }
    let folder = std::env::args().nth(1).unwrap_or_default();
    for one in crates.iter().filter(|one| one.sources.starts_with(&folder)) {
        for (name, files) in one.public_types().into_iter().filter(|(_, files)| files.len() > 1) {
            println!(
                "twice: {name}: {}",
                files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
            );
        }
    }
    let imports = imports::imports(&crates);
    for (title, found) in
        [("files", circles::file_circles(&imports)), ("folders", circles::folder_circles(&imports))]
    {
        let found: Vec<_> = found
            .into_iter()
            .filter(|circle| circle.rooms.iter().any(|room| room.starts_with(&folder)))
            .collect();
        println!("\ncircles among {title}: {}", found.len());
        for circle in found {
            print!("{circle}");
        }
    }
    Ok(())
}
