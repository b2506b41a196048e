//! Writing a tree as a fresh, compact file.
//!
//! Pages 0 and 1 are the meta pages, page 2 an empty free list; then come the pages of the buckets, children
//! before parents. Leaves are filled one after the other; an element larger than a page gets overflow pages.
//! Small buckets without buckets of their own lie inline in their parent, as bbolt would keep them.

use super::layout::{
    BRANCH, BUCKET_HEADER, BUCKET_LEAF, ELEMENT, FREELIST, LEAF, MAGIC, MAX_KEY, MAX_VALUE, META,
    META_SUMMED, PAGE_HEADER, PAGE_SIZE, VERSION, fnv64a,
};
use super::{BoltError, Bucket};

/// The largest inline page that bbolt makes, a quarter of a page.
const MAX_INLINE_BYTES: usize = PAGE_SIZE / 4;
const FREELIST_PAGE: u64 = 2;

/// The bytes of a database that holds `root`. The same tree gives the same bytes.
pub fn write(root: &Bucket) -> Result<Vec<u8>, BoltError> {
    let mut writer = Writer { file: vec![0; 2 * PAGE_SIZE] };
    writer.put(FREELIST, 0, &[])?;
    let root_page = writer.tree(root)?;
    let high_water = writer.next_page();
    let mut file = writer.file;
    for number in [0, 1] {
        let meta = meta_page(number, root_page, root.sequence, high_water);
        let start = if number == 0 { 0 } else { PAGE_SIZE };
        // The file begins with two whole pages; without either of its meta pages it would be no database.
        file[start..start + meta.len()].copy_from_slice(&meta);
    }
    Ok(file)
}

/// Transactions alternate between the meta pages: number 0 wrote page 0, number 1 page 1.
fn meta_page(number: u64, root: u64, sequence: u64, high_water: u64) -> Vec<u8> {
    let mut page = page_header(number, META, 0, 0).to_vec();
    page.extend(MAGIC.to_le_bytes());
    page.extend(VERSION.to_le_bytes());
    page.extend(4096_u32.to_le_bytes());
    page.extend(0_u32.to_le_bytes());
    for field in [root, sequence, FREELIST_PAGE, high_water, number] {
        page.extend(field.to_le_bytes());
    }
    let sum = fnv64a(&page[PAGE_HEADER..PAGE_HEADER + META_SUMMED]);
    page.extend(sum.to_le_bytes());
    page
}

fn page_header(number: u64, flags: u16, count: u16, overflow: u32) -> [u8; PAGE_HEADER] {
    let mut header = [0; PAGE_HEADER];
    header[..8].copy_from_slice(&number.to_le_bytes());
    header[8..10].copy_from_slice(&flags.to_le_bytes());
    header[10..12].copy_from_slice(&count.to_le_bytes());
    header[12..].copy_from_slice(&overflow.to_le_bytes());
    header
}

/// One element of a leaf: a key with its value, or with a bucket in the form of a value.
struct Item<'a> {
    flags: u32,
    key: &'a [u8],
    value: std::borrow::Cow<'a, [u8]>,
}

impl Item<'_> {
    fn size(&self) -> usize {
        ELEMENT + self.key.len() + self.value.len()
    }
}

struct Writer {
    file: Vec<u8>,
}

impl Writer {
    fn next_page(&self) -> u64 {
        // usize has at most 64 bits.
        (self.file.len() / PAGE_SIZE) as u64
    }

    /// Writes one page, with overflow pages as needed, and returns its number.
    fn put(&mut self, flags: u16, count: usize, body: &[u8]) -> Result<u64, BoltError> {
        let number = self.next_page();
        let size = (PAGE_HEADER + body.len()).next_multiple_of(PAGE_SIZE);
        let count =
            u16::try_from(count).map_err(|_| BoltError::Unwritable("a page has too many elements"))?;
        let overflow = u32::try_from(size / PAGE_SIZE - 1)
            .map_err(|_| BoltError::Unwritable("a page has too many overflow pages"))?;
        let end = self.file.len() + size;
        self.file.extend(page_header(number, flags, count, overflow));
        self.file.extend(body);
        self.file.resize(end, 0);
        Ok(number)
    }

    /// Writes the pages of `bucket` and returns the number of its root page.
    fn tree(&mut self, bucket: &Bucket) -> Result<u64, BoltError> {
        let items = self.items(bucket)?;
        let mut level = Vec::new();
        for group in groups(&items, 1, Item::size) {
            level.push((group[0].key, self.put(LEAF, group.len(), &leaf_body(group)?)?));
        }
        while level.len() > 1 {
            let mut above = Vec::new();
            // At least two, or keys of half a page would make levels without end.
            for group in groups(&level, 2, |(key, _)| ELEMENT + key.len()) {
                above.push((group[0].0, self.put(BRANCH, group.len(), &branch_body(group)?)?));
            }
            level = above;
        }
        match level.first() {
            Some((_, page)) => Ok(*page),
            None => self.put(LEAF, 0, &[]),
        }
    }

