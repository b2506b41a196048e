//! Reading a file into a tree.
//!
//! The bytes are not trusted: every offset is checked, every page is used once, nesting has a limit and a page's
//! elements may not claim more bytes than the page has. So time and memory are bounded by the file's size.

use super::layout::{
    BRANCH, BUCKET_HEADER, BUCKET_LEAF, ELEMENT, LEAF, MAGIC, META, META_SUMMED, PAGE_HEADER, VERSION, fnv64a,
};
use super::{BoltError, Bucket};

/// How deep buckets and branch pages may nest, together.
const MAX_DEPTH: usize = 64;

/// Reads the database that the newer valid meta page describes.
pub fn read(bytes: &[u8]) -> Result<Bucket, BoltError> {
    let meta = newest_meta(bytes).ok_or(BoltError::NoMeta)?;
    let pages = bytes.len() / meta.page_size;
    let high = usize::try_from(meta.high_water).map_or(pages, |high| high.min(pages));
    let mut reader = Reader { bytes, page_size: meta.page_size, used: vec![false; high] };
    let mut root = Bucket { sequence: meta.sequence, ..Bucket::default() };
    reader.tree(meta.root, 0, &mut root, &mut None)?;
    Ok(root)
}

struct Meta {
    page_size: usize,
    root: u64,
    sequence: u64,
    high_water: u64,
    transaction: u64,
}

/// The second meta page lies one page size into the file; where the first is damaged, that size is not known.
fn newest_meta(bytes: &[u8]) -> Option<Meta> {
    let first = meta_at(bytes, 0);
    let second = match &first {
        Some(meta) => meta_at(bytes, meta.page_size),
        None => (10..=16).find_map(|shift| meta_at(bytes, 1 << shift).filter(|m| m.page_size == 1 << shift)),
    };
    first.into_iter().chain(second).max_by_key(|meta| meta.transaction)
}

fn meta_at(bytes: &[u8], offset: usize) -> Option<Meta> {
    let page = bytes.get(offset..)?;
    let body = page.get(PAGE_HEADER..)?;
    let page_size = usize::try_from(u32_at(body, 8)?).ok()?;
    let valid = u16_at(page, 8)? & META != 0
        && u32_at(body, 0)? == MAGIC
        && u32_at(body, 4)? == VERSION
        && (1 << 10..=1 << 16).contains(&page_size)
        && page_size.is_power_of_two()
        && u64_at(body, META_SUMMED)? == fnv64a(body.get(..META_SUMMED)?);
    if !valid {
        return None;
    }
    Some(Meta {
        page_size,
        root: u64_at(body, 16)?,
        sequence: u64_at(body, 24)?,
        high_water: u64_at(body, 40)?,
        transaction: u64_at(body, 48)?,
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    page_size: usize,
    used: Vec<bool>,
}

/// A page with its overflow pages, or an inline page.
struct Page<'a> {
    number: u64,
    flags: u16,
    count: usize,
    bytes: &'a [u8],
}

struct LeafElement<'a> {
    flags: u32,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the B+ tree below page `number` into `bucket`. `last` is the key before it.
    fn tree(
        &mut self,
        number: u64,
        depth: usize,
        bucket: &mut Bucket,
        last: &mut Option<&'a [u8]>,
    ) -> Result<(), BoltError> {
        if depth > MAX_DEPTH {
            return Err(BoltError::Damaged { page: number, what: "its pages nest too deeply" });
        }
        let page = self.page(number)?;
        match page.flags {
            BRANCH => {
                for child in page.children()? {
                    self.tree(child, depth + 1, bucket, last)?;
                }
                Ok(())
            }
            LEAF => self.leaf(&page, depth, bucket, last),
            _ => Err(page.damaged("it is neither a branch nor a leaf")),
        }
    }

    fn leaf(
        &mut self,
        page: &Page<'a>,
        depth: usize,
        bucket: &mut Bucket,
        last: &mut Option<&'a [u8]>,
    ) -> Result<(), BoltError> {
        for element in page.leaves()? {
            if last.is_some_and(|last| last >= element.key) || element.key.is_empty() {
                return Err(page.damaged("its keys are not in order"));
            }
            *last = Some(element.key);
            if element.flags & BUCKET_LEAF == 0 {
                bucket.pairs.insert(element.key.to_vec(), element.value.to_vec());
            } else {
                let child = self.child(page, element.value, depth)?;
                bucket.buckets.insert(element.key.to_vec(), child);
            }
        }
        Ok(())
    }

    /// The bucket that an element's value holds or refers to.
    fn child(&mut self, page: &Page<'a>, value: &'a [u8], depth: usize) -> Result<Bucket, BoltError> {
        let short = || page.damaged("a bucket in it is cut short");
        let root = u64_at(value, 0).ok_or_else(short)?;
        let mut bucket = Bucket { sequence: u64_at(value, 8).ok_or_else(short)?, ..Bucket::default() };
        if root != 0 {
            self.tree(root, depth + 1, &mut bucket, &mut None)?;
            return Ok(bucket);
        }
        let inline = value.get(BUCKET_HEADER..).ok_or_else(short)?;
        let inline = Page::parse(page.number, inline).ok_or_else(short)?;
        let elements = inline.leaves()?;
        if inline.flags != LEAF || elements.iter().any(|element| element.flags & BUCKET_LEAF != 0) {
            return Err(page.damaged("an inline bucket in it is not a single leaf"));
        }
        self.leaf(&inline, depth + 1, &mut bucket, &mut None)?;
        Ok(bucket)
    }

    fn page(&mut self, number: u64) -> Result<Page<'a>, BoltError> {
        let damaged = |what| BoltError::Damaged { page: number, what };
        let outside = || damaged("it is outside the file");
        let first = usize::try_from(number).map_err(|_| outside())?;
        let start = first.checked_mul(self.page_size).ok_or_else(outside)?;
        let header = self.bytes.get(start..).ok_or_else(outside)?;
        let overflow = usize::try_from(u32_at(header, 12).ok_or_else(outside)?).map_err(|_| outside())?;
        let end = first.checked_add(overflow).and_then(|last| last.checked_add(1)).ok_or_else(outside)?;
        let used = self.used.get_mut(first..end).ok_or_else(outside)?;
        if u64_at(header, 0) != Some(number) {
            return Err(damaged("it has the number of another page"));
        }
        if first < 2 || used.contains(&true) {
            return Err(damaged("it is used twice"));
        }
        used.fill(true);
        let bytes = self.bytes.get(start..end * self.page_size).ok_or_else(outside)?;
        Page::parse(number, bytes).ok_or_else(outside)
    }
}

