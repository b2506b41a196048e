//! `installer update serve`: gives the release of this node to other nodes, and to machines that have no system.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::files::read_text;
use base::program::Context;
use machine::network::exposed::exposed_addresses;
use machine::paths::below;
use machine::trust_store;
use model::boot::{BootParameters, Slot};
use node::update::release_files::release_files;
use node::update::serve::{ServedRelease, serve};
use node::update::{NodeSlots, fetched};
use trust::{ReleaseTrust, TrustStore};

use super::offer::containerd;
use super::source::OpenedRelease;
use super::this_node;

/// What is served, and where.
#[derive(Debug)]
pub(crate) struct ServeRequest {
    pub(crate) listen: SocketAddr,
    pub(crate) allow_unsigned: bool,
    /// Where the installers of machines that boot from this node get their configuration.
    pub(crate) config_url: Option<String>,
}

/// Serves the release that was fetched, else the one that runs.
pub(crate) fn serve_release(request: ServeRequest, context: &Context) -> Result<()> {
    let ServeRequest { listen, allow_unsigned, config_url } = request;
    let (root, progress, cancel) = (Path::new("/"), &context.progress, Cancel::on_signals());
    let node = this_node(progress)?;
    let store = trust_store::of_node(&node)?.allowing_unsigned(allow_unsigned);
    let (slots, opened) = open(root, &store)?;
    let OpenedRelease { release, trust, .. } = opened;
    let product = format!("{} {}", release.name, release.version);
    if trust.needs_warning() {
        progress.warn("serve", &format!("{product} is {trust}"));
    }
    // Another node takes an unsigned release over http only by its digest.
    let named = match trust {
        ReleaseTrust::Signed(_) => String::new(),
        ReleaseTrust::Unsigned(_) => format!(" --sha256 {}", release.digest()),
    };
    let files = release_files(root, slots.as_ref(), &release, progress, &cancel)?;
    let served = ServedRelease::new(files, containerd(&release), config_url)?;
    let bootable = served.is_bootable();
    warn_of_lacking(&served, &product, context);
    serve(served, listen, progress, &cancel, |at| {
        let exposed = exposed_addresses(at, &node.config);
        if !exposed.is_empty() {
            let told = format!(
                "port {} is open on {}, outside the management network; --listen ADDRESS:PORT opens it on one address",
                at.port(),
                exposed.join(", ")
            );
            progress.warn("serve", &told);
        }
        let url = format!("http://ADDRESS-OF-THIS-NODE:{}", at.port());
        context.tell(
            "serve",
            &format!(
                "{product} is served on port {}. On another node: installer update fetch --from {url}{named}",
                at.port()
            ),
        );
        if bootable {
            context
                .tell("serve", &format!("Machines without a system boot its installer from {url}/boot.ipxe"));
        }
    })
}

/// The slots of this node, if they are known, and the release that is served.
fn open(root: &Path, store: &TrustStore) -> Result<(Option<NodeSlots>, OpenedRelease)> {
    let line = read_text(&below(root, "/proc/cmdline"))?;
    let slots = match BootParameters::parse(&line)? {
        Some(installed) => NodeSlots::find(root, &installed),
        None => Err(Failure::new(Class::Hardware, "this is not an installed node").into()),
    };
    if fetched(root).is_some() {
        return Ok((slots.ok(), OpenedRelease::fetched(root, None, store)?));
    }
    let slots = slots?;
    if slots.running == Slot::Recovery {
        return Err(Failure::new(Class::Hardware, "the recovery system serves no release")
            .hint("Start a slot of the node, or serve from another node.")
            .into());
    }
    let opened = OpenedRelease::in_slot(slots.slot(slots.running).source()?, store)?;
    Ok((Some(slots), opened))
}

fn warn_of_lacking(served: &ServedRelease, product: &str, context: &Context) {
    let lacking = served.lacking();
    let warn = |text: String| context.progress.warn("serve", &text);
    if let Some(path) = &lacking.configuration {
        warn(format!(
            "machines cannot boot from this node: {product} was built with an install configuration ({path}), which nodes do not keep"
        ));
    } else if !lacking.install.is_empty() {
        warn(format!(
            "machines cannot boot from this node: it lacks {}. Get them: installer update fetch --from MEDIUM",
            lacking.install.join(", ")
        ));
    }
    if lacking.blobs > 0 {
        warn(format!(
            "{} blobs of container images are not on this node: machines and nodes that need them have to reach the registries of the images",
            lacking.blobs
        ));
    }
}