    /// The elements of `bucket` in the order of their keys; the pages of buckets in it are written on the way.
    fn items<'a>(&mut self, bucket: &'a Bucket) -> Result<Vec<Item<'a>>, BoltError> {
        let mut items = plain_items(bucket)?;
        for (key, child) in &bucket.buckets {
            check(key, &[])?;
            if bucket.pairs.contains_key(key) {
                return Err(BoltError::Unwritable("a key has a value and a bucket"));
            }
            let value = self.bucket_value(child)?.into();
            items.push(Item { flags: BUCKET_LEAF, key, value });
        }
        items.sort_by_key(|item| item.key);
        Ok(items)
    }

    /// The value of a bucket's element: root page and sequence, and the page itself where it lies inline.
    fn bucket_value(&mut self, bucket: &Bucket) -> Result<Vec<u8>, BoltError> {
        let inline = inline_page(bucket)?;
        let root = if inline.is_some() { 0 } else { self.tree(bucket)? };
        let mut value = Vec::with_capacity(BUCKET_HEADER);
        value.extend(root.to_le_bytes());
        value.extend(bucket.sequence.to_le_bytes());
        value.extend(inline.into_iter().flatten());
        Ok(value)
    }
}

fn plain_items(bucket: &Bucket) -> Result<Vec<Item<'_>>, BoltError> {
    let item = |(key, value): (&'_ Vec<u8>, &'_ Vec<u8>)| check(key, value);
    bucket.pairs.iter().try_for_each(item)?;
    Ok(bucket.pairs.iter().map(|(key, value)| Item { flags: 0, key, value: value.into() }).collect())
}

fn check(key: &[u8], value: &[u8]) -> Result<(), BoltError> {
    match (key.len(), value.len()) {
        (0, _) => Err(BoltError::Unwritable("a key is empty")),
        (size, _) if size > MAX_KEY => Err(BoltError::Unwritable("a key is longer than 32768 bytes")),
        (_, size) if size > MAX_VALUE => Err(BoltError::Unwritable("a value is longer than 2 GiB")),
        _ => Ok(()),
    }
}

fn inline_page(bucket: &Bucket) -> Result<Option<Vec<u8>>, BoltError> {
    if !bucket.buckets.is_empty() {
        return Ok(None);
    }
    let items = plain_items(bucket)?;
    if PAGE_HEADER + items.iter().map(Item::size).sum::<usize>() > MAX_INLINE_BYTES {
        return Ok(None);
    }
    let count =
        u16::try_from(items.len()).map_err(|_| BoltError::Unwritable("a page has too many elements"))?;
    let mut page = page_header(0, LEAF, count, 0).to_vec();
    page.extend(leaf_body(&items)?);
    Ok(Some(page))
}

/// Cuts `items` into runs that fill a page each, but never of fewer than `least` items, the last run excepted. None is
/// empty: a page of a tree is named by its first key.
fn groups<T>(items: &[T], least: usize, size: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut groups = Vec::new();
    let (mut start, mut filled) = (0, PAGE_HEADER);
    for (index, item) in items.iter().enumerate() {
        let size = size(item);
        if index >= start + least && filled + size > PAGE_SIZE {
            groups.push(&items[start..index]);
            (start, filled) = (index, PAGE_HEADER);
        }
        filled += size;
    }
    groups.extend(items.get(start..).filter(|rest| !rest.is_empty()));
    groups
}

/// Element headers, then keys and values. Positions count from the element's own header.
fn leaf_body(items: &[Item<'_>]) -> Result<Vec<u8>, BoltError> {
    let (mut headers, mut data) = (Vec::new(), Vec::<u8>::new());
    for (index, item) in items.iter().enumerate() {
        headers.extend(item.flags.to_le_bytes());
        for number in [(items.len() - index) * ELEMENT + data.len(), item.key.len(), item.value.len()] {
            headers.extend(number_u32(number)?.to_le_bytes());
        }
        data.extend(item.key);
        data.extend(item.value.iter());
    }
    headers.extend(data);
    Ok(headers)
}

fn branch_body(children: &[(&[u8], u64)]) -> Result<Vec<u8>, BoltError> {
    let (mut headers, mut data) = (Vec::new(), Vec::<u8>::new());
    for (index, (key, page)) in children.iter().enumerate() {
        headers.extend(number_u32((children.len() - index) * ELEMENT + data.len())?.to_le_bytes());
        headers.extend(number_u32(key.len())?.to_le_bytes());
        headers.extend(page.to_le_bytes());
        data.extend_from_slice(key);
    }
    headers.extend(data);
    Ok(headers)
}

fn number_u32(number: usize) -> Result<u32, BoltError> {
    u32::try_from(number).map_err(|_| BoltError::Unwritable("a page is larger than 4 GiB"))
}
