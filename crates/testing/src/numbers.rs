//! Numbers that look random and are the same in every run.

/// Marsaglia's xorshift of 64 bits, from a seed that is not 0.
pub struct Numbers(pub u64);

impl Numbers {
    /// One that is less than `limit`; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}
