//! The initial RAM file system: packed by the builder, unpacked and packed again by nodes that apply a patch.
//!
//! The kernel takes cpio archives one after the other, each plain or compressed, with zeros between them
//! (Documentation/driver-api/early-userspace/buffer-format.rst). What it needs before it unpacks anything, microcode and ACPI tables, is
//! in archives that come first and are plain. The last one is here a frame of zstd. The same archives, packed by the same version of the
//! library, give the same bytes: so a node can make the initrd of a release from another one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom, Write};

use base::digest::Digest;

/// Of zstd, by which a node packs an initrd anew. Of the minimal definition's, level 12 makes 4 % less.
const LEVEL: i32 = 6;
/// The same where a node packs one at every start: of a tenth of an initrd, level 6 makes 3 % less in three times the time.
const QUICK_LEVEL: i32 = 3;
/// The first bytes of an archive: the portable formats without and with a checksum (cpio(5)).
const MAGICS: [&[u8]; 2] = [b"070701", b"070702"];
const HEADER_BYTES: u64 = 110;
/// Where the header has the mode, the length of the file and that of its name, each as eight hexadecimal digits.
const MODE: std::ops::Range<usize> = 14..22;
const FILE_SIZE: std::ops::Range<usize> = 54..62;
const NAME_SIZE: std::ops::Range<usize> = 94..102;
/// Where it has what tells a file from others, and how many names that has: only the last of these has the content.
const INODE: std::ops::Range<usize> = 6..14;
const DEVICE: std::ops::Range<usize> = 62..78;
const LINKS: std::ops::Range<usize> = 38..46;
/// The bits of the mode that say of which type an entry is, and the type of files (inode(7)).
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// The name of the entry that ends an archive, and the same as it is stored.
const END: &str = "TRAILER!!!";
const TRAILER: &[u8] = b"TRAILER!!!\0";
/// Archives are filled up to a multiple of this.
const BLOCK_BYTES: usize = 512;
/// The modes of directories, files and programs, with their types (inode(7)).
const DIRECTORY: usize = 0o040_755;
const FILE: usize = 0o100_644;
const PROGRAM: usize = 0o100_755;
const PRIVATE: usize = 0o100_600;
/// Names and contents begin at multiples of this.
const ALIGNMENT: u64 = 4;

/// A file of an archive.
#[derive(Clone, Copy, Debug)]
pub struct ArchivedFile<'a> {
    /// From the root, without a slash at its begin.
    pub path: &'a str,
    pub content: &'a [u8],
    pub executable: bool,
}

