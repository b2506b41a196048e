//! Disks for tests: sparse files with the bytes that real programs leave, as far as readers look at them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::sys::memfd::{MFdFlags, memfd_create};
use uuid::Uuid;

use base::command::{Invocation, Runner, SystemRunner};

/// The CRC-32 that zip, Ethernet and GPT share.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

pub const UUID: Uuid = uuid::uuid!("0d6f3c9a-54b1-4a0e-9a57-1c2d3e4f5061");

/// A disk or partition in a sparse file.
#[derive(Debug)]
pub struct Specimen {
    pub file: File,
    /// Where other programs find it while this value lives.
    pub path: PathBuf,
    pub size: u64,
    pub sector: u64,
}

/// A partition to write into a table: first byte, length, name.
pub type Part<'a> = (u64, u64, &'a str);

impl Specimen {
    /// The file is in memory, where it may be larger than file systems allow; only what is written uses memory.
    pub fn new(size: u64, sector: u64) -> Self {
        let file = File::from(memfd_create(c"specimen", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(size).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Self { file, path, size, sector }
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) -> &Self {
        self.file.write_all_at(bytes, offset).unwrap();
        self
    }

    /// Writes blocks at offsets from `base`.
    fn puts(&self, base: u64, blocks: &[(u64, &[u8])]) -> &Self {
        blocks.iter().fold(self, |specimen, (offset, bytes)| specimen.put(base + offset, bytes))
    }

    /// Runs a program on the file, given as its last argument.
    pub fn run(&self, program: &str, args: &[&str]) -> &Self {
        let make = Invocation::new(program).args(args.iter().copied()).arg(&self.path);
        SystemRunner.run(&make).unwrap();
        self
    }

    pub fn gpt(&self, parts: &[Part<'_>]) -> &Self {
        self.gpt_for(self.sector, parts)
    }

    /// Like [`Self::gpt`], for sectors of another size than the disk's.
    pub fn gpt_for(&self, sector: u64, parts: &[Part<'_>]) -> &Self {
        let last = self.size / sector - 1;
        let mut entries = vec![0; 128 * 128];
        for (entry, (start, length, name)) in entries.chunks_mut(128).zip(parts) {
            entry[..16].copy_from_slice(&uuid::uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4").to_bytes_le());
            entry[16..32].copy_from_slice(&Uuid::new_v5(&UUID, name.as_bytes()).to_bytes_le());
            entry[32..40].copy_from_slice(&(start / sector).to_le_bytes());
            entry[40..48].copy_from_slice(&((start + length) / sector - 1).to_le_bytes());
            let name = name.encode_utf16().flat_map(u16::to_le_bytes);
            entry[56..].iter_mut().zip(name).for_each(|(to, from)| *to = from);
        }
        let array = (entries.len() as u64).div_ceil(sector);
        for (own, other, place) in [(1, last, 2), (last, 1, last - array)] {
            let mut header = [0; 92];
            header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
            for (at, number) in [(24, own), (32, other), (40, 2 + array), (48, last - array - 1), (72, place)]
            {
                header[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            header[56..72].copy_from_slice(&UUID.to_bytes_le());
            for (at, number) in [(80, 128u32), (84, 128), (88, crc32(&entries))] {
                header[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            let sum = crc32(&header);
            header[16..20].copy_from_slice(&sum.to_le_bytes());
            self.put(own * sector, &header).put(place * sector, &entries);
        }
        self.mbr(&[(0xee, 1, u32::try_from(last).unwrap_or(u32::MAX))])
    }

    /// An MBR table: type, first sector and length of each partition.
    pub fn mbr(&self, parts: &[(u8, u32, u32)]) -> &Self {
        let mut table = [0; 66];
        for (entry, (kind, start, length)) in table.chunks_mut(16).zip(parts) {
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..16].copy_from_slice(&length.to_le_bytes());
        }
        table[64..].copy_from_slice(&[0x55, 0xaa]);
        self.put(446, &table)
    }

    /// Breaks the checksum of one copy of the GPT.
    pub fn damage(&self, primary: bool) -> &Self {
        let last = self.size / self.sector - 1;
        self.put(if primary { self.sector } else { last * self.sector } + 40, &[0xff; 8])
    }

    /// An ext4 file system, made by the real program.
    pub fn ext4(&self, label: &str) -> &Self {
        self.run(
            "mkfs.ext4",
            &[
                "-q",
                "-F",
                "-L",
                label,
                "-U",
                &UUID.to_string(),
                "-E",
                "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
            ],
        )
    }

    pub fn xfs(&self, label: &str) -> &Self {
        let blocks = self.size / 4096;
        let fields: [(u64, &[u8]); 16] = [
            (0, b"XFSB"),
            (4, &4096u32.to_be_bytes()),
            (8, &blocks.to_be_bytes()),
            (32, UUID.as_bytes()),
            (80, &1u32.to_be_bytes()),
            (84, &u32::try_from(blocks / 4).unwrap().to_be_bytes()),
            (88, &4u32.to_be_bytes()),
            (100, &4u16.to_be_bytes()),
            (102, &512u16.to_be_bytes()),
            (104, &256u16.to_be_bytes()),
            (106, &16u16.to_be_bytes()),
            (108, label.as_bytes()),
            (120, &[12, 9, 8, 4]),
            (127, &[25]),
            (48, &(blocks / 8).to_be_bytes()),
            (96, &100u32.to_be_bytes()),
        ];
        self.puts(0, &fields)
    }

    pub fn btrfs(&self, label: &str) -> &Self {
        let base = 64 << 10;
        let fields: [(u64, &[u8]); 5] = [
            (0x20, UUID.as_bytes()),
            (0x30, &(64u64 << 10).to_le_bytes()),
            (0x40, b"_BHRfS_M"),
            (0x90, &4096u32.to_le_bytes()),
            (0x12b, label.as_bytes()),
        ];
        self.puts(base, &fields)
    }

    pub fn vfat(&self, label: &str) -> &Self {
        let mut name = [b' '; 11];
        name.iter_mut().zip(label.bytes()).for_each(|(to, from)| *to = from);
        let sectors = u32::try_from(self.size / 512).unwrap();
        let entry = [name.as_slice(), &[0x08]].concat();
        let fields: [(u64, &[u8]); 14] = [
            (0, b"\xeb\x58\x90mkfs.fat\0\x02\x08\x20\0\x02"),
            (0x15, &[0xf8]),
            (0x20, &sectors.to_le_bytes()),
            (0x24, &(sectors / 1024).to_le_bytes()),
            (0x2c, &2u32.to_le_bytes()),
            (0x30, &1u16.to_le_bytes()),
            (0x42, &[0x29]),
            (0x43, &0xabcd_1234u32.to_le_bytes()),
            (0x47, b"OLD NAME   "),
            (0x52, b"FAT32   "),
            (510, &[0x55, 0xaa]),
            (512, b"RRaA"),
            (512 + 484, b"rrAa"),
            // The root directory, behind two tables; the name in the boot sector is an old one.
            (512 * (32 + 2 * (u64::from(sectors) / 1024)), &entry),
        ];
        self.puts(0, &fields)
    }

    pub fn ntfs(&self) -> &Self {
        let sectors = self.size / 512;
        let fields: [(u64, &[u8]); 8] = [
            (0, b"\xeb\x52\x90NTFS    \0\x02\x08\0\0\0\0\0\0\0\xf8"),
            (0x28, &sectors.to_le_bytes()),
            (0x30, &4u64.to_le_bytes()),
            (0x40, &[0xf6, 0, 0, 0, 1]),
            (0x48, &0x1234_5678_9abc_def0u64.to_le_bytes()),
            (510, &[0x55, 0xaa]),
            // Records of the master file table: its own, and the volume's.
            (4 * 4096, b"FILE"),
            (4 * 4096 + 3 * 1024, b"FILE"),
        ];
        self.puts(0, &fields)
    }

    pub fn exfat(&self, label: &str) -> &Self {
        let sectors = self.size / 512;
        let mut entry = vec![0x83, u8::try_from(label.len()).unwrap()];
        entry.extend(label.encode_utf16().flat_map(u16::to_le_bytes));
        let fields: [(u64, &[u8]); 11] = [
            (0, b"\xeb\x76\x90EXFAT   "),
            (0x48, &sectors.to_le_bytes()),
            (0x50, &24u32.to_le_bytes()),
            (0x54, &8u32.to_le_bytes()),
            (0x58, &64u32.to_le_bytes()),
            (0x5c, &u32::try_from(sectors / 8 - 8).unwrap().to_le_bytes()),
            (0x60, &4u32.to_le_bytes()),
            (0x64, &0xabcd_1234u32.to_le_bytes()),
            (0x68, &[0, 1, 0, 0, 9, 3, 1, 0x80]),
            (510, &[0x55, 0xaa]),
            // The root directory is in the third cluster of the heap.
            (512 * (64 + 2 * 8), &entry),
        ];
        self.puts(0, &fields)
    }

    /// An LVM volume, with the metadata of a group if it is in one.
    pub fn lvm(&self, group: Option<&str>) -> &Self {
        let mut label = [0; 512];
        label[..8].copy_from_slice(b"LABELONE");
        label[8] = 1;
        label[20..32].copy_from_slice(b"\x20\0\0\0LVM2 001");
        label[32..64].copy_from_slice(b"abcdefGHIJKLMNOPQRSTUVWXYZ012345");
        for (at, number) in [(64, self.size), (72, 1 << 20), (80, 0), (104, 4096), (112, 1 << 20)] {
            label[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        // The same polynomial as zip's, with another start value and no final inversion.
        let sum = label[20..].iter().fold(0xf597_a6cf_u32, |sum, byte| {
            (0..8)
                .fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
        });
        label[16..20].copy_from_slice(&sum.to_le_bytes());
        self.put(512, &label);
        let Some(group) = group else { return self };
        let text = format!("{group} {{\nid = \"x\"\nseqno = 1\n}}\n");
        let fields: [(u64, &[u8]); 5] = [
            (4, b" LVM2 x[5A%r0N*>\x01"),
            (24, &4096u64.to_le_bytes()),
            (32, &(1u64 << 20).to_le_bytes()),
            (40, &512u64.to_le_bytes()),
            (512, text.as_bytes()),
        ];
        self.puts(4096, &fields)
    }

    /// A member of a Linux RAID with a superblock of version 1 at `offset`.
    pub fn md1(&self, offset: u64, name: &str) -> &Self {
        let mut block = [0; 256];
        block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        block[4] = 1;
        block[16..32].copy_from_slice(UUID.as_bytes());
        block[32..32 + name.len()].copy_from_slice(name.as_bytes());
        block[72] = 1;
        block[92] = 2;
        block[144..152].copy_from_slice(&(offset / 512).to_le_bytes());
        let sum: u64 =
            block.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
        let sum = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap();
        block[216..220].copy_from_slice(&sum.to_le_bytes());
        self.put(offset, &block)
    }

    /// The offset of a superblock of version 1.0.
    pub fn md10_place(&self) -> u64 {
        (self.size - (8 << 10)) / 4096 * 4096
    }

    /// A superblock of version 0.90 at its place.
    pub fn md090(&self) -> &Self {
        let mut words = [0u32; 16];
        let id = UUID.as_bytes().chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
        let id: Vec<_> = id.collect();
        (words[0], words[2], words[7]) = (0xa92b_4efc, 90, 1);
        (words[5], words[13], words[14], words[15]) = (id[0], id[1], id[2], id[3]);
        let size = self.size / (64 << 10) * (64 << 10) - (64 << 10);
        words[8] = u32::try_from(size >> 10).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(size, &bytes)
    }

    pub fn luks(&self, version: u8, label: &str) -> &Self {
        let id = UUID.to_string();
        let fields: [(u64, &[u8]); 4] =
            [(0, b"LUKS\xba\xbe"), (7, &[version]), (24, label.as_bytes()), (168, id.as_bytes())];
        self.puts(0, &fields)
    }

    /// A LUKS2 volume of which only the second header is left.
    pub fn luks2_second(&self, label: &str) -> &Self {
        let id = UUID.to_string();
        let fields: [(u64, &[u8]); 5] = [
            (0, b"SKUL\xba\xbe"),
            (7, &[2]),
            (24, label.as_bytes()),
            (168, id.as_bytes()),
            (256, &0x4000u64.to_be_bytes()),
        ];
        self.puts(0x4000, &fields)
    }

    /// All four labels of a member of a pool, or the two at the end.
    pub fn zfs(&self, pool: &str, start_too: bool) -> &Self {
        let label = 256 << 10;
        let mut list = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let mut pair = |name: &str, kind: u32, value: &[u8]| {
            let mut pair = vec![0; 8];
            pair.extend((name.len() as u32).to_be_bytes());
            pair.extend(name.as_bytes());
            pair.resize(pair.len().next_multiple_of(4), 0);
            pair.extend([kind.to_be_bytes(), 1u32.to_be_bytes()].concat());
            pair.extend(value);
            pair.resize(pair.len().next_multiple_of(4), 0);
            let length = (pair.len() as u32).to_be_bytes();
            pair[..4].copy_from_slice(&length);
            list.extend(pair);
        };
        pair("version", 8, &5000u64.to_be_bytes());
        pair("name", 9, &[&(pool.len() as u32).to_be_bytes(), pool.as_bytes()].concat());
        pair("state", 8, &0u64.to_be_bytes());
        pair("txg", 8, &4u64.to_be_bytes());
        pair("pool_guid", 8, &1_234_567_890_123_456_789u64.to_be_bytes());
        pair("guid", 8, &42u64.to_be_bytes());
        let usable = self.size / label * label;
        let places = [0, label, usable - 2 * label, usable - label];
        for place in places.into_iter().skip(if start_too { 0 } else { 2 }) {
            self.put(place + (16 << 10), &list);
            // Uberblocks, which older readers count.
            for number in 0..8u64 {
                self.put(place + (128 << 10) + (number << 10), &0x00ba_b10c_u64.to_le_bytes());
            }
        }
        self
    }

    pub fn vmfs(&self, label: &str) -> &Self {
        let volume: [(u64, &[u8]); 2] =
            [(0, b"\x0d\xd0\x01\xc0"), (532, b"4d4a5c1e-00112233-4455-66778899aabb")];
        let id =
            [0x1e, 0x5c, 0x4a, 0x4d, 0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb];
        let fields: [(u64, &[u8]); 3] = [(0, b"\x5e\xf1\xab\x2f"), (9, &id), (29, label.as_bytes())];
        self.puts(1 << 20, &volume).puts(2 << 20, &fields)
    }

    pub fn ceph(&self) -> &Self {
        self.put(0, format!("bluestore block device\n{UUID}\n").as_bytes())
    }

    pub fn ddf(&self) -> &Self {
        let mut header = [0xff; 512];
        header[..4].copy_from_slice(&0xde11_de11_u32.to_be_bytes());
        header[8..32].copy_from_slice(b"Dell    0123456789ABCDEF");
        header[32..40].copy_from_slice(b"01.02.00");
        header[96..104].fill(0);
        let sum = crc32(&header);
        header[4..8].copy_from_slice(&sum.to_be_bytes());
        self.put(self.size - 512, &header)
    }

    pub fn imsm(&self) -> &Self {
        let mark = b"Intel Raid ISM Cfg Sig. 1.3.00\0\0";
        self.puts(self.size - 2 * self.sector, &[(0, mark), (40, &0x1122_3344_u32.to_le_bytes())])
    }

    pub fn drbd(&self) -> &Self {
        let fields: [(u64, &[u8]); 3] = [
            (40, &0x0123_4567_89ab_cdef_u64.to_be_bytes()),
            (60, &0x8374_026b_u32.to_be_bytes()),
            (80, &4096u32.to_be_bytes()),
        ];
        self.puts(self.size - 4096, &fields)
    }
}
