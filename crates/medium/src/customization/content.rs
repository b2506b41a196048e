//! The content of an area: a tar archive of regular files.
//!
//! | Path | What it is |
//! |---|---|
//! | `nodes/…` | install configurations, by the names of [`model::machine::nodes`] |
//! | `ca/….pem` | certificates of authorities to trust |
//! | `files/…` | files for the node; the rest of the path is where they go |
//! | `arguments` | kernel arguments, one a line |
//! | `boot-password` | the password of the boot menu, a hash for GRUB |
//! | `signatures` | signatures in minisign's format over the archive without them |
//!
//! The archive is uncompressed and sorted, without times and owners: the same content makes the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};

use tar::{Archive, Builder, EntryType, Header};

use super::argument::Argument;
use super::damage::{AreaDamage, CAPACITY};
use formats::minisign::{Signature, parse_signatures};
use model::config::{BootPassword, Secret};

const NODES: &str = "nodes";
const AUTHORITIES: &str = "ca";
const FILES: &str = "files";
const ARGUMENTS: &str = "arguments";
const BOOT_PASSWORD: &str = "boot-password";
const SIGNATURES: &str = "signatures";
/// The default permissions in the archive.
const PRIVATE: u32 = 0o600;
/// The allowed permission bits: not set-user-id, set-group-id or sticky.
const PERMISSIONS: u32 = 0o777;

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Install configurations, by the names of their files.
    pub nodes: BTreeMap<String, Secret>,
    /// Certificates (PEM), by the names of their files.
    pub authorities: BTreeMap<String, String>,
    /// Files for the node, by their paths without a leading `/`.
    pub files: BTreeMap<String, File>,
    /// Kernel arguments, in their order.
    pub arguments: Vec<Argument>,
    /// The password of the boot menu, which the configurations have. It is here a second time so that the check of the
    /// menu need not read configurations.
    pub boot_password: Option<BootPassword>,
    /// Signatures over [`Content::signed_bytes`]; none in media of programs that know of none.
    pub signatures: Vec<Signature>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its permissions, at most `0o777`.
    pub mode: u32,
    pub bytes: Vec<u8>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}, {} bytes", self.mode, self.bytes.len())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.arguments.iter().map(Argument::key).collect::<Vec<_>>();
        f.debug_struct("Content")
            .field("nodes", &self.nodes.keys())
            .field("authorities", &self.authorities.keys())
            .field("files", &self.files.keys())
            .field("arguments", &keys)
            .field("boot_password", &self.boot_password)
            .field("signatures", &self.signatures.len())
            .finish()
    }
}

impl Content {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is signed: the archive without the signatures.
    ///
    /// # Errors
    /// A path outside the archive.
    pub fn signed_bytes(&self) -> io::Result<Vec<u8>> {
        Self { signatures: Vec::new(), ..self.clone() }.pack()
    }

