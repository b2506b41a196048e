//! Compiles the files of `overlays/rootfs` and `overlays/initrd` into the builder: with their paths, execute bits and links.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let overlays = variable("CARGO_MANIFEST_DIR")?.join("../overlays");
    let mut source = String::new();
    for name in ["rootfs", "initrd"] {
        let root = overlays.join(name).canonicalize()?;
        println!("cargo::rerun-if-changed={}", root.display());
        let mut entries = String::new();
        visit(&root, &root, &mut entries)?;
        let constant = name.to_uppercase();
        let _ = write!(source, "const {constant}: &[ProductFile] = &[\n{entries}];\n");
    }
    fs::write(variable("OUT_DIR")?.join("overlays.rs"), source)
}

/// Adds an expression for every file and link below `directory`, sorted by path.
fn visit(root: &Path, directory: &Path, entries: &mut String) -> io::Result<()> {
    let mut paths =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            visit(root, &path, entries)?;
            continue;
        }
        let content = if metadata.is_symlink() {
            format!("ProductContent::Link({:?})", fs::read_link(&path)?)
        } else {
            let executable = metadata.permissions().mode() & 0o100 != 0;
            format!("ProductContent::File {{ bytes: include_bytes!({path:?}), executable: {executable} }}")
        };
        let relative = path.strip_prefix(root).map_err(io::Error::other)?;
        let _ = writeln!(entries, "    ProductFile {{ path: {relative:?}, content: {content} }},");
    }
    Ok(())
}
