//! Prometheus's text format, version 0.0.4, as far as it is needed (OPS-9).
use std::fmt::Write;

/// A series: its labels and its value.
pub type Series<'a> = (&'a [(&'a str, &'a str)], f64);

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Adds a metric that goes up and down. All its series stand together, below its HELP and TYPE.
    pub fn gauge(&mut self, name: &str, help: &str, series: &[Series<'_>]) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in series {
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
        }
    }

    /// The page.
    #[must_use]
    pub fn text(self) -> String {
        self.text
    }
}

/// A label's value: the three characters that would end it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_large_numbers_stay_whole() {
        // OPS-9
        let mut page = Page::default();
        let labels = [("store", "C:\\a \"b\"\nc")];
        page.gauge("x_bytes", "How\nmuch.", &[(&labels, 12_345_678_901.0), (&[], 0.5)]);
        assert_eq!(
            page.text(),
            "# HELP x_bytes How\\nmuch.\n# TYPE x_bytes gauge\n\
             x_bytes{store=\"C:\\\\a \\\"b\\\"\\nc\"} 12345678901\nx_bytes{} 0.5\n"
        );
    }
}