    /// The archive. Fails on a path outside the archive, as [`Content::unpack`] does.
    pub(super) fn pack(&self) -> io::Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        let mut add = |path: &str, mode: u32, bytes: &[u8]| {
            if !is_inner(path) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{path:?} is not a relative path without `..`"),
                ));
            }
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(mode & PERMISSIONS);
            header.set_size(bytes.len() as u64);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            archive.append_data(&mut header, path, bytes)
        };
        if !self.arguments.is_empty() {
            let text: String = self.arguments.iter().map(|argument| format!("{argument}\n")).collect();
            add(ARGUMENTS, PRIVATE, text.as_bytes())?;
        }
        for (name, pem) in &self.authorities {
            add(&format!("{AUTHORITIES}/{name}"), PRIVATE, pem.as_bytes())?;
        }
        if let Some(password) = &self.boot_password {
            add(BOOT_PASSWORD, PRIVATE, password.expose().as_bytes())?;
        }
        for (path, file) in &self.files {
            add(&format!("{FILES}/{path}"), file.mode, &file.bytes)?;
        }
        for (name, text) in &self.nodes {
            add(&format!("{NODES}/{name}"), PRIVATE, text.expose().as_bytes())?;
        }
        if !self.signatures.is_empty() {
            let text: String = self.signatures.iter().map(ToString::to_string).collect();
            add(SIGNATURES, PRIVATE, text.as_bytes())?;
        }
        archive.into_inner()
    }

    /// The content of the archive. Anything that [`Content::pack`] does not write is refused.
    pub(super) fn unpack(archive: &[u8]) -> Result<Self, AreaDamage> {
        let bad = |error: io::Error| AreaDamage::Archive(error.to_string());
        let mut content = Self::default();
        let mut known = BTreeSet::new();
        for entry in Archive::new(archive).entries().map_err(bad)? {
            let mut entry = entry.map_err(bad)?;
            let path = String::from_utf8(entry.path_bytes().into_owned())
                .map_err(|_| AreaDamage::Archive("a path is not UTF-8".into()))?;
            if entry.header().entry_type() != EntryType::Regular {
                return Err(AreaDamage::Archive(format!("{path:?} is not a regular file")));
            }
            let mode = entry.header().mode().map_err(bad)? & PERMISSIONS;
            if !known.insert(path.clone()) {
                return Err(AreaDamage::Archive(format!("{path:?} is in it twice")));
            }
            let mut bytes = Vec::new();
            entry.by_ref().take(CAPACITY as u64).read_to_end(&mut bytes).map_err(bad)?;
            content.take(&path, File { mode, bytes })?;
        }
        Ok(content)
    }

    fn take(&mut self, path: &str, file: File) -> Result<(), AreaDamage> {
        let bad = |why: &str| AreaDamage::Archive(format!("{path:?} {why}"));
        let text = |file: File| String::from_utf8(file.bytes).map_err(|_| bad("is not text in UTF-8"));
        if path == ARGUMENTS {
            let words = text(file)?;
            let words = words.lines().map(str::parse).collect::<Result<Vec<Argument>, _>>();
            self.arguments = words.map_err(|why| bad(&format!("has a word that {why}")))?;
            return Ok(());
        }
        if path == BOOT_PASSWORD {
            let password = text(file)?.parse().map_err(|_| bad("is not a password hash for GRUB"))?;
            return match self.boot_password.replace(password) {
                Some(_) => Err(bad("is in it twice")),
                None => Ok(()),
            };
        }
        if path == SIGNATURES {
            let signatures = parse_signatures(&file.bytes);
            self.signatures = signatures.map_err(|why| bad(&format!("is damaged: {why}")))?;
            return Ok(());
        }
        let (directory, name) = path.split_once('/').ok_or_else(|| bad("is not a path of this archive"))?;
        if !is_inner(name) || (directory != FILES && name.contains('/')) {
            return Err(bad("is not a relative path without `..`"));
        }
        let name = name.to_owned();
        match directory {
            NODES => drop(self.nodes.insert(name, Secret::new(text(file)?))),
            AUTHORITIES => drop(self.authorities.insert(name, text(file)?)),
            FILES => drop(self.files.insert(name, file)),
            _ => return Err(bad("is not a path of this archive")),
        }
        Ok(())
    }
}

