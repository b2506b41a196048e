//! How much memory the image of a kernel says that it takes once it runs.

/// Where the image for x86 has its magic number, the version of its header, and `init_size` (Documentation/arch/x86/boot.rst of Linux).
const X86_MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
const X86_VERSION: usize = 0x206;
const X86_INIT_SIZE: usize = 0x260;
/// The first version of that header with `init_size`: 2.10.
const X86_WITH_INIT_SIZE: u16 = 0x020a;
/// The same for 64-bit Arm: `magic` and `image_size` (Documentation/arch/arm64/booting.rst).
const ARM64_MAGIC: (usize, &[u8]) = (56, b"ARM\x64");
const ARM64_IMAGE_SIZE: usize = 16;

/// The bytes that the kernel of this image takes for itself: its code and its data, unpacked, with what it does not store. None if the
/// image has another form, or does not say.
#[must_use]
pub fn memory_bytes(image: &[u8]) -> Option<u64> {
    let has = |(at, magic): (usize, &[u8])| image.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let size = if has(X86_MAGIC) {
        let version = u16::from_le_bytes(*image.get(X86_VERSION..)?.first_chunk()?);
        if version < X86_WITH_INIT_SIZE {
            return None;
        }
        u64::from(u32::from_le_bytes(*image.get(X86_INIT_SIZE..)?.first_chunk()?))
    } else if has(ARM64_MAGIC) {
        u64::from_le_bytes(*image.get(ARM64_IMAGE_SIZE..)?.first_chunk()?)
    } else {
        return None;
    };
    Some(size).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut image = vec![0; 0x300];
        for (at, bytes) in parts {
            image[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    #[test]
    fn a_kernel_says_what_it_takes_in_the_header_of_its_processor() {
        let size = 0x37e_e000_u32.to_le_bytes();
        let x86 = image(&[X86_MAGIC, (X86_VERSION, &[0x0f, 0x02]), (X86_INIT_SIZE, &size)]);
        assert_eq!(memory_bytes(&x86), Some(0x37e_e000));
        let old = image(&[X86_MAGIC, (X86_VERSION, &[0x09, 0x02]), (X86_INIT_SIZE, &size)]);
        assert_eq!(memory_bytes(&old), None);
        let arm64 = image(&[ARM64_MAGIC, (ARM64_IMAGE_SIZE, &0x2ee_0000_u64.to_le_bytes())]);
        assert_eq!(memory_bytes(&arm64), Some(0x2ee_0000));
        for other in [image(&[]), image(&[ARM64_MAGIC]), b"HdrS".to_vec(), x86[..0x262].to_vec()] {
            assert_eq!(memory_bytes(&other), None);
        }
    }
}
