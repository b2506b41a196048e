//! The cluster that begins with this machine, or that it joins.

use crate::answers::Answers;
use crate::fields::{choice, line, secret};
use crate::toolkit::form::{Choice, Field};
use model::config::{Distribution, Mode, VipMode};

pub(super) fn fields(answers: &Answers) -> Vec<Field> {
    let config = answers.understood();
    if config.install.mode == Mode::Join {
        return vec![
            line(answers, "server_url", "Cluster address", "the VIP or its name"),
            secret(answers, "token", "Token", "F4 shows it"),
        ];
    }
    // With kubeadm the VIP is always fixed, and so is the address of the cluster's name servers among its services.
    let kubeadm = config.kubernetes.distribution() == Distribution::Kubeadm;
    let mut fields = vec![Field::text("", VIP)];
    if !kubeadm {
        let kinds = vec![Choice::new("Fixed"), Choice::new("From a DHCP server")];
        fields.push(choice(answers, "install.vip_mode", "The cluster's own address, the VIP", kinds));
    }
    match config.install.vip_mode.filter(|_| !kubeadm) {
        Some(VipMode::Dhcp) => {
            fields.push(line(
                answers,
                "install.vip_hw_addr",
                "Hardware address",
                "by which DHCP knows the VIP",
            ));
        }
        _ => fields.push(line(answers, "install.vip", "VIP", "free, in the nodes' network")),
    }
    fields.push(secret(answers, "token", "Token", "F6 makes one, F4 shows it"));
    fields.push(line(answers, "install.cluster_pod_cidr", "Network of pods", "empty: 10.52.0.0/16"));
    fields.push(line(answers, "install.cluster_service_cidr", "Network of services", "empty: 10.53.0.0/16"));
    if !kubeadm {
        fields.push(line(answers, "install.cluster_dns", "Cluster DNS", "empty: 10.53.0.10"));
    }
    fields
}

const VIP: &str = "The VIP is one more address in the nodes' network. The cluster answers there, whichever of its servers runs.";

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::sources::{CombinedConfig, Document, SourceKind, combine};

    fn asked(document: &str) -> Vec<String> {
        let document = Document::yaml(SourceKind::Embedded, "f", document.to_owned());
        let found: CombinedConfig = combine(&[document]).unwrap();
        let ids = fields(&Answers::on(&found)).into_iter().map(|field| field.id);
        ids.filter(|id| !id.is_empty()).collect()
    }

    #[test]
    fn what_a_distribution_has_no_choice_in_is_not_asked() {
        let all = [
            "install.vip_mode",
            "install.vip",
            "token",
            "install.cluster_pod_cidr",
            "install.cluster_service_cidr",
            "install.cluster_dns",
        ];
        assert_eq!(asked("kubernetes: {distribution: rke2}"), all);
        assert_eq!(asked("kubernetes: {distribution: kubeadm}"), all[1..5]);
        let joining = "kubernetes: {distribution: kubeadm}\ninstall: {mode: join}";
        assert_eq!(asked(joining), ["server_url", "token"]);
    }
}
