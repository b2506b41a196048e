//! Files and objects of Kubernetes, as far as an install and a node read them. Each reader asks for what it needs; what they read is
//! described here once.

pub mod kubeconfig;
pub mod node;
