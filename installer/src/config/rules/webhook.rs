//! Calls to other systems.

use super::Finding;
use crate::config::InstallConfig;
use crate::config::walk::nearest;

/// What a call can tell.
const VARIABLES: [&str; 4] = ["Hostname", "MACAddr", "IPAddrV4", "IPAddrV6"];

/// Templates name variables that there are.
pub(super) fn templates(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, hook) in config.install.webhooks.iter().enumerate() {
        for (key, text) in [("url", &*hook.url), ("payload", &*hook.payload)] {
            if let Some((message, suggestion)) = fault(text) {
                let path = format!("install.webhooks[{index}].{key}");
                findings.push(Finding { suggestion, ..Finding::new(path, "invalid-template", message) });
            }
        }
    }
    findings
}

/// The first thing that is wrong with a template, and what to write instead.
fn fault(template: &str) -> Option<(String, Option<String>)> {
    let mut rest = template;
    while let Some((_, after)) = rest.split_once("{{") {
        let Some((inside, behind)) = after.split_once("}}") else {
            return Some(("a `{{` has no `}}`".to_owned(), None));
        };
        rest = behind;
        let name = inside.trim().strip_prefix('.').unwrap_or_default();
        if !VARIABLES.contains(&name) {
            let known = VARIABLES.map(|name| format!("{{{{.{name}}}}}")).join(", ");
            let near = nearest(inside.trim().trim_start_matches('.'), VARIABLES.into_iter());
            let message = format!("a variable is none of {known}");
            return Some((message, near.map(|name| format!("{{{{.{name}}}}}"))));
        }
    }
    None
}

/// Nobody is called twice for one event.
pub(super) fn each_once(config: &InstallConfig) -> Vec<Finding> {
    let hooks: Vec<_> = config
        .install
        .webhooks
        .iter()
        .map(|hook| (hook.event, hook.method, &hook.url, &hook.payload))
        .collect();
    let message = "the same call stands here already";
    let repeated = super::repeated(&hooks);
    repeated
        .map(|(later, _)| Finding::new(format!("install.webhooks[{later}]"), "duplicate-webhook", message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_with_an_unknown_variable_is_answered_with_the_nearest() {
        for text in ["", "no template", "{{.Hostname}} and {{ .IPAddrV4 }}", "}} alone"] {
            assert_eq!(fault(text), None, "{text}");
        }
        assert_eq!(fault("{{.HostName}}").unwrap().1.as_deref(), Some("{{.Hostname}}"));
        assert_eq!(fault("{{Hostname}}").unwrap().1.as_deref(), Some("{{.Hostname}}"));
        for text in ["{{", "{{.Hostname", "{{}}", "{{.Hostname}} {{.Serial}}"] {
            assert!(fault(text).is_some(), "{text}");
        }
    }
}
