//! How large a machine has to be for what it runs.

use super::*;
use crate::limits::{MachineLimits, Workload};
use base::size::ByteSize;
use model::config::{Distribution, Role, parse};

#[test]
fn a_node_without_virtual_machines_needs_what_kubeadm_asks_for() {
    let limits = |profile| MachineLimits::of(Role::Default, profile, Workload::Containers);
    assert_eq!((limits(Profile::Production).cpus, limits(Profile::Production).memory), (2, ByteSize::gib(4)));
    assert_eq!((limits(Profile::Trial).cpus, limits(Profile::Trial).memory), (2, ByteSize::gib(2)));
    for (distribution, workload) in [
        (Distribution::Kubeadm, Workload::Containers),
        (Distribution::Rke2, Workload::VirtualMachines),
        (Distribution::K3s, Workload::VirtualMachines),
    ] {
        let text =
            format!("{{install: {{mode: install}}, kubernetes: {{distribution: {}}}}}", distribution.name());
        assert_eq!(PlannedNode::of(&parse(&text, "f").unwrap()).workload, workload);
    }
}
