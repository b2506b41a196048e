//! Crashes of the kernel: at each start [`load`] hands the running kernel a second one, which starts in reserved memory where the first
//! one crashes. Its initrd is that of the slot without what the machine does not need ([`initrd_part`]); [`dump`] runs in it, writes
//! the dump to the persistent partition, and the machine restarts.

pub mod dump;
mod initrd_part;
pub mod load;
