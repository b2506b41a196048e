//! The words of enums in documents and messages.

/// Gives an enum without fields its list `ALL`, the `name` of each variant, and `of_name`, the variant of a name, from one
/// table that must have every variant.
#[macro_export]
macro_rules! names {
    ($enum:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $enum {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            #[must_use]
            pub fn of_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