/// A plain archive in the portable format (cpio(5), `newc`) with these files, which root owns, and the directories that they are in.
/// Nothing in it differs from one time to the next: it has no times.
#[must_use]
pub fn archive(files: &[ArchivedFile<'_>]) -> Vec<u8> {
    let entries = files
        .iter()
        .map(|file| (file.path, if file.executable { PROGRAM } else { FILE }, file.content))
        .collect::<Vec<_>>();
    pack_entries(&entries)
}

/// A plain archive with one file that only root reads.
#[must_use]
pub fn private_archive(path: &str, content: &[u8]) -> Vec<u8> {
    pack_entries(&[(path, PRIVATE, content)])
}

fn pack_entries(files: &[(&str, usize, &[u8])]) -> Vec<u8> {
    let parents =
        |path: &'_ str| path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>();
    let directories: BTreeSet<_> = files.iter().flat_map(|(path, ..)| parents(path)).collect();
    let entries = directories.iter().map(|path| (path.as_str(), DIRECTORY, &b""[..]));
    let entries = entries.chain(files.iter().copied());
    let mut out = Vec::new();
    for (number, (path, mode, content)) in (1..).zip(entries) {
        entry(&mut out, path, (number, mode), content);
    }
    entry(&mut out, END, (0, 0), b"");
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    out
}

/// Adds files to the last of `archives`, which are plain. A file of the same path takes the place of that which is there.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if they are not cpio archives.
pub fn add(archives: &mut (impl Read + Write + Seek), files: &[ArchivedFile<'_>]) -> io::Result<()> {
    let last = last(archives)?;
    let end = trailer(archives, last)?;
    archives.seek(SeekFrom::Start(end))?;
    archives.write_all(&archive(files))
}

fn entry(out: &mut Vec<u8>, path: &str, (number, mode): (usize, usize), content: &[u8]) {
    // Number, mode, owner, group, links, time, length, four numbers of devices, length of the name with its zero, checksum.
    let fields = [number, mode, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, path.len() + 1, 0];
    out.extend_from_slice(MAGICS[0]);
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    for bytes in [&[path.as_bytes(), b"\0"].concat()[..], content] {
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
    }
}

/// An entry of an archive, for comparing archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// Type and permissions (inode(7)).
    pub mode: u32,
    /// SHA-256 of the content; for a link, of its target.
    pub content: Digest,
}

/// The entries of plain `archives` by their paths, of which the last of a path counts, as for the kernel.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if they are not cpio archives, or have a path that is not UTF-8; [`io::ErrorKind::UnexpectedEof`]
/// if they are cut off.
pub fn entries(archives: &mut (impl Read + Seek)) -> io::Result<BTreeMap<String, ArchiveEntry>> {
    let mut entries = BTreeMap::new();
    let mut start = Some(0);
    while let Some(at) = start {
        let mut walk = Walk { archives: &mut *archives, at };
        while let Some(header) = walk.next()? {
            walk.archives.seek(SeekFrom::Start(header.content))?;
            let (content, read) = Digest::of_reader(walk.archives.by_ref().take(header.size))?;
            if read < header.size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let path = header.name.strip_suffix(b"\0").and_then(|name| std::str::from_utf8(name).ok());
            let path = path.ok_or_else(|| invalid("a name in it is not UTF-8"))?;
            entries.insert(path.to_owned(), ArchiveEntry { mode: header.mode, content });
        }
        start = end(archives, at)?;
    }
    Ok(entries)
}

/// Packs `archives`, which are plain.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if they are not cpio archives.
pub fn pack(archives: &mut (impl Read + Seek), out: &mut dyn Write) -> io::Result<()> {
    let last = last(archives)?;
    let length = archives.seek(SeekFrom::End(0))?;
    archives.rewind()?;
    io::copy(&mut archives.by_ref().take(last), out)?;
    let mut frame = zstd::Encoder::new(out, LEVEL)?;
    frame.include_checksum(true)?;
    frame.set_pledged_src_size(Some(length - last))?;
    io::copy(archives, &mut frame)?;
    frame.finish().map(drop)
}

/// Packs those entries of an initrd anew that `keep` wants by their paths, and returns their size in bytes as the kernel unpacks them.
/// The plain archives at its front are left out. An entry that has its content under another name stays with that.
///
/// # Errors
/// As [`unpack`] has them, and those of `out`.
pub fn reduce(
    initrd: &mut (impl Read + Seek),
    keep: &dyn Fn(&str) -> bool,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let start = frame(initrd)?;
    let wanted = |entry: &StreamedEntry| std::str::from_utf8(entry.path()).is_ok_and(keep);
    let mut linked = BTreeSet::new();
    initrd.seek(SeekFrom::Start(start))?;
    stream(&mut *initrd, |entry, _| {
        if entry.is_linked()? && wanted(entry) {
            linked.insert(entry.file());
        }
        Ok(())
    })?;
    initrd.seek(SeekFrom::Start(start))?;
    let mut frame = zstd::Encoder::new(out, QUICK_LEVEL)?;
    frame.include_checksum(true)?;
    let mut length = 0;
    let mut put = |bytes: &mut dyn Read, frame: &mut zstd::Encoder<'_, &mut dyn Write>| -> io::Result<()> {
        let written = io::copy(bytes, frame)?;
        let filler = written.next_multiple_of(ALIGNMENT) - written;
        length += written + filler;
        io::copy(&mut io::repeat(0).take(filler), frame).map(drop)
    };
    stream(initrd, |entry, content| {
        let is_content = entry.is_linked()? && linked.contains(&entry.file());
        if !wanted(entry) && !is_content {
            return Ok(());
        }
        put(&mut [&entry.header[..], &entry.name].concat().as_slice(), &mut frame)?;
        put(content, &mut frame)
    })?;
    let mut end = Vec::new();
    self::entry(&mut end, END, (0, 0), b"");
    put(&mut end.as_slice(), &mut frame)?;
    frame.finish()?;
    Ok(length)
}

