//! How much is measured.

/// The figures that count, or a short form with small inputs that only shows that the parts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    Short,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, short: T) -> T {
        match self {
            Self::Full => full,
            Self::Short => short,
        }
    }
}
