//! What the dependencies ask of those who use them.
use crate::mounted::metadata;

/// Licences that ask for no more than a notice.
const ALLOWED: [&str; 7] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Complaints about packages (name and licence) that ask for more.
pub fn unwelcome(packages: &[(String, Option<String>)]) -> Vec<String> {
    packages
        .iter()
        .filter(|(_, licence)| !licence.as_deref().is_some_and(allowed))
        .map(|(name, licence)| format!("{name}: {}", licence.as_deref().unwrap_or("no licence")))
        .collect()
}

/// Whether an SPDX expression can be met with what is allowed.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> bool {
    let mut met = both(rest);
    while let ["OR", behind @ ..] = *rest {
        *rest = behind;
        met |= both(rest);
    }
    met
}

fn both(rest: &mut &[&str]) -> bool {
    let mut met = single(rest);
    while let ["AND", behind @ ..] = *rest {
        *rest = behind;
        met &= single(rest);
    }
    met
}

fn single(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", inside @ ..] => {
            *rest = inside;
            let met = either(rest);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            met && closed
        }
        [name, "WITH", exception, behind @ ..] => {
            *rest = behind;
            ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, behind @ ..] => {
            *rest = behind;
            ALLOWED.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::tree;

    /// The platform that this test was built for; others' packages need not be here to be read.
    fn platform() -> String {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).arg("-vV").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let host = said.lines().find_map(|line| line.strip_prefix("host: "));
        host.unwrap().to_owned()
    }

    #[test]
    fn every_dependency_asks_for_a_notice_at_most() {
        let metadata = metadata(&["--all-features", "--filter-platform", &platform()]);
        let packages: Vec<(String, Option<String>)> = metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| {
                let name = package["name"].as_str().unwrap().to_owned();
                (name, package["license"].as_str().map(str::to_owned))
            })
            .collect();
        assert!(packages.len() > 10, "no dependencies were found");
        tree::none(&unwelcome(&packages));
    }

    #[test]
    fn an_unwelcome_licence_is_found() {
        for right in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "Unlicense OR MIT",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(allowed(right), "{right}");
        }
        for wrong in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT AND GPL-3.0) OR MPL-2.0",
            "(MIT",
            "MIT Apache-2.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
        ] {
            assert!(!allowed(wrong), "{wrong}");
        }
        assert_eq!(unwelcome(&[("x".to_owned(), None)]).len(), 1);
    }
}
