//! A node of a cluster of upstream Kubernetes, which kubeadm joins.

pub mod secrets;
