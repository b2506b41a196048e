//! Types of texts that have been checked: a value of such a type has passed the check of its format.

use crate::format::FormatFault;

/// Text that does not pass the check of its type.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} {fault}")]
pub struct TextError {
    text: String,
    fault: String,
}

impl TextError {
    /// The error about `text`, which a check found to be at fault.
    #[must_use]
    pub fn new(text: &str, fault: FormatFault) -> Self {
        Self { text: text.to_owned(), fault: fault.message }
    }
}

/// A type whose values are texts that have passed a check. Its JSON Schema names a format, or says
/// `pattern` and the regular expression of the texts. `shown by` names the function whose result is displayed in place of
/// the text.
#[macro_export]
macro_rules! checked_text {
    ($(#[$meta:meta])* $name:ident, $format:literal, $check:path) => {
        $crate::checked_text! { $(#[$meta])* $name, "format" = $format, $check }
    };
    ($(#[$meta:meta])* $name:ident, pattern $pattern:literal, $check:path) => {
        $crate::checked_text! { $(#[$meta])* $name, "pattern" = $pattern, $check }
    };
    ($(#[$meta:meta])* $name:ident, $format:literal, $check:path, shown by $shown:path) => {
        $crate::checked_text! { $(#[$meta])* $name, "format" = $format, $check, $shown }
    };
    ($(#[$meta:meta])* $name:ident, $keyword:literal = $value:literal, $check:path) => {
        $crate::checked_text! { $(#[$meta])* $name, $keyword = $value, $check, ::std::convert::identity::<&str> }
    };
    ($(#[$meta:meta])* $name:ident, $keyword:literal = $value:literal, $check:path, $shown:path) => {
        $(#[$meta])*
        #[derive(
            Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::text::TextError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.to_owned())),
                    Err(fault) => Err($crate::text::TextError::new(text, fault)),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::text::TextError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl ::std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($shown(self.0.as_str()).as_ref())
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", $keyword: $value })
            }
        }
    };
}