/// An entry of an archive that is read from its begin to its end.
struct StreamedEntry {
    header: [u8; HEADER_BYTES as usize],
    /// Ends with a zero.
    name: Vec<u8>,
}

impl StreamedEntry {
    fn path(&self) -> &[u8] {
        self.name.strip_suffix(b"\0").unwrap_or(&self.name)
    }

    /// What only the names of one file have in common: its numbers on its file system.
    fn file(&self) -> Vec<u8> {
        [&self.header[INODE], &self.header[DEVICE]].concat()
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(number(&self.header[MODE])? & TYPE_MASK == REGULAR && number(&self.header[LINKS])? > 1)
    }
}

/// Hands each entry of the packed archives that `packed` is at to `each`, with its content.
fn stream(
    packed: impl Read,
    mut each: impl FnMut(&StreamedEntry, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let mut archives = zstd::Decoder::new(packed)?;
    let skip = |archives: &mut dyn Read, count: u64| io::copy(&mut archives.take(count), &mut io::sink());
    while let Some(first) = next_byte(&mut archives)? {
        let mut header = [0; HEADER_BYTES as usize];
        header[0] = first;
        archives.read_exact(&mut header[1..])?;
        let (size, name_size) = sizes(&header)?;
        let mut name = Vec::new();
        archives.by_ref().take(name_size).read_to_end(&mut name)?;
        let end = HEADER_BYTES + name_size;
        skip(&mut archives, end.next_multiple_of(ALIGNMENT) - end)?;
        if name == TRAILER {
            continue;
        }
        let mut content = archives.by_ref().take(size);
        each(&StreamedEntry { header, name }, &mut content)?;
        let rest = content.limit();
        if skip(&mut archives, rest)? < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        skip(&mut archives, size.next_multiple_of(ALIGNMENT) - size)?;
    }
    Ok(())
}

/// The next byte that is not a zero; none at the end.
fn next_byte(from: &mut impl Read) -> io::Result<Option<u8>> {
    let mut byte = [0];
    while from.read(&mut byte)? > 0 {
        if byte[0] != 0 {
            return Ok(Some(byte[0]));
        }
    }
    Ok(None)
}

/// Writes the archives of an initrd as plain ones.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if what follows plain archives is no frame of zstd, [`io::ErrorKind::UnexpectedEof`] if one of them is
/// cut off.
pub fn unpack(initrd: &mut (impl Read + Seek), out: &mut dyn Write) -> io::Result<()> {
    let frame = frame(initrd)?;
    initrd.rewind()?;
    io::copy(&mut initrd.by_ref().take(frame), out)?;
    // Errors of zstd have no error kind.
    zstd::stream::copy_decode(initrd, out).map_err(|error| match error.kind() {
        io::ErrorKind::Other | io::ErrorKind::UnexpectedEof => invalid(&error.to_string()),
        _ => error,
    })
}

/// Where the frame after the plain archives begins.
fn frame(initrd: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut frame = 0;
    while is_archive(initrd, frame)? {
        match end(initrd, frame)? {
            Some(next) => frame = next,
            None => return Err(invalid("it has no compressed archive")),
        }
    }
    Ok(frame)
}

fn is_archive(initrd: &mut (impl Read + Seek), at: u64) -> io::Result<bool> {
    let mut magic = Vec::new();
    initrd.seek(SeekFrom::Start(at))?;
    initrd.by_ref().take(MAGICS[0].len() as u64).read_to_end(&mut magic)?;
    Ok(MAGICS.contains(&magic.as_slice()))
}

/// Where the last of some plain archives begins.
fn last(archives: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut last = 0;
    while let Some(next) = end(archives, last)? {
        last = next;
    }
    Ok(last)
}

/// Where the next data after the archive at `at` begins; none if only zeros follow.
fn end(archives: &mut (impl Read + Seek), at: u64) -> io::Result<Option<u64>> {
    let trailer = trailer(archives, at)? + HEADER_BYTES + TRAILER.len() as u64;
    let mut at = trailer.next_multiple_of(ALIGNMENT);
    archives.seek(SeekFrom::Start(at))?;
    let mut bytes = io::BufReader::new(archives).bytes();
    while let Some(byte) = bytes.next().transpose()? {
        if byte != 0 {
            return Ok(Some(at));
        }
        at += 1;
    }
    Ok(None)
}

/// Where the entry begins that ends the archive at `at`.
fn trailer(archives: &mut (impl Read + Seek), at: u64) -> io::Result<u64> {
    let mut walk = Walk { archives, at };
    while walk.next()?.is_some() {}
    Ok(walk.at)
}

/// Goes through the entries of one archive; `at` is where the next begins, at the end that of the trailer.
struct Walk<'a, R> {
    archives: &'a mut R,
    at: u64,
}

