//! `installer update reset`: stores the request, and starts the recovery system, which carries it out.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::restart::restart;
use super::this_node;
use base::failure::{Class, Failure};
use base::files::read_text;
use base::program::Context;
use cluster::membership::{Membership, membership};
use model::boot::Slot;
use node::pending_reset::{PendingReset, ResetLevel};
use node::recovery::reset::follow;
use node::update::{UpdateLock, UpdatedNode};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResetRequest {
    pub(crate) level: ResetLevel,
    /// Even if the node is a member of its cluster.
    pub(crate) force: bool,
    /// Without a question.
    pub(crate) yes: bool,
    pub(crate) reboot: bool,
}

/// Asks for a reset of this node, and restarts it into the recovery system.
pub(crate) fn reset(request: ResetRequest, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, Duration::ZERO)?;
    let mut node = UpdatedNode::read(root)?;
    if node.slots.slot(Slot::Recovery).release().is_none() {
        let what = "the recovery system, which makes the reset, has no commit mark or is damaged";
        return Err(Failure::new(Class::Hardware, what)
            .hint("A good boot with both slots good writes it again; see `installer update status`.")
            .into());
    }
    let pending = follow(PendingReset::read(root).as_ref(), request.level)?;
    let name = hostname(root)?;
    if node.slots.running != Slot::Recovery && !request.force {
        let config = this_node(&context.progress)?.config;
        left(&membership(root, &config, &name), &name)?;
    }
    if !request.yes {
        confirm(request.level, &name, context)?;
    }
    pending.write(root)?;
    if let Err(error) = node.start_once(Slot::Recovery) {
        // A forgotten request must not erase the node at some later start.
        if !pending.has_begun() {
            PendingReset::clear(root)?;
        }
        return Err(error);
    }
    context.tell("reset", "The next start is that of the recovery system, which makes the reset.");
    restart(request.reboot, context)
}

/// Calls off a reset that has not begun.
pub(crate) fn cancel_reset(context: &Context) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, Duration::ZERO)?;
    let mut node = UpdatedNode::read(root)?;
    match PendingReset::read(root) {
        None => context.tell("reset", "No reset is asked for."),
        Some(pending) if pending.is_under_way() => {
            let what = format!("the reset of level {} has begun", pending.level.as_str());
            return Err(Failure::new(Class::Hardware, what)
                .hint("Complete it: restart, and the recovery system goes on with it.")
                .into());
        }
        Some(_) => {
            // In this order, so that the recovery system never starts without a request.
            node.start_as_usual()?;
            PendingReset::clear(root)?;
            context.tell("reset", "The reset is called off.");
        }
    }
    Ok(())
}

fn hostname(root: &Path) -> Result<String> {
    Ok(read_text(&root.join("proc/sys/kernel/hostname"))?.trim().to_owned())
}

/// Fails while the cluster has the node, or may have it.
fn left(membership: &Membership, name: &str) -> Result<(), Failure> {
    let (what, why) = match membership {
        Membership::None => return Ok(()),
        Membership::Member => {
            ("this node is still a member of its cluster", format!("the API server has a node {name}"))
        }
        Membership::Unknown(why) => {
            ("it is not known whether this node is still a member of its cluster", why.clone())
        }
    };
    Err(Failure::new(Class::Hardware, what).because(why).hint(format!(
        "Take it out first, on another server: kubectl drain {name} --ignore-daemonsets --delete-emptydir-data; \
        kubectl delete node {name}; for a server of kubeadm also: etcdctl member remove. Or reset it all the same: --force"
    )))
}

fn confirm(level: ResetLevel, name: &str, context: &Context) -> Result<()> {
    let lost = match level {
        ResetLevel::Config => {
            "the node document, its accounts, networks and secrets, and the host keys of SSH"
        }
        ResetLevel::State => {
            "container images, membership in the cluster, logs, home directories: all of /var"
        }
        ResetLevel::Full => "the data of virtual machines on the data volume, and all of /var",
    };
    if !io::stdin().is_terminal() {
        let what = format!("a reset of level {} needs a confirmation", level.as_str());
        return Err(Failure::new(Class::Invalid, what)
            .because(format!("it erases {lost}"))
            .hint("Start it on a terminal, or give it --yes.")
            .into());
    }
    context.tell("reset", &format!("This erases {lost}. To go on, type the name of this node, {name}:"));
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed)?;
    if typed.trim() == name {
        return Ok(());
    }
    Err(Failure::new(Class::Cancelled, "the name of the node was not typed; nothing has changed").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_told_how_to_leave() {
        left(&Membership::None, "node-a").unwrap();
        for membership in [Membership::Member, Membership::Unknown("no answer".into())] {
            let failure = left(&membership, "node-a").unwrap_err();
            assert_eq!(failure.class(), Class::Hardware);
            let told = base::failure::render(&failure.into());
            assert!(told.contains("kubectl delete node node-a") && told.contains("--force"), "{told}");
        }
    }
}