impl<'a> Page<'a> {
    fn parse(number: u64, bytes: &'a [u8]) -> Option<Self> {
        let (flags, count) = (u16_at(bytes, 8)?, usize::from(u16_at(bytes, 10)?));
        u32_at(bytes, 12)?;
        Some(Self { number, flags, count, bytes })
    }

    fn damaged(&self, what: &'static str) -> BoltError {
        BoltError::Damaged { page: self.number, what }
    }

    /// The element headers, each with everything from there to the end of the page: positions count from
    /// the element's own start.
    fn elements(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let bytes = self.bytes;
        (0..self.count).map(move |index| bytes.get(PAGE_HEADER + index * ELEMENT..))
    }

    fn children(&self) -> Result<Vec<u64>, BoltError> {
        let child = |element: Option<&[u8]>| u64_at(element?, 8);
        let children: Option<Vec<u64>> = self.elements().map(child).collect();
        children.filter(|children| !children.is_empty()).ok_or_else(|| self.damaged("a branch is cut short"))
    }

    fn leaves(&self) -> Result<Vec<LeafElement<'a>>, BoltError> {
        let mut room = self.bytes.len().saturating_sub(PAGE_HEADER);
        let mut leaf = |element: Option<&'a [u8]>| {
            let element = element?;
            let field = |at| usize::try_from(u32_at(element, at)?).ok();
            let (position, key_size, value_size) = (field(4)?, field(8)?, field(12)?);
            // Overlapping elements could make a small file into a large tree.
            room = room.checked_sub(ELEMENT.checked_add(key_size)?.checked_add(value_size)?)?;
            let (key, rest) = element.get(position..)?.split_at_checked(key_size)?;
            Some(LeafElement { flags: u32_at(element, 0)?, key, value: rest.get(..value_size)? })
        };
        self.elements()
            .map(&mut leaf)
            .collect::<Option<_>>()
            .ok_or_else(|| self.damaged("a leaf is cut short"))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}
