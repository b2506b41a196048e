//! `iso-builder`: makes NQRust Hypervisor media from an image definition.

use std::process::ExitCode;

base::package_note!("iso-builder");

fn main() -> ExitCode {
    ExitCode::from(iso_builder::cli::main())
}
