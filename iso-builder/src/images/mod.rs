//! The image store: container images built, collected and prepared for the nodes' containerd.
