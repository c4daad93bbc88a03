//! Every Rust file is part of a target that is compiled, and every test target runs.
use std::collections::BTreeSet;
use std::process::Command;

use crate::imports::binary;
use crate::lexer::{Kind, Token, code};
use crate::tree::{Source, attribute_end};

/// A target of this package, as Cargo sees it.
#[derive(Debug, Clone)]
pub struct Target {
    pub kind: String,
    pub root: String,
    /// Whether `cargo test` runs it.
    pub tested: bool,
    /// Whether it needs a feature that is not on.
    pub gated: bool,
}

/// Complaints about files that no target compiles, and about tests that do not run.
pub fn forgotten(sources: &[Source], targets: &[Target]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compiled = BTreeSet::new();
    for target in targets {
        let reached = reached(sources, &target.root);
        for path in &reached {
            let astray = match target.kind.as_str() {
                "lib" => binary(path),
                "bin" => path.starts_with("src/") && !binary(path),
                _ => false,
            };
            if astray {
                wrong.push(format!("{path}: not to be mounted by the {}", target.kind));
            }
        }
        compiled.extend(reached);
        if target.kind == "test" && (!target.tested || target.gated) {
            wrong.push(format!("{}: `cargo test` does not run it", target.root));
        }
    }
    for source in sources.iter().filter(|source| source.is_rust()) {
        if !compiled.contains(&source.path) {
            wrong.push(format!("{}: no target compiles it", source.path));
        }
    }
    wrong
}

/// The files that are mounted from `root`, itself included.
pub fn reached(sources: &[Source], root: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let Some(source) = sources.iter().find(|source| source.path == path) else {
            continue;
        };
        if found.insert(path.clone()) {
            open.extend(mounts(source, path == root));
        }
    }
    found
}

/// The files that a file's `mod x;` lines may mean.
fn mounts(source: &Source, is_root: bool) -> Vec<String> {
    let tokens = code(&source.text);
    let (directory, name) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let own = if is_root || name == "mod.rs" {
        directory.to_owned()
    } else {
        format!("{directory}/{}", name.trim_end_matches(".rs"))
    };
    let mut found = Vec::new();
    let mut inline: Vec<Option<String>> = Vec::new();
    let mut path_attribute = None;
    for (index, token) in tokens.iter().enumerate() {
        if let Some(end) = attribute_end(&tokens, index) {
            path_attribute = path_of(&tokens[index..end]).or(path_attribute);
        }
        let named = token.is("mod") && tokens.get(index + 1).is_some_and(|t| t.kind == Kind::Word);
        let follows = tokens.get(index + 2);
        if token.is("{") {
            let opener = index.checked_sub(2).map(|before| &tokens[before..index]);
            let module = opener.filter(|pair| pair[0].is("mod"));
            inline.push(module.map(|pair| pair[1].text.clone()));
        } else if token.is("}") {
            inline.pop();
            path_attribute = None;
        } else if named && follows.is_some_and(|mark| mark.is(";")) {
            let child = &tokens[index + 1].text;
            if let Some(path) = path_attribute.take() {
                found.push(normal(&format!("{directory}/{path}")));
            } else {
                let mut base = own.clone();
                for module in inline.iter().flatten() {
                    base = format!("{base}/{module}");
                }
                found.push(normal(&format!("{base}/{child}.rs")));
                found.push(normal(&format!("{base}/{child}/mod.rs")));
            }
        } else if token.is(";") {
            path_attribute = None;
        }
    }
    found
}

/// The path that `#[path = "…"]` names.
fn path_of(attribute: &[Token]) -> Option<String> {
    let is_path = attribute.get(2).is_some_and(|token| token.is("path"));
    let value = attribute.get(4).filter(|_| is_path)?;
    Some(value.text.trim_matches('"').to_owned())
}

/// `a/../b` is `b`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// What `cargo metadata` says of this package, without asking any network.
pub fn metadata(more: &[&str]) -> serde_json::Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The targets of the fuzzing, which is a package of its own: what `path` names in its manifest.
fn fuzzed() -> Vec<Target> {
    let place = format!("{}/fuzz/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    let manifest: toml::Table = std::fs::read_to_string(place).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap();
    let paths = bins.iter().chain([&manifest["lib"]]).map(|it| it["path"].as_str().unwrap());
    let target = |path| Target {
        kind: "fuzz".to_owned(),
        root: format!("fuzz/{path}"),
        tested: false,
        gated: false,
    };
    paths.map(target).collect()
}

fn targets() -> Vec<Target> {
    let root = format!("{}/", env!("CARGO_MANIFEST_DIR"));
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().unwrap();
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
    targets
        .map(|target| Target {
            kind: target["kind"][0].as_str().unwrap().to_owned(),
            root: target["src_path"].as_str().unwrap().trim_start_matches(&root).to_owned(),
            tested: target["test"].as_bool().unwrap(),
            gated: target["required-features"].is_array(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn no_file_is_forgotten() {
        let targets = [targets(), fuzzed()].concat();
        assert!(targets.iter().any(|target| target.kind == "test"));
        tree::none(&forgotten(&tree::all(), &targets));
    }

    fn target(kind: &str, root: &str) -> Target {
        Target { kind: kind.to_owned(), root: root.to_owned(), tested: true, gated: false }
    }

    #[test]
    fn a_file_that_nobody_mounts_is_found() {
        let sources = [
            Source::new("src/lib.rs", "pub mod plan; // mod lost;"),
            Source::new("src/plan/mod.rs", "mod a; mod tests { mod deep; }"),
            Source::new("src/plan/a.rs", "mod b;"),
            Source::new("src/plan/a/b.rs", ""),
            Source::new("src/plan/tests/deep.rs", ""),
            Source::new("src/plan/lost.rs", ""),
            Source::new("src/main.rs", "#[path = \"../verify/mod.rs\"] mod verify; mod cli;"),
            Source::new("src/cli/mod.rs", ""),
            Source::new("verify/mod.rs", ""),
            Source::new("tests/run.rs", "mod common;"),
            Source::new("tests/common/mod.rs", ""),
            Source::new("tests/common/lost.rs", ""),
            Source::new("tests/deeper/lost.rs", ""),
        ];
        let targets = [
            target("lib", "src/lib.rs"),
            target("bin", "src/main.rs"),
            target("test", "tests/run.rs"),
        ];
        let expected = [
            "src/plan/lost.rs: no target compiles it",
            "tests/common/lost.rs: no target compiles it",
            "tests/deeper/lost.rs: no target compiles it",
        ];
        assert_eq!(forgotten(&sources, &targets), expected);
    }

    #[test]
    fn a_test_that_does_not_run_is_found() {
        let sources = [Source::new("tests/run.rs", "")];
        let mut off = target("test", "tests/run.rs");
        off.tested = false;
        assert_eq!(forgotten(&sources, &[off]).len(), 1);
        let mut gated = target("test", "tests/run.rs");
        gated.gated = true;
        assert_eq!(forgotten(&sources, &[gated]).len(), 1);
    }

    #[test]
    fn a_library_that_mounts_its_face_is_found() {
        let sources = [
            Source::new("src/lib.rs", "mod cli;"),
            Source::new("src/main.rs", "mod store;"),
            Source::new("src/cli/mod.rs", ""),
            Source::new("src/store/mod.rs", ""),
        ];
        let targets = [target("lib", "src/lib.rs"), target("bin", "src/main.rs")];
        assert_eq!(forgotten(&sources, &targets).len(), 2);
    }
}
