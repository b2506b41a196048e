//! The page of a release: which file to take.

use std::fmt::Write;

use anyhow::Result;
use base::size::ByteSize;

use crate::asset::{Asset, kind_of, rank};

/// The page, in Markdown; `assets` are the files beside it.
pub(crate) fn render(version: &str, assets: &[Asset]) -> Result<String> {
    let mut text = format!(
        "# NQRust Hypervisor {version}\n\n\
         To install a first node, take `nqrust-hypervisor-{version}-amd64.iso`, write it to a USB stick, and start the machine from it.\n\
         `docs/tutorials/first-node.md` of the sources shows each step. For the OS without Kubernetes take the medium with `minimal` in its name.\n\n\
         `iso-builder` builds media of your own, and `installer` checks configurations and writes disk images: packages for Debian\n\
         end in `.deb`, archives for other distributions in `.tar.gz`.\n\n\
         `release-notes.md` lists what has changed. Compare what you downloaded with the checksums before you use it:\n\n\
         ```sh\nsha256sum --check --ignore-missing SHA256SUMS\n```\n\n\
         | File | Size | What it is |\n|---|---:|---|\n"
    );
    let mut listed: Vec<_> = assets.iter().collect();
    listed.sort_by_key(|asset| (rank(&asset.name), &asset.name));
    for asset in listed {
        let (name, size) = (&asset.name, ByteSize::bytes(asset.size));
        writeln!(text, "| `{name}` | {size} | {} |", kind_of(name)?.purpose)?;
    }
    writeln!(text, "| `SHA256SUMS` | | {} |", kind_of("SHA256SUMS")?.purpose)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use base::digest::Digest;

    use super::*;

    #[test]
    fn what_most_people_take_is_listed_first() {
        let names = ["a-net-install.iso", "a-vmlinuz", "a.iso", "b.deb", "b.tar.gz"];
        let asset = |name: &str| Asset::new(name.to_owned(), 1, Digest::of(b"x"));
        let assets = names.map(|name| asset(name).unwrap());
        let page = render("1", &assets).unwrap();
        let listed: Vec<_> =
            page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(listed, ["a.iso", "a-net-install.iso", "a-vmlinuz", "b.deb", "b.tar.gz", "SHA256SUMS"]);
    }
}
