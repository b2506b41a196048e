//! The tables of `docs/reference/preflight.md` are made from the registry and the limits; `UPDATE_GOLDEN=1` writes them anew.

use crate::limits::{MachineLimits, Workload, speed};
use crate::{CHECKS, Severity, profile_name};
use model::config::{Profile, Role};

const BEGIN: &str =
    "<!-- Made from crates/preflight/src; UPDATE_GOLDEN=1 cargo test -p preflight writes it anew. -->\n";
const END: &str = "<!-- The end of what is made. -->\n";

fn tables() -> String {
    let mut text =
        "\n| Check | Asks for | Production | Trial | Looks at |\n|---|---|---|---|---|\n".to_owned();
    for check in CHECKS {
        let [production, trial] = [check.levels.production, check.levels.trial].map(Severity::name);
        let off: Vec<_> = check.levels.off_for.iter().map(|role| role.name()).collect();
        let off = if off.is_empty() { String::new() } else { format!(" (off for {})", off.join(", ")) };
        let row = format!(
            "| `{}` | {}{off} | {production} | {trial} | {} |\n",
            check.name, check.title, check.looks_at
        );
        text.push_str(&row);
    }
    text.push_str(
        "\n| A node should have | Processors | Memory | Management cards | Disk, at least | Disk, better |\n",
    );
    text.push_str("|---|---|---|---|---|---|\n");
    use Workload::{Containers, VirtualMachines};
    let kinds = [
        (Role::Default, VirtualMachines, "any role but witness"),
        (Role::Witness, VirtualMachines, "witness"),
        (Role::Default, Containers, "kubeadm"),
    ];
    for (role, workload, word) in kinds {
        for profile in [Profile::Production, Profile::Trial] {
            let MachineLimits { cpus, memory, nic, disk, roomy_disk } =
                MachineLimits::of(role, profile, workload);
            let (profile, nic) = (profile_name(profile), speed(nic));
            let row = format!("| {profile}, {word} | {cpus} | {memory} | {nic} | {disk} | {roomy_disk} |\n");
            text.push_str(&row);
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_page_has_the_checks_of_the_registry() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/preflight.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, [before, BEGIN, &tables(), END, after].concat()).unwrap();
    } else {
        assert_eq!(written, tables(), "UPDATE_GOLDEN=1 cargo test -p preflight writes the tables anew");
    }
}
