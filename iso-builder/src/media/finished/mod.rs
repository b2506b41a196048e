//! Finished media: [`inspect`] shows what one says about itself, [`verify`] checks that it is true. `medium::reader`
//! opens and reads them. [`machines`] tells which machines would come up with one.

#[cfg(test)]
pub(crate) mod built_iso;
pub mod inspect;
pub mod machines;
#[cfg(test)]
mod output_tests;
#[cfg(test)]
mod tampering;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod verify_report;

pub use inspect::InspectCommand;
pub use verify::VerifyCommand;
