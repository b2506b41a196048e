//! The machine, and the mode of the install.

use super::super::ConversationFacts;
use crate::answers::Answers;
use crate::fields::choice;
use crate::toolkit::form::{Choice, Field};
use machine::keyboard::DEFAULT;
use model::config::Mode;

pub(super) fn fields(answers: &Answers, facts: &ConversationFacts) -> Vec<Field> {
    let modes = vec![
        Choice::new("Create a new cluster").with("This machine becomes its first node."),
        Choice::new("Join a cluster").with("You need the cluster's address and its token."),
        Choice::new("Install the operating system only").with("It does not join or start a cluster."),
    ];
    let mut fields = vec![
        Field::text("This machine", &machine(facts)),
        choice(answers, "install.mode", "What should it become?", modes),
    ];
    if answers.understood().install.mode == Mode::Join {
        let roles = vec![
            Choice::new("Default: a worker that may be promoted to run the control plane"),
            Choice::new("Management: runs the control plane from the beginning"),
            Choice::new("Worker: runs virtual machines, never the control plane"),
            Choice::new("Witness: votes in etcd and runs nothing else; needs no data disk"),
        ];
        fields.push(choice(answers, "install.role", "Role of the node", roles));
    }
    let mut help = KEYS.to_owned();
    if !facts.keyboards.is_empty() {
        let now = Some(answers.text("os.keyboard")).filter(|name| !name.is_empty());
        let now = now.as_deref().unwrap_or(DEFAULT);
        help.push_str(&format!("\nF2 chooses the layout of the keyboard; now it is {now}."));
    }
    if facts.can_help {
        help.push_str(&format!("\n{HELP}"));
    }
    fields.push(Field::text("", &help));
    fields
}

const KEYS: &str =
    "No function keys? Ctrl and a letter do the same: F2 Y, F3 D, F4 T, F5 R, F6 F, F7 O, F8 N, F9 P, F10 G.";
const HELP: &str = "F9 opens help access: a login to this system, for support.";

/// Disks and network cards, and problems for an install.
fn machine(facts: &ConversationFacts) -> String {
    let disks = facts.inventory.disks.iter().filter(|disk| !disk.optical && !disk.boot_medium);
    let sizes: Vec<_> = disks.map(|disk| disk.size.to_string()).collect();
    let linked = facts.inventory.nics.iter().filter(|nic| nic.carrier == Some(true)).count();
    let (disks, nics) = (sizes.len(), facts.inventory.nics.len());
    let plural =
        |count: usize, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    let listed = if sizes.is_empty() { String::new() } else { format!(" ({})", sizes.join(", ")) };
    let hardware = &facts.hardware;
    let mut text = format!(
        "{hardware}{}{}{listed}; {}, {linked} of them with a link.",
        if hardware.is_empty() { "" } else { ".\n" },
        plural(disks, "disk"),
        plural(nics, "network card")
    );
    if disks == 0 {
        text.push_str(
            "\nNo disk was found to install on. Check cables and the controller's settings; F5 looks again.",
        );
    }
    if nics == 0 {
        text.push_str("\nNo network card was found that this system knows.");
    } else if linked == 0 {
        text.push_str("\nNo network card has a link. Check cables and the switch; F5 looks again.");
    }
    text
}
