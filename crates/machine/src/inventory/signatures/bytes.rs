//! Numbers and texts in a block. Anything beyond its end reads as zero or empty: a short block matches no format.

use uuid::Uuid;

pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// These bytes; fewer at the end of the block.
    pub(super) fn part(&self, offset: usize, length: usize) -> &[u8] {
        let end = offset.saturating_add(length).min(self.0.len());
        self.0.get(offset..end).unwrap_or_default()
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.part(offset, N).try_into().unwrap_or([0; N])
    }

    pub(super) fn has(&self, offset: usize, mark: &[u8]) -> bool {
        self.part(offset, mark.len()) == mark
    }

    pub(super) fn u8(&self, offset: usize) -> u8 {
        self.array::<1>(offset)[0]
    }

    pub(super) fn le16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.array(offset))
    }

    pub(super) fn le32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    pub(super) fn le64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    pub(super) fn be16(&self, offset: usize) -> u16 {
        u16::from_be_bytes(self.array(offset))
    }

    pub(super) fn be32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.array(offset))
    }

    pub(super) fn be64(&self, offset: usize) -> u64 {
        u64::from_be_bytes(self.array(offset))
    }

    /// Text up to a zero or the end of its field, without unprintable characters; `None` if nothing is left.
    pub(super) fn text(&self, offset: usize, length: usize) -> Option<String> {
        let bytes = self.part(offset, length).split(|byte| *byte == 0).next().unwrap_or_default();
        printable(&String::from_utf8_lossy(bytes))
    }

    /// Like [`Self::text`], for UTF-16, little-endian.
    pub(super) fn text16(&self, offset: usize, characters: usize) -> Option<String> {
        let units = (0..characters).map(|index| self.le16(offset + 2 * index)).take_while(|unit| *unit != 0);
        let text: String = char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect();
        printable(&text)
    }

    /// The 16 bytes in their order; `None` if all are zero.
    pub(super) fn uuid(&self, offset: usize) -> Option<String> {
        Some(Uuid::from_bytes(self.array(offset))).filter(|uuid| !uuid.is_nil()).map(|uuid| uuid.to_string())
    }
}

/// Text that terminals and logs can show, trimmed.
fn printable(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
