//! Where a run belongs, as its caller traces it (DEC-18). The variable reaches the command by itself,
//! as all of the environment does; here it is kept.
use ctrlrun::plan::effect::Labels;

use super::RunArgs;

/// The variable, and, in lower case, the label.
const VARIABLE: &str = "TRACEPARENT";
const LABEL: &str = "traceparent";

/// The marks of an attempt: the caller's own, and the trace that it belongs to.
pub fn labels(args: &RunArgs) -> Labels {
    let mut labels: Labels = args.label.iter().cloned().collect();
    if let Some(parent) = std::env::var(VARIABLE).ok().filter(|text| is_trace_context(text)) {
        labels.entry(LABEL.to_owned()).or_insert(parent);
    }
    labels
}

/// Whether it has the form of a W3C trace context. Nothing else of the environment is ever kept, so
/// that a secret that was put there by mistake must not be either.
fn is_trace_context(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
        && parts.iter().all(|part| hex(part))
        && parts[0] != "ff"
        && parts[1..3].iter().all(|id| id.bytes().any(|byte| byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::is_trace_context;

    #[test]
    fn only_what_has_the_form_of_a_trace_context_is_kept() {
        // DEC-18
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_trace_context(good));
        for bad in [
            "",
            "secret",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-secret",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
        ] {
            assert!(!is_trace_context(bad), "{bad}");
        }
    }
}
