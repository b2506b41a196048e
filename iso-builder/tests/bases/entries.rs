//! Trees as lists of entries, written to and read from tar archives: so a test needs no root to have owners, device
//! nodes and attributes in a tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use tar::EntryType;

/// The time of each entry of an archive, in seconds since 1970.
pub(crate) const TIME: u64 = 1_600_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    pub(crate) owner: (u64, u64),
    /// Of a file its bytes, of a link its target.
    pub(crate) content: String,
    /// Extended attributes, in the order of their names.
    pub(crate) attributes: Vec<(String, Vec<u8>)>,
}

impl Entry {
    pub(crate) fn new(name: &str, kind: EntryType, mode: u32, content: &str) -> Self {
        let attributes = Vec::new();
        Self { name: name.to_owned(), kind, mode, owner: (0, 0), content: content.to_owned(), attributes }
    }

    pub(crate) fn owner(mut self, user: u64, group: u64) -> Self {
        self.owner = (user, group);
        self
    }

    pub(crate) fn attribute(mut self, name: &str, value: &[u8]) -> Self {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }
}

pub(crate) fn file(name: &str, content: &str) -> Entry {
    Entry::new(name, EntryType::Regular, 0o644, content)
}

pub(crate) fn directory(name: &str) -> Entry {
    Entry::new(name, EntryType::Directory, 0o755, "")
}

pub(crate) fn link(name: &str, target: &str) -> Entry {
    Entry::new(name, EntryType::Symlink, 0o777, target)
}

pub(crate) fn hard_link(name: &str, target: &str) -> Entry {
    Entry::new(name, EntryType::Link, 0o644, target)
}

pub(crate) fn device(name: &str) -> Entry {
    Entry::new(name, EntryType::Char, 0o666, "")
}

/// An archive of the entries, in their order. Names go in as they are, `..` included.
pub(crate) fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let keys =
            entry.attributes.iter().map(|(name, _)| format!("SCHILY.xattr.{name}")).collect::<Vec<_>>();
        let values = entry.attributes.iter().map(|(_, value)| value.as_slice());
        let mut extensions: Vec<_> = keys.iter().map(String::as_str).zip(values).collect();
        let mut header = tar::Header::new_ustar();
        let name = entry.name.as_bytes();
        if name.len() < 100 {
            header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name);
        } else {
            extensions.push(("path", name));
        }
        builder.append_pax_extensions(extensions).unwrap();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.0);
        header.set_gid(entry.owner.1);
        header.set_mtime(TIME);
        if entry.kind == EntryType::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        let is_link = entry.kind.is_symlink() || entry.kind.is_hard_link();
        if is_link {
            header.set_link_name_literal(&entry.content).unwrap();
        }
        let data = if is_link { &[][..] } else { entry.content.as_bytes() };
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// The entries of an archive, by name.
pub(crate) fn read(path: &Path) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    for entry in tar::Archive::new(File::open(path).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000, "all times are the build's");
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let kind = entry.header().entry_type();
        let mut read = Entry::new(&name, kind, entry.header().mode().unwrap(), "");
        read.owner = (entry.header().uid().unwrap(), entry.header().gid().unwrap());
        for extension in entry.pax_extensions().unwrap().into_iter().flatten() {
            let extension = extension.unwrap();
            if let Some(name) = extension.key().unwrap().strip_prefix("SCHILY.xattr.") {
                read = read.attribute(name, extension.value_bytes());
            }
        }
        read.attributes.sort();
        match entry.link_name_bytes() {
            Some(target) => read.content = String::from_utf8(target.into_owned()).unwrap(),
            None => drop(entry.read_to_string(&mut read.content).unwrap()),
        }
        assert!(entries.insert(name.clone(), read).is_none(), "{name} is there twice");
    }
    entries
}
