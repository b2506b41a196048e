//! `installer`: installs the NQRust Hypervisor on a machine and keeps the node's configuration applied.

use std::process::ExitCode;

base::package_note!("installer");

fn main() -> ExitCode {
    ExitCode::from(installer::commands::main())
}
