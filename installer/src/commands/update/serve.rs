//! `installer update serve`: gives the fetched release to other nodes.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::program::Context;
use machine::trust_store;
use node::update::fetched;
use node::update::serve::{ServedRelease, serve};
use trust::ReleaseTrust;

use super::offer::containerd;
use super::source::OpenedRelease;
use super::this_node;

/// Serves the release that was fetched to other nodes.
pub(crate) fn serve_fetched(listen: SocketAddr, allow_unsigned: bool, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let Some((directory, digest)) = fetched(root) else {
        return Err(Failure::new(Class::Invalid, "no release was fetched")
            .hint("Fetch it first: installer update fetch --from MEDIUM")
            .into());
    };
    let store = trust_store::of_node(&this_node(&context.progress)?)?.allowing_unsigned(allow_unsigned);
    let OpenedRelease { release, trust, .. } = OpenedRelease::fetched(root, None, &store)?;
    let (name, version) = (release.name.clone(), release.version.clone());
    if trust.needs_warning() {
        context.progress.warn("serve", &format!("{name} {version} is {trust}"));
    }
    // Another node takes an unsigned release over http only by its digest.
    let named = match trust {
        ReleaseTrust::Signed(_) => String::new(),
        ReleaseTrust::Unsigned(_) => format!(" --sha256 {digest}"),
    };
    let containerd = containerd(&release);
    let served = ServedRelease::new(directory, digest, (*release).clone(), containerd);
    serve(served, listen, &context.progress, &Cancel::on_signals(), |at| {
        let port = at.port();
        let told = format!(
            "{name} {version} is served on port {port}. On another node: installer update fetch --from http://ADDRESS-OF-THIS-NODE:{port}{named}"
        );
        context.tell("serve", &told);
    })
}
