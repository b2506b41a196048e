//! `iso-builder`: makes NQRust Hypervisor media from an image definition.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(iso_builder::cli::main())
}