/// What the header of an entry says, and its name, which ends with a zero.
struct Header {
    mode: u32,
    name: Vec<u8>,
    /// Length of the content in bytes, and where it begins.
    size: u64,
    content: u64,
}

impl<R: Read + Seek> Walk<'_, R> {
    /// The next entry; none at the trailer.
    fn next(&mut self) -> io::Result<Option<Header>> {
        let mut header = [0; HEADER_BYTES as usize];
        self.archives.seek(SeekFrom::Start(self.at))?;
        self.archives.read_exact(&mut header)?;
        let (size, name_size) = sizes(&header)?;
        let mode = number(&header[MODE])?;
        let mut name = Vec::new();
        self.archives.by_ref().take(name_size).read_to_end(&mut name)?;
        if name == TRAILER {
            return Ok(None);
        }
        let content = (self.at + HEADER_BYTES + name_size).next_multiple_of(ALIGNMENT);
        self.at = (content + size).next_multiple_of(ALIGNMENT);
        Ok(Some(Header { mode, name, size, content }))
    }
}

/// The lengths of content and name that the header of an entry says, in bytes.
fn sizes(header: &[u8; HEADER_BYTES as usize]) -> io::Result<(u64, u64)> {
    if !MAGICS.contains(&&header[..MAGICS[0].len()]) {
        return Err(invalid("it has data that is not a cpio archive"));
    }
    Ok((u64::from(number(&header[FILE_SIZE])?), u64::from(number(&header[NAME_SIZE])?)))
}

