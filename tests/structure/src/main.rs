//! Prints the structure as a table: each crate's files, lines and public type names, then every circle with what ties it.

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
    let imports = imports::imports(&crates);
    for (title, found) in
        [("files", circles::file_circles(&imports)), ("folders", circles::folder_circles(&imports))]
    {
        println!("\ncircles among {title}: {}", found.len());
        for circle in found {
            print!("{circle}");
        }
    }
    Ok(())
}
