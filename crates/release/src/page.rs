//! The page of a release: which file to take.

use std::fmt::Write;

use anyhow::Result;
use base::size::ByteSize;

use crate::asset::{Asset, kind_of};

/// The page, in Markdown; `assets` are the files beside it.
pub(crate) fn render(version: &str, assets: &[Asset]) -> Result<String> {
    let mut text = format!(
        "# NQRust Hypervisor {version}\n\n\
         To install a first node, take `nqrust-hypervisor-{version}-amd64.iso`, write it to a USB stick, and start the machine from it.\n\
         `docs/first-node.md` of the sources shows each step. For the OS without Kubernetes take the medium with `minimal` in its name.\n\n\
         `release-notes.md` lists what has changed. Compare what you downloaded with the checksums before you use it:\n\n\
         ```sh\nsha256sum --check --ignore-missing SHA256SUMS\n```\n\n\
         | File | Size | What it is |\n|---|---:|---|\n"
    );
    for asset in assets {
        let (name, size) = (&asset.name, ByteSize::bytes(asset.size));
        writeln!(text, "| `{name}` | {size} | {} |", kind_of(name)?.purpose)?;
    }
    writeln!(text, "| `SHA256SUMS` | | {} |", kind_of("SHA256SUMS")?.purpose)?;
    Ok(text)
}
