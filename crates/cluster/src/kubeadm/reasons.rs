//! Why kubeadm ended: what it printed on standard error, without its warnings and without the log of the libraries in it.

/// The reasons in what kubeadm printed; all of it where no line is one.
pub(super) fn of(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().filter(|line| is_reason(line)).collect();
    if lines.is_empty() { printed.to_owned() } else { lines.join("\n") }
}

fn is_reason(line: &str) -> bool {
    let line = line.trim();
    let other =
        line.is_empty() || line.starts_with("[WARNING ") || line.starts_with("To see the stack trace");
    !other && !is_log(line)
}

/// A line of klog (`k8s.io/klog`, "Log formats"), which begins with the letter of its severity, month and day; or one of zap, as JSON.
fn is_log(line: &str) -> bool {
    if line.starts_with(r#"{"level":"#) {
        return true;
    }
    let Some((head, _)) = line.split_once(' ') else { return false };
    let date = head.strip_prefix(['I', 'W', 'E', 'F']);
    date.is_some_and(|date| date.len() == 4 && date.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_logs_are_no_reasons() {
        let printed = "E1123 17:55:19.552250    1052 remote_runtime.go:1359] \"RuntimeConfig from runtime service failed\"\n\
                       \t[WARNING ContainerRuntimeVersion]: You must update your container runtime\n\
                       {\"level\":\"warn\",\"logger\":\"etcd-client\",\"msg\":\"retrying of unary invoker failed\"}\n\
                       error: error execution phase preflight: couldn't validate the identity of the API Server\n\
                       \t[ERROR Port-10250]: Port 10250 is in use\n\
                       To see the stack trace of this error execute with --v=5 or higher";
        let reasons = "error: error execution phase preflight: couldn't validate the identity of the API Server\n\
                       \t[ERROR Port-10250]: Port 10250 is in use";
        assert_eq!(of(printed), reasons);
        for whole in ["W1123 17:55:19.552250 1 a.go:1] nothing else", "", "Error 1234 happened"] {
            assert_eq!(of(whole), whole);
        }
    }
}
