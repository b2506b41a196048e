//! The Kubernetes cluster of a node. A question about Kubernetes is answered here.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`configuration`] | the files of the node's distribution: RKE2, K3s or kubeadm; pure |
//! | [`kubeadm`] | running upstream Kubernetes: its steps, etcd, the virtual address |
//! | [`join_query`] | asking a cluster, before an install, whether it will take the node |
//! | `observation` | one look at the node and its cluster, which the next two judge |
//! | [`stages`] | how far a node is on its way into its cluster |
//! | [`health`] | whether a node is good after a restart |
//! | [`kept_version`], [`version_step`], [`version_skew`] | the Kubernetes that a node runs, and moving to another |
//! | [`removed_apis`] | APIs that the cluster uses, and that a later version no longer has |
//! | [`rollout`] | the updates of a cluster's nodes, one after the other |
//! | [`pod_network`] | routes between pods |
//! | `api` | requests to API servers, supervisors and etcd |
//! | [`node_object`], [`membership`], [`node_watch`] | the node's own object in its cluster |
//! | [`images`], [`tokens`], [`certificates`] | container images of the node; secrets for joining; when certificates end |
//! | [`kubernetes`] | files and objects of Kubernetes that are read |

mod api;
pub mod certificates;
pub mod configuration;
pub mod health;
pub mod images;
pub mod join_query;
pub mod kept_version;
pub mod kubeadm;
pub mod kubernetes;
pub mod membership;
pub mod node_object;
pub mod node_watch;
mod observation;
pub mod pod_network;
pub mod removed_apis;
pub mod rollout;
pub mod stages;
pub mod tokens;
pub mod version_skew;
pub mod version_step;