/// True if a path stays below the directory that it is relative to, and is written in the one way that there is.
#[must_use]
pub fn is_inner(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    path.len() <= 4096
        && path.split('/').all(part)
        && !path.contains(['\\', '\0'])
        && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full() -> Content {
        Content {
            nodes: [("mac-52-54-00-00-00-01.yaml".to_owned(), Secret::new("token: x"))].into(),
            authorities: [("own.pem".to_owned(), "-----BEGIN".to_owned())].into(),
            files: [
                ("etc/motd".to_owned(), File { mode: 0o755, bytes: b"\0\xff".to_vec() }),
                ("x/".to_owned() + &"y/".repeat(90) + "z", File { mode: 0o600, bytes: vec![1; 5000] }),
            ]
            .into(),
            arguments: vec!["quiet".parse().unwrap(), "a=b".parse().unwrap()],
            boot_password: Some(testing::documents::HASH.parse().unwrap()),
            signatures: Vec::new(),
        }
    }

    /// That of a key over the content.
    fn signature(content: &Content) -> Signature {
        let key = formats::minisign::SecretKey::of_seed([1; 8], [1; 32]);
        let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
        let bytes = content.signed_bytes().unwrap();
        Signature::make(&key.public_key(), &bytes, "a key", "timestamp:0", sign).unwrap()
    }

    #[test]
    fn signatures_are_over_everything_but_themselves() {
        let mut content = full();
        let signed = content.signed_bytes().unwrap();
        assert_eq!(signed, content.pack().unwrap(), "without signatures it is as it always was");
        content.signatures = vec![signature(&content); 2];
        assert_eq!(content.signed_bytes().unwrap(), signed);
        assert_eq!(Content::unpack(&content.pack().unwrap()).unwrap(), content);
        for changed in [
            Content { arguments: Vec::new(), ..content.clone() },
            Content { nodes: [("default.yaml".into(), Secret::new("token: y"))].into(), ..content.clone() },
            Content { boot_password: None, ..content.clone() },
        ] {
            assert_ne!(changed.signed_bytes().unwrap(), signed);
        }
    }

    #[test]
    fn what_is_no_signature_is_damage_and_not_an_unsigned_customization() {
        for bytes in [&b""[..], b"\0", b"garbage\n", &signature(&full()).to_string().as_bytes()[..90]] {
            let error = Content::unpack(&archive(SIGNATURES, EntryType::Regular, bytes)).unwrap_err();
            assert!(error.to_string().contains("\"signatures\" is damaged: "), "{error}");
        }
    }

    /// An archive of one entry, made without the care of the one who packs.
    fn archive(path: &str, kind: EntryType, bytes: &[u8]) -> Vec<u8> {
        let mut header = Header::new_old();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o600);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        let mut archive = Builder::new(Vec::new());
        archive.append(&header, bytes).unwrap();
        archive.into_inner().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        assert_eq!(Content::unpack(&full().pack().unwrap()).unwrap(), full());
        assert_eq!(Content::unpack(&Content::default().pack().unwrap()).unwrap(), Content::default());
    }

    #[test]
    fn debug_output_does_not_show_what_files_hold() {
        let text = format!("{:?}", full());
        assert!(text.contains("mac-52-54-00-00-00-01.yaml") && text.contains("quiet"), "{text}");
        assert!(!text.contains("token") && !text.contains("255"), "{text}");
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_not_packed() {
        for path in ["/etc/motd", "../x", "a//b", "a/./b", "", "a\nb"] {
            let files = [(path.to_owned(), File { mode: 0o600, bytes: Vec::new() })].into();
            Content { files, ..Content::default() }.pack().unwrap_err();
        }
    }

    #[test]
    fn what_nobody_packs_is_refused() {
        for path in [
            "nodes/../x.yaml",
            "/etc/passwd",
            "nodes/a/b.yaml",
            "files/../../x",
            "files//x",
            "files/",
            "other",
            "x/y",
        ] {
            let error = Content::unpack(&archive(path, EntryType::Regular, b"x")).unwrap_err();
            assert!(matches!(error, AreaDamage::Archive(_)), "{path}: {error}");
        }
        for kind in
            [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Char, EntryType::GNUSparse]
        {
            let error = Content::unpack(&archive("files/x", kind, b"")).unwrap_err();
            assert!(matches!(error, AreaDamage::Archive(_)), "{kind:?}: {error}");
        }
        for (path, bytes) in
            [("arguments", &b"a b\n"[..]), ("arguments", b"\xff"), ("nodes/default.yaml", b"\xff")]
        {
            Content::unpack(&archive(path, EntryType::Regular, bytes)).unwrap_err();
        }
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused_whatever_it_is() {
        for path in ["arguments", "nodes/default.yaml", "ca/own.pem", "files/x"] {
            let mut twice = archive(path, EntryType::Regular, b"one");
            twice.truncate(1024);
            twice.extend(archive(path, EntryType::Regular, b"two"));
            let told = Content::unpack(&twice).unwrap_err().to_string();
            assert!(told.ends_with(&format!("{path:?} is in it twice")), "{told}");
        }
    }

    #[test]
    fn a_file_that_is_longer_than_the_archive_costs_no_memory() {
        let mut bytes = archive("files/x", EntryType::Regular, b"x");
        bytes[124..136].copy_from_slice(b"77777777777\0");
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&bytes[..512]);
        header.set_cksum();
        bytes[..512].copy_from_slice(header.as_bytes());
        Content::unpack(&bytes).unwrap_err();
    }

    proptest! {
        #[test]
        fn no_archive_makes_the_reading_panic(noise: Vec<u8>, at in 0_usize..3000) {
            let mut bytes = full().pack().unwrap();
            for (place, byte) in bytes[at..].iter_mut().zip(&noise) {
                *place = *byte;
            }
            if let Ok(content) = Content::unpack(&bytes) {
                prop_assert!(content.files.keys().all(|path| is_inner(path)));
            }
            let _ = Content::unpack(&noise);
        }
    }
}
