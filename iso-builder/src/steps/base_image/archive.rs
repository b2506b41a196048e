//! Untrusted tar archives: complete trees, and layers of images. GNU tar unpacks them, because it keeps everything;
//! before that the archive is read once, to find what must not be unpacked and what has to be removed first.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Failure};

use super::super::limit::long;
use super::super::tree::Tree;
use super::super::within::{RedirectedLinks, is_plain_name, link_within, within};
use super::directory;
use super::unreadable::unreadable;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::steps) enum ArchiveUse {
    /// A complete tree.
    Whole,
    /// A layer (image-spec 1.1, `layer.md`): unpacked over others, and with whiteouts.
    Layer,
}

/// The first bytes of compressed files, the program that decompresses each, and its Debian package.
const DECOMPRESSORS: &[(&[u8], &str, &str)] = &[
    (b"\x1f\x8b", "gzip", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd"),
    (b"\xfd7zXZ\0", "xz", "xz-utils"),
    (b"BZh", "bzip2", "bzip2"),
    (b"LZIP", "lzip", "lzip"),
    (b"\x89LZO", "lzop", "lzop"),
];

pub(in crate::steps) fn unpack(archive: &Path, tree: &Tree, scratch: &Path, kind: ArchiveUse) -> Result<()> {
    let what = if kind == ArchiveUse::Layer { "layer" } else { "tar archive" };
    let plain = plain(archive, scratch).map_err(|error| unreadable(archive, what, error))?;
    let members = read(&plain).map_err(|error| unreadable(archive, what, error))?;
    let mut turned = RedirectedLinks::new(tree.root());
    let excluded =
        prepare(&members, tree, kind, &mut turned).map_err(|error| unreadable(archive, what, error))?;
    let list = scratch.join("excluded");
    fs::write(&list, excluded)?;
    let options = ["--anchored", "--no-wildcards", "--exclude-from"].map(OsStr::new);
    let unpacked = tree.extract(&plain, options.into_iter().chain([list.as_os_str()]));
    turned.restore()?;
    if plain != archive {
        fs::remove_file(&plain)?;
    }
    unpacked.map_err(|error| explain(archive, what, error))
}

/// Adds a hint about owners: they are what an ordinary user can fail at and root does not.
fn explain(archive: &Path, what: &str, error: anyhow::Error) -> anyhow::Error {
    if !format!("{error:#}").contains("Cannot change ownership") {
        return unreadable(archive, what, error);
    }
    Failure::new(
        Class::Invalid,
        format!("{} has owners outside this user's range of subordinate ids", archive.display()),
    )
    .because(error)
    .hint("Give the user a larger range in /etc/subuid and /etc/subgid, or build as root.")
    .into()
}

/// The archive itself, or its decompressed content. Compression is recognised by the first bytes, not by the name.
fn plain(archive: &Path, scratch: &Path) -> Result<PathBuf> {
    let mut head = Vec::new();
    File::open(archive).and_then(|file| file.take(16).read_to_end(&mut head)).context("opening it")?;
    let Some((_, program, package)) = DECOMPRESSORS.iter().find(|(magic, ..)| head.starts_with(magic)) else {
        return Ok(archive.to_owned());
    };
    let plain = scratch.join("plain.tar");
    let mut command = Command::new(program);
    // zstd refuses its largest windows by default.
    command.args(if *program == "zstd" { &["-dcq", "--long=31"][..] } else { &["-dc"] });
    let told = scratch.join("told");
    command.stdin(File::open(archive)?).stdout(File::create(&plain)?).stderr(File::create(&told)?);
    let status = command.status().map_err(|error| {
        let failure = Failure::new(Class::Hardware, format!("starting {program}")).because(error);
        failure.hint(format!("Install the package {package}."))
    })?;
    let told = String::from_utf8_lossy(&fs::read(&told)?).trim().to_owned();
    ensure!(status.success(), "{program} ended with {status}: {told}");
    Ok(plain)
}

#[derive(Debug, PartialEq, Eq)]
struct ListedMember {
    /// As tar prints it, without a slash at the end.
    name: Vec<u8>,
    /// Relative to the tree's root.
    path: PathBuf,
    /// The first letter of its line in a listing, as in one of ls.
    kind: u8,
    /// The target of a hard link.
    same_as: Option<PathBuf>,
}

/// Lists the members with the same program that will unpack them: two readers could understand a hostile archive
/// differently.
fn read(plain: &Path) -> Result<Vec<ListedMember>> {
    let tar =
        long(Invocation::new("tar")).args(["--list", "--verbose", "--numeric-owner", "--quoting-style=c"]);
    let listing = SystemRunner.run(&tar.arg("--file").arg(plain))?;
    let lines = listing.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(parse).collect()
}

/// Reads `-rw-r--r-- 0/0 12 2024-01-01 00:00 "name"`, and ` link to "target"` where it is a hard link.
fn parse(line: &[u8]) -> Result<ListedMember> {
    let unknown = || format!("tar listed {:?}, which is not an entry", String::from_utf8_lossy(line));
    let kind = *line.first().with_context(unknown)?;
    let (name, rest) = quoted(line).with_context(unknown)?;
    let end = name.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let same_as = match rest.strip_prefix(b" link to ") {
        Some(target) if kind == b'h' => Some(inside(&quoted(target).with_context(unknown)?.0)?),
        _ => None,
    };
    Ok(ListedMember { path: inside(&name)?, name: name[..end].to_vec(), kind, same_as })
}

/// The first string in quotes, with C's escapes, and the rest of the line.
fn quoted(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let start = line.iter().position(|byte| *byte == b'"')? + 1;
    let (mut text, mut rest) = (Vec::new(), &line[start..]);
    loop {
        let (first, after) = rest.split_first()?;
        rest = after;
        match first {
            b'"' => return Some((text, rest)),
            b'\\' => {
                let (escape, length) = escape(rest)?;
                text.push(escape);
                rest = &rest[length..];
            }
            other => text.push(*other),
        }
    }
}

/// The byte of an escape, and the escape's length without its backslash.
fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    if let Some(octal) =
        rest.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)))
    {
        let value = octal.iter().fold(0, |value: u32, digit| value * 8 + u32::from(digit - b'0'));
        return Some((u8::try_from(value).ok()?, 3));
    }
    let byte = match rest.first()? {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        other => *other,
    };
    Some((byte, 1))
}

