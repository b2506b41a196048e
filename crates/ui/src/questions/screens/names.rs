//! Host name, name servers, time servers, proxy.

use serde_json::Value;

use crate::answers::Answers;
use crate::fields::{line, take_text};
use crate::toolkit::form::Field;
use model::config::Method;

/// The proxy for both kinds of URLs is asked for once.
const PROXY: [&str; 2] = ["os.environment.HTTP_PROXY", "os.environment.HTTPS_PROXY"];

pub(super) fn fields(answers: &Answers) -> Vec<Field> {
    let management = answers.understood().install.management_interface;
    let dhcp = management.is_none_or(|management| management.method == Method::Dhcp);
    let mut fields = vec![line(answers, "os.hostname", "Host name", "empty: a name is generated")];
    if dhcp {
        fields.push(line(answers, "os.dns_nameservers", "Name servers", "empty: from DHCP"));
    }
    fields.push(line(answers, "os.ntp_servers", "Time servers", "joined by commas"));
    fields.push(line(answers, PROXY[0], "Proxy", "such as http://192.0.2.8:3128"));
    fields.push(line(answers, "os.environment.NO_PROXY", "No proxy for", "hosts, networks"));
    fields
}

/// Takes the value of a field with special rules; returns whether this was one.
pub(super) fn take(field: &Field, answers: &mut Answers) -> bool {
    let text = field.typed().unwrap_or_default();
    if field.id == PROXY[0] {
        let changed = answers.text(PROXY[0]) != text.trim();
        let both = answers.text(PROXY[1]) == answers.text(PROXY[0]);
        take_text(answers, PROXY[0], &text);
        if changed && both {
            take_text(answers, PROXY[1], &text);
        }
        return true;
    }
    if field.id == "os.environment.NO_PROXY" {
        // A list in one text.
        answers.give(&field.id, Some(text.trim()).filter(|text| !text.is_empty()).map(Value::from));
        return true;
    }
    false
}