fn number(digits: &[u8]) -> io::Result<u32> {
    let text = std::str::from_utf8(digits).ok();
    let number = text.and_then(|text| u32::from_str_radix(text, 16).ok());
    number.ok_or_else(|| invalid("a length in it is not a hexadecimal number"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};
    use proptest::prelude::*;
    use std::fs;
    use std::io::Cursor;
    use std::os::unix::fs::PermissionsExt;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        super::archive(
            &files
                .iter()
                .map(|(path, content)| ArchivedFile { path, content, executable: false })
                .collect::<Vec<_>>(),
        )
    }

    fn packed(archives: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        pack(&mut Cursor::new(archives), &mut out).map(|()| out)
    }

    fn unpacked(initrd: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        unpack(&mut Cursor::new(initrd), &mut out).map(|()| out)
    }

    #[test]
    fn a_private_archive_has_its_file_for_root_alone() {
        let archive = private_archive("etc/nqrust/x.json", b"{}");
        let found = entries(&mut Cursor::new(&archive)).unwrap();
        assert_eq!(found["etc/nqrust/x.json"].mode, 0o100_600);
        assert_eq!(found["etc"].mode, 0o040_755);
        assert!(archive.len().is_multiple_of(BLOCK_BYTES) && std::str::from_utf8(&archive).is_ok());
    }

    #[test]
    fn microcode_stays_plain_at_the_front_and_all_else_is_one_frame() {
        let early = archive(&[("early_cpio", b"1"), ("kernel/x86/microcode/GenuineIntel.bin", &[7; 999])]);
        let main = archive(&[("init", &[9; 70_000]), ("etc/passwd", b"root")]);
        let both = [&early[..], &main].concat();
        let initrd = packed(&both).unwrap();
        assert!(initrd.starts_with(&early) && initrd.len() < early.len() + 1000, "{}", initrd.len());
        assert_eq!(initrd[early.len()..][..4], [0x28, 0xb5, 0x2f, 0xfd]);
        assert!(unpacked(&initrd).unwrap() == both);
        assert_eq!(packed(&main).unwrap()[..4], [0x28, 0xb5, 0x2f, 0xfd]);
        // The whole file system unpacks with zstd.
        assert!(zstd::decode_all(&packed(&main).unwrap()[..]).unwrap() == main);
    }

    #[test]
    fn an_archive_has_its_files_their_directories_and_modes() {
        let program =
            ArchivedFile { path: "usr/bin/program", content: b"#!/bin/sh\nexit 0\n", executable: true };
        let file = ArchivedFile { path: "usr/share/file", content: b"text", executable: false };
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("archive");
        fs::write(&at, super::archive(&[program, file])).unwrap();
        let extract = format!(
            "cd {} && cpio --extract --quiet --no-preserve-owner <archive",
            directory.path().display()
        );
        SystemRunner.run(&Invocation::new("sh").args(["-c", &extract])).unwrap();
        let mode = |path: &str| fs::metadata(directory.path().join(path)).unwrap().permissions().mode();
        let modes = ["usr", "usr/bin", "usr/share", "usr/bin/program", "usr/share/file"].map(mode);
        assert_eq!(modes, [0o040_755, 0o040_755, 0o040_755, 0o100_755, 0o100_644]);
        for file in [program, file] {
            assert_eq!(fs::read(directory.path().join(file.path)).unwrap(), file.content);
        }
    }

    #[test]
    fn added_files_are_in_the_last_archive_and_all_of_that_is_compressed() {
        let early = archive(&[("early_cpio", b"1")]);
        let main = archive(&[("init", &[9; 70_000])]);
        let mut archives = Cursor::new([&early[..], &main].concat());
        add(&mut archives, &[ArchivedFile { path: "usr/bin/tool", content: &[7; 50_000], executable: true }])
            .unwrap();
        let both = archives.into_inner();
        assert_eq!(last(&mut Cursor::new(&both)).unwrap(), early.len() as u64);
        let text = |part: &[u8]| both.windows(part.len()).filter(|bytes| *bytes == part).count();
        assert_eq!((text(b"usr/bin/tool\0"), text(b"init\0"), text(TRAILER)), (1, 1, 2));
        let initrd = packed(&both).unwrap();
        assert!(initrd.starts_with(&early) && initrd.len() < early.len() + 1000, "{}", initrd.len());
        assert!(unpacked(&initrd).unwrap() == both);
        assert!(add(&mut Cursor::new(b"MZ".to_vec()), &[]).is_err());
    }

    #[test]
    fn entries_have_modes_and_contents_and_the_last_of_a_path_counts() {
        let early = archive(&[("early_cpio", b"1"), ("etc/file", b"first")]);
        let program = ArchivedFile { path: "bin/tool", content: &[7; 5000], executable: true };
        let file = ArchivedFile { path: "etc/file", content: b"second", executable: false };
        let both = [&early[..], &super::archive(&[program, file])].concat();
        let entries = entries(&mut Cursor::new(&both)).unwrap();
        let entry = |mode, content: &[u8]| ArchiveEntry { mode, content: Digest::of(content) };
        let expected = [
            ("bin", entry(0o040_755, b"")),
            ("bin/tool", entry(0o100_755, &[7; 5000])),
            ("early_cpio", entry(0o100_644, b"1")),
            ("etc", entry(0o040_755, b"")),
            ("etc/file", entry(0o100_644, b"second")),
        ];
        assert_eq!(entries, expected.map(|(path, entry)| (path.to_owned(), entry)).into());
        assert!(super::entries(&mut Cursor::new(&both[..both.len() - 600])).is_err(), "cut off");
    }

    #[test]
    fn a_part_of_an_initrd_has_the_entries_that_are_wanted_and_no_microcode() {
        let early = archive(&[("kernel/x86/microcode/GenuineIntel.bin", &[7; 999])]);
        let main = archive(&[("lib/a.ko", &[1; 3001]), ("lib/b.ko", &[2; 70_000]), ("init", b"#!/bin/sh")]);
        let more = archive(&[("lib/c.ko", &[3; 5])]);
        let both = zstd::encode_all(&[&main[..], &[0; 700], &more].concat()[..], 3).unwrap();
        let initrd = [&early[..], &both].concat();
        let mut out = Vec::new();
        let length = reduce(&mut Cursor::new(&initrd), &|path| !path.ends_with("b.ko"), &mut out).unwrap();
        let plain = zstd::decode_all(&out[..]).unwrap();
        assert_eq!(plain.len() as u64, length);
        let paths: Vec<_> = entries(&mut Cursor::new(&plain)).unwrap().into_keys().collect();
        assert_eq!(paths, ["init", "lib", "lib/a.ko", "lib/c.ko"]);
        let content = entries(&mut Cursor::new(&plain)).unwrap()["lib/a.ko"].content;
        assert_eq!(content, Digest::of(&[1; 3001]));
        // It is an initrd again.
        assert_eq!(unpacked(&out).unwrap(), plain);
        let mut out = Vec::new();
        assert!(reduce(&mut Cursor::new(&initrd[..initrd.len() - 9]), &|_| true, &mut out).is_err());
    }

    #[test]
    fn a_file_with_several_names_keeps_its_content_where_one_of_them_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let script = "cd $0 && mkdir -p fw lib && printf content >lib/kept && ln lib/kept fw/a && ln lib/kept fw/z && \
                      printf other >fw/b && ln fw/b fw/c && \
                      printf 'lib/kept\nfw/a\nfw/b\nfw/c\nfw/z\n' | cpio --create --quiet --format=newc >archive";
        let made = Invocation::new("sh").args(["-c", script]).arg(directory.path());
        SystemRunner.run(&made).unwrap();
        let packed = zstd::encode_all(&fs::read(directory.path().join("archive")).unwrap()[..], 3).unwrap();
        let mut out = Vec::new();
        reduce(&mut Cursor::new(packed), &|path| path.starts_with("lib/"), &mut out).unwrap();
        let unpack = "cd $0 && mkdir out && cd out && cpio --extract --make-directories --quiet";
        let plain = zstd::decode_all(&out[..]).unwrap();
        SystemRunner
            .run(&Invocation::new("sh").args(["-c", unpack]).arg(directory.path()).stdin(plain))
            .unwrap();
        let out = directory.path().join("out");
        assert_eq!(fs::read_to_string(out.join("lib/kept")).unwrap(), "content");
        assert!(!out.join("fw/b").exists() && !out.join("fw/c").exists());
    }

    #[test]
    fn what_is_no_initrd_is_told() {
        let main = archive(&[("init", b"#!/bin/sh")]);
        let cut = &main[..60];
        let garbled = [&main[..54], b"not hex!", &main[62..]].concat();
        for wrong in [&b"MZ"[..], b"", cut, &garbled, &[&main[..], b"more"].concat()] {
            assert!(packed(wrong).is_err(), "{wrong:?}");
        }
        for wrong in [&main[..], cut, b"", &packed(&main).unwrap()[..30]] {
            let error = unpacked(wrong).unwrap_err();
            assert!(
                matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
                "{wrong:?}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn archives_come_back_whatever_is_in_them(
            parts in prop::collection::vec(prop::collection::vec(("[a-z/]{1,40}", prop::collection::vec(any::<u8>(), 0..300)), 0..4), 1..4),
        ) {
            let archives: Vec<u8> = parts
                .iter()
                .flat_map(|files| archive(&files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect::<Vec<_>>()))
                .collect();
            let initrd = packed(&archives).unwrap();
            prop_assert!(unpacked(&initrd).unwrap() == archives);
        }
    }
}
