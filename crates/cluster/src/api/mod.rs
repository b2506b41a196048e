//! Requests to the servers of a cluster and to the services of this node.
//!
//! | Module | Whom it asks, and with which credentials |
//! |---|---|
//! | [`http`] | the one client: trust, certificate, timeouts, size of an answer, errors |
//! | [`kubelet`] | the API server, with the access in a kubeconfig |
//! | [`etcd`] | the members of etcd, with the certificates of this node |
//! | [`open`] | pages that need no credentials |
//!
//! `join` asks before the node has any access, and decides for each server anew what it trusts. What an administrator does to
//! nodes goes through the program `kubectl` (`kubeadm::kubectl`, `rollout::admin`): it drains nodes, and it takes every kind of
//! access that a kubeconfig can name, tokens and helper programs too.

pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod kubelet;
pub(crate) mod open;
#[cfg(test)]
mod tests;
