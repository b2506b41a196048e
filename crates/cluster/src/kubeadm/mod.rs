//! `installer kubeadm`: makes the node a member of its cluster, in steps that go on where they were cut off.
//!
//! The unit of this command runs at every boot, and again when it has failed. [`steps`] says what each part of a cluster needs to do,
//! [`state`] what is done already, [`documents`] adds the secrets to kubeadm's documents, [`objects`] gives the cluster what its
//! first node has for it, [`vip`] lets a node with a control plane answer for the virtual address,
//! [`servers`] tells it whether others could. A step that was cut off is undone and
//! done again; what is done is never done twice. Nothing undoes a control plane that has begun to serve: it may hold the only copy of
//! the cluster.

mod address;
mod clock;
mod documents;
mod etcd;
mod kubectl;
mod member;
mod name_servers;
mod objects;
mod reasons;
mod run;
pub mod servers;
pub mod snapshot;
mod state;
mod steps;
#[cfg(test)]
mod tests;
pub mod upgrade;
mod vip;

pub(crate) use self::kubectl::kubectl;
pub use self::run::run;
