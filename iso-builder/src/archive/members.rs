//! A tar stream, member by member.
//!
//! The `tar` crate holds a long name in memory however long a hostile archive makes it, and follows no link between
//! members. Its headers and its reading of extended attributes are used; the walk from one member to the next is here.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

const BLOCK_BYTES: usize = 512;
/// The longest extended header or long name that is read, in bytes.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// The most bytes that may follow the end of an archive: tools pad it to the size of a tape block.
const MAX_TRAILING_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveMember {
    /// As the archive has it.
    pub path: Vec<u8>,
    pub kind: MemberKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A file with its length in bytes.
    File(u64),
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// Another name of the member with this path.
    HardLink(Vec<u8>),
    /// A device, a pipe or a sparse file.
    Other,
}

/// Goes through a tar stream. Read from it to get the content of the member that [`ArchiveMembers::advance`] gave last.
#[derive(Debug)]
pub struct ArchiveMembers<R> {
    reader: R,
    /// Bytes of the member's content that are still to be read.
    content: u64,
    /// Bytes of padding in its last block.
    padding: u64,
}

/// The extended headers of the next member.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> ArchiveMembers<R> {
    /// `reader` is not compressed.
    pub fn new(reader: R) -> Self {
        Self { reader, content: 0, padding: 0 }
    }

    /// Skips the rest of the member's content and goes to the next member, or to the end.
    pub fn advance(&mut self) -> io::Result<Option<ArchiveMember>> {
        let mut extension = Extension::default();
        loop {
            self.leave()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            self.enter(header.entry_size()?);
            match kind {
                EntryType::GNULongName => extension.path = Some(self.name()?),
                EntryType::GNULongLink => extension.link = Some(self.name()?),
                EntryType::XHeader => extension.read(&self.extension()?)?,
                EntryType::XGlobalHeader => {}
                _ => return self.member(&header, extension).map(Some),
            }
        }
    }

    /// Reads to the end of the stream, so that checksums of the compression are checked. Returns the reader.
    pub fn finish(mut self) -> io::Result<R> {
        let trailing = io::copy(&mut (&mut self.reader).take(MAX_TRAILING_BYTES + 1), &mut io::sink())?;
        if trailing > MAX_TRAILING_BYTES {
            return Err(invalid("something else follows the end of the tar archive"));
        }
        Ok(self.reader)
    }

    fn member(&mut self, header: &Header, extension: Extension) -> io::Result<ArchiveMember> {
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = || {
            let own = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
            extension.link.or_else(own).ok_or_else(|| invalid("a link has no target"))
        };
        let size = extension.size.map_or_else(|| header.entry_size(), Ok)?;
        let kind = match header.entry_type() {
            EntryType::Regular if path.ends_with(b"/") => MemberKind::Directory,
            EntryType::Regular | EntryType::Continuous => MemberKind::File(size),
            EntryType::Directory => MemberKind::Directory,
            EntryType::Symlink => MemberKind::Symlink(link()?),
            EntryType::Link => MemberKind::HardLink(link()?),
            EntryType::GNUSparse => {
                self.skip_map(header)?;
                MemberKind::Other
            }
            _ => MemberKind::Other,
        };
        // Some writers give links and directories the size of what they name; none has content.
        let has_content = matches!(kind, MemberKind::File(_)) || header.entry_type() == EntryType::GNUSparse;
        self.enter(if has_content { size } else { 0 });
        Ok(ArchiveMember { path, kind })
    }

    /// Skips the blocks that continue the map of a sparse file.
    fn skip_map(&mut self, header: &Header) -> io::Result<()> {
        let mut more = header.as_gnu().is_some_and(tar::GnuHeader::is_extended);
        while more {
            let mut block = [0; BLOCK_BYTES];
            self.reader.read_exact(&mut block)?;
            more = block[504] != 0;
        }
        Ok(())
    }

    fn enter(&mut self, size: u64) {
        self.content = size;
        self.padding = size.wrapping_neg() % BLOCK_BYTES as u64;
    }

    /// Skips the rest of the member. An archive may also end directly behind its content: some writers leave out the
    /// padding and the end marks, and container runtimes accept such layers.
    fn leave(&mut self) -> io::Result<()> {
        let (content, padding) = (self.content, self.padding);
        (self.content, self.padding) = (0, 0);
        let mut skip = |length| io::copy(&mut (&mut self.reader).take(length), &mut io::sink());
        if skip(content)? < content {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        skip(padding).map(drop)
    }

    /// The next header; none at the end.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        (&mut self.reader).take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if block.len() < BLOCK_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = Header::from_byte_slice(&block).clone();
        // The checksum counts its own eight bytes as spaces.
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let own: u32 = header.as_old().cksum.iter().map(|byte| u32::from(*byte)).sum();
        match header.cksum() {
            Ok(cksum) if cksum == sum - own + 8 * u32::from(b' ') => Ok(Some(header)),
            _ => Err(invalid("it is not a tar archive, or it is damaged: the checksum of a header is wrong")),
        }
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.content > MAX_EXTENSION_BYTES {
            return Err(invalid("a header is too large"));
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn name(&mut self) -> io::Result<Vec<u8>> {
        let mut name = self.extension()?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }
}

impl Extension {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        for extension in PaxExtensions::new(bytes) {
            let extension = extension?;
            let value = extension.value_bytes();
            match extension.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or_else(|| invalid("the size of a member is not a number"))?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for ArchiveMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.reader).take(self.content).read(buffer)?;
        if count == 0 && self.content > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content -= count as u64;
        Ok(count)
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// `./a/b/` as `a/b`. None if the path climbs with `..`, or is absolute.
#[must_use]
pub fn inside(path: &[u8]) -> Option<Vec<u8>> {
    let parts = || path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let climbs = path.starts_with(b"/") || parts().any(|part| part == b"..");
    (!climbs).then(|| parts().collect::<Vec<_>>().join(&b'/'))
}

/// The path that the link `from` (a path that is [`inside`]) with the target `to` leads to, if that is inside.
#[must_use]
pub fn linked(from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let mut path: Vec<&[u8]> = from.split(|byte| *byte == b'/').collect();
    path.pop();
    if to.starts_with(b"/") {
        return None;
    }
    for part in to.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                path.pop()?;
            }
            part => path.push(part),
        }
    }
    Some(path.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size);
        header
    }

    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let long = "long/".repeat(60) + "name";
        builder.append_data(&mut header(EntryType::Regular, 3), "a", &b"one"[..]).unwrap();
        builder.append_data(&mut header(EntryType::Directory, 0), "d/", io::empty()).unwrap();
        builder.append_link(&mut header(EntryType::Symlink, 0), "d/s", "../".repeat(50) + "a").unwrap();
        builder.append_link(&mut header(EntryType::Link, 0), "h", "a").unwrap();
        builder.append_pax_extensions([("path", b"pax".as_slice()), ("size", b"600")]).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 600), "short", &[7; 600][..]).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 2), &long, &b"no"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    type ReadMember = (String, MemberKind, usize);

    fn read(bytes: &[u8], whole: bool) -> io::Result<Vec<ReadMember>> {
        let mut members = ArchiveMembers::new(bytes);
        let mut all = Vec::new();
        while let Some(member) = members.advance()? {
            let mut content = Vec::new();
            if whole {
                members.read_to_end(&mut content)?;
            }
            all.push((String::from_utf8_lossy(&member.path).into_owned(), member.kind, content.len()));
        }
        members.finish()?;
        Ok(all)
    }

    #[test]
    fn names_kinds_and_contents_come_as_they_were_written() {
        for whole in [true, false] {
            let all = read(&archive(), whole).unwrap();
            let length = |length| if whole { length } else { 0 };
            assert_eq!(all[0], ("a".into(), MemberKind::File(3), length(3)));
            assert_eq!(all[1], ("d/".into(), MemberKind::Directory, 0));
            assert_eq!(all[2], ("d/s".into(), MemberKind::Symlink(("../".repeat(50) + "a").into()), 0));
            assert_eq!(all[3], ("h".into(), MemberKind::HardLink("a".into()), 0));
            assert_eq!(all[4], ("pax".into(), MemberKind::File(600), length(600)));
            assert_eq!(all[5], ("long/".repeat(60) + "name", MemberKind::File(2), length(2)));
            assert_eq!(all.len(), 6);
        }
    }

    #[test]
    fn an_archive_may_end_with_the_content_of_its_last_member_but_not_in_it() {
        let all = archive();
        let content = all.windows(2).rposition(|bytes| bytes == b"no").unwrap() + 2;
        for whole in [true, false] {
            assert_eq!(read(&all[..content], whole).unwrap().len(), 6);
            assert_eq!(read(&all[..content + 100], whole).unwrap().len(), 6);
            assert!(read(&all[..content - 1], whole).is_err());
        }
    }

    #[test]
    fn a_header_that_is_too_large_is_refused_before_it_is_read() {
        for kind in [EntryType::GNULongName, EntryType::XHeader] {
            let mut long = header(kind, 1 << 40);
            long.set_path("x").unwrap();
            long.set_cksum();
            assert!(read(long.as_bytes(), true).unwrap_err().to_string().contains("too large"));
        }
    }

    #[test]
    fn what_follows_the_end_is_bounded() {
        let endless = archive().chain_zeros(MAX_TRAILING_BYTES + 1024);
        assert!(read(&endless, false).is_err());
        assert!(read(&archive().chain_zeros(10240), false).is_ok());
    }

    trait ChainZeros {
        fn chain_zeros(self, count: u64) -> Vec<u8>;
    }

    impl ChainZeros for Vec<u8> {
        fn chain_zeros(mut self, count: u64) -> Vec<u8> {
            self.resize(self.len() + usize::try_from(count).unwrap(), 0);
            self
        }
    }

    #[test]
    fn paths_stay_inside() {
        assert_eq!(inside(b"./a//b/").unwrap(), b"a/b");
        assert_eq!(inside(b"./").unwrap(), b"");
        assert!(inside(b"a/../../b").is_none() && inside(b"/a").is_none());
        assert_eq!(linked(b"one/layer.tar", b"../two/layer.tar").unwrap(), b"two/layer.tar");
        assert!(linked(b"one/layer.tar", b"../../etc/passwd").is_none());
        assert!(linked(b"one", b"/etc/passwd").is_none());
    }

    proptest! {
        #[test]
        fn cut_and_damaged_archives_never_panic(at in 0..4096_usize, byte: u8, end in 0..8192_usize) {
            let mut bytes = archive();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(end);
            let _ = read(&bytes, true);
        }

        #[test]
        fn what_is_inside_is_inside_again(path: Vec<u8>) {
            if let Some(plain) = inside(&path) {
                prop_assert_eq!(inside(&plain), Some(plain.clone()));
            }
        }
    }
}