/// A name as a path below the tree's root; archives are untrusted.
fn inside(name: &[u8]) -> Result<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name));
    let mut plain = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir | Component::RootDir => {}
            _ => bail!("it names {}, which leads out of the tree", name.display()),
        }
    }
    Ok(plain)
}

/// Prepares the tree and returns the names that tar has to leave out, one a line.
fn prepare(
    members: &[ListedMember],
    tree: &Tree,
    kind: ArchiveUse,
    turned: &mut RedirectedLinks<'_>,
) -> Result<Vec<u8>> {
    let mut left_out = std::collections::BTreeSet::new();
    let mut excluded = Vec::new();
    for member in members {
        let device = matches!(member.kind, b'c' | b'b');
        let of_a_device = member.same_as.as_ref().is_some_and(|path| left_out.contains(path));
        let whiteout = kind == ArchiveUse::Layer && carry_out_whiteout(&member.path, tree)?;
        if whiteout || device || of_a_device || !directory::is_wanted(&member.path) {
            let hard =
                member.name.contains(&b'\n') || member.name.last().is_some_and(u8::is_ascii_whitespace);
            let name = member.path.display();
            ensure!(!hard, "{name:?} has a name that tar cannot be told to leave out");
            excluded.extend_from_slice(&member.name);
            excluded.push(b'\n');
            left_out.insert(member.path.clone());
            continue;
        }
        if kind == ArchiveUse::Layer {
            make_way(member, tree)?;
        }
        for path in [Some(&member.path), member.same_as.as_ref()].into_iter().flatten() {
            turned.make_safe(path.parent().unwrap_or(Path::new("")))?;
        }
    }
    Ok(excluded)
}

/// Removes what lower layers have at the path of a member, if it is of another type: the layer replaces it as a whole.
fn make_way(member: &ListedMember, tree: &Tree) -> Result<()> {
    if member.path.as_os_str().is_empty() {
        return Ok(());
    }
    let place = link_within(tree.root(), &member.path)?;
    match fs::symlink_metadata(&place) {
        Ok(there) if there.is_dir() != (member.kind == b'd') => remove(&place),
        _ => Ok(()),
    }
}

/// Removes what a whiteout hides; returns whether the path is a whiteout. Nothing of the layer itself is there yet.
fn carry_out_whiteout(path: &Path, tree: &Tree) -> Result<bool> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let Some(hidden) = name.strip_prefix(b".wh.") else {
        return Ok(false);
    };
    let hidden = OsStr::from_bytes(hidden);
    let parent = path.parent().unwrap_or(Path::new(""));
    if hidden == ".wh..opq" {
        let opaque = if parent.as_os_str().is_empty() {
            tree.root().to_owned()
        } else {
            link_within(tree.root(), parent)?
        };
        if fs::symlink_metadata(&opaque).is_ok_and(|there| there.is_dir()) {
            for entry in fs::read_dir(&opaque)? {
                remove(&entry?.path())?;
            }
        }
        return Ok(true);
    }
    ensure!(is_plain_name(hidden), "the whiteout {} names no file that it could hide", path.display());
    remove(&within(tree.root(), parent)?.join(hidden))?;
    Ok(true)
}

fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.with_context(|| format!("removing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read_whatever_the_names() {
        let read = |line: &str| parse(line.as_bytes()).unwrap();
        let plain = read(r#"-rw-r--r-- 0/0 12 2024-01-01 00:00 "./a \"b\" link to \\\n\303\274""#);
        assert_eq!(plain.name, "./a \"b\" link to \\\nü".as_bytes());
        assert_eq!((plain.kind, plain.same_as), (b'-', None));
        let hard = read(r#"hrw-r--r-- 0/0 0 2024-01-01 00:00 "x" link to "./y z""#);
        assert_eq!(hard.same_as.as_deref(), Some(Path::new("y z")));
        let directory = read(r#"drwxr-xr-x 0/0 0 2024-01-01 00:00 "usr/lib/""#);
        assert_eq!((directory.kind, directory.name.as_slice()), (b'd', b"usr/lib".as_slice()));
    }

    #[test]
    fn lines_that_are_no_entries_and_names_that_climb_are_refused() {
        for line in
            ["-rw", r#"-rw "unclosed"#, r#"-rw "\777""#, r#"-rw "a/../../b""#, r#"hrw "a" link to "../b""#]
        {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
