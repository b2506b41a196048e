//! The cluster that begins with this machine, or that it joins.

use crate::ui::answers::Answers;
use crate::ui::fields::{choice, line, secret};
use crate::ui::toolkit::form::{Choice, Field};
use model::config::{Mode, VipMode};

pub(super) fn fields(answers: &Answers) -> Vec<Field> {
    let config = answers.understood();
    if config.install.mode == Mode::Join {
        return vec![
            line(answers, "server_url", "Cluster address", "the VIP or its name"),
            secret(answers, "token", "Token", "F4 shows it"),
        ];
    }
    let kinds = vec![Choice::new("Fixed"), Choice::new("From a DHCP server")];
    let mut fields = vec![choice(answers, "install.vip_mode", "The cluster's own address, the VIP", kinds)];
    match config.install.vip_mode {
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
    fields.push(line(answers, "install.cluster_dns", "Cluster DNS", "empty: 10.53.0.10"));
    fields
}
