//! A cluster of upstream Kubernetes with both architectures: a machine with 64-bit Arm joins one that a machine with x86 has created.

use model::architecture::Architecture;
use nqrust_tests::artifacts::scenario_alone;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::Checks;
use nqrust_tests::{paths, secrets, steps};

use super::kubeadm::{KUBECTL, all_ready, boot_all, check, installed_from, run_pod};
use super::machines::Member;

const MEMBERS: [Member; 2] = [Member::new("node-1", "management", 11), Member::arm64("node-2", "worker", 12)];

#[test]
#[ignore = "machines of both architectures with Kubernetes at once: `make soak` runs it"]
fn a_worker_for_arm64_joins_a_cluster_of_kubeadm_for_amd64_and_runs_a_pod() {
    scenario_alone("cluster-both-architectures", |artifacts| {
        let identity = Identity::load()?;
        let amd64 = Medium::built_apart("kubernetes", medium::stage_kubernetes)?;
        let arm64 = Medium::built_with(
            &paths::installer_arm64()?,
            "kubernetes-arm64",
            medium::stage_kubernetes_arm64,
        )?;
        let medium = |architecture| match architecture {
            Architecture::Amd64 => &amd64,
            Architecture::Arm64 => &arm64,
        };
        let (machines, disks) = installed_from(&MEMBERS, &medium, artifacts, &identity)?;
        let booted = boot_all(&machines, &disks, "first-boot", &|machine| machine, (&identity, artifacts))?;
        all_ready(&MEMBERS, &booted, "first-boot", artifacts)?;
        let (_, server) = &booted[0];
        let mut checks = Checks::default();
        for (member, (_, ssh)) in MEMBERS.iter().zip(&booted) {
            check(member, ssh, &mut checks)?;
            let name = member.name;
            let processor = ssh.run("uname -m")?;
            checks.equal(&format!("{name}: the processor"), &*processor, member.architecture.kernel());
            let field = "jsonpath={.status.nodeInfo.architecture}";
            let listed = server.run(&format!("{KUBECTL} get node {name} --output {field}"))?;
            checks.equal(
                &format!("{name}: its architecture in the API"),
                &*listed,
                member.architecture.debian(),
            );
            steps::collect_logs(ssh, artifacts, name)?;
        }
        checks.finish("the nodes of the cluster")?;
        run_pod(server, "pod-on-arm64", "node-2")?;
        for (vm, ssh) in booted {
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}
