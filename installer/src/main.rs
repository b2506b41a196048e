//! `installer`: installs the NQRust Hypervisor on a machine and keeps the node's configuration applied.

mod package_note;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(installer::commands::main())
}
