//! What the packages hold (AFT-15). No image is built here: what its file says is read, and what the
//! packages take from the binary is made by it.
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::BINARY;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The instructions of the Dockerfile: name and rest, lines that go on joined.
fn instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let text = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

#[test]
fn the_image_is_built_in_stages_and_runs_as_nobody() {
    // AFT-15
    let all = instructions();
    let known = ["FROM", "RUN", "WORKDIR", "COPY", "ENV", "VOLUME", "USER", "ENTRYPOINT"];
    assert!(all.iter().all(|(name, _)| known.contains(&name.as_str())), "{all:?}");
    let stages: Vec<usize> = (0..all.len()).filter(|at| all[*at].0 == "FROM").collect();
    assert_eq!(stages.len(), 2, "{all:?}");
    for (_, image) in all.iter().filter(|(name, _)| name == "FROM") {
        let (_, tag) = image.split(' ').next().unwrap().split_once(':').unwrap();
        assert!(tag.starts_with(|c: char| c.is_ascii_digit()), "{image}");
    }
    let of = |name: &str| {
        let last = all[stages[1]..].iter().filter(|(found, _)| found == name);
        last.map(|(_, rest)| rest.as_str()).collect::<Vec<_>>()
    };
    // By number: an orchestrator that forbids root cannot read the image's list of users.
    let users = of("USER");
    let (user, group) = users[0].split_once(':').unwrap();
    assert!(users.len() == 1 && user.parse::<u32>().unwrap() > 0 && group == user, "{users:?}");
    assert_eq!(of("ENTRYPOINT"), ["[\"ctrlrun\"]"]);
    assert_eq!(of("VOLUME"), ["/var/lib/ctrlrun"]);
    assert_eq!(of("ENV"), ["XDG_STATE_HOME=/var/lib"]);
    let run = of("RUN").join("\n");
    assert!(run.contains(&format!("-u {user} ")) && run.contains("/var/lib/ctrlrun"), "{run}");
    let copied = of("COPY");
    assert_eq!(copied, ["--from=build /src/target/release/ctrlrun /usr/local/bin/ctrlrun"]);
    // The compiler is the one that the package asks for.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(all[0].1.starts_with(&format!("rust:{}-", version.trim_matches('"'))), "{all:?}");
    let built = all.iter().any(|(_, rest)| rest.starts_with("cargo build --locked --release"));
    assert!(built, "{all:?}");
}

/// What a package takes: from where, to where.
fn assets() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, deb) = manifest.split_once("[package.metadata.deb]").unwrap();
    let (_, list) = deb.split_once("assets = [").unwrap();
    let (list, _) = list.split_once("\n]").unwrap();
    let lines = list.lines().filter(|line| !line.trim().is_empty());
    let parts = |line: &str| line.split('"').map(ToOwned::to_owned).collect::<Vec<_>>();
    lines.map(parts).map(|parts| (parts[1].clone(), parts[3].clone())).collect()
}

#[test]
fn the_debian_package_takes_only_what_is_there() {
    // AFT-12, AFT-14, AFT-15
    let made = tempfile::tempdir().unwrap();
    let pages = root().join("packaging/pages");
    let status = Command::new(&pages).arg(BINARY).arg(made.path()).status().unwrap();
    assert!(status.success());
    for (from, to) in assets() {
        if from == "target/release/ctrlrun" {
            assert_eq!(to, "usr/bin/");
            continue;
        }
        let path = match from.strip_prefix("target/release/package/") {
            Some(inside) => made.path().join(inside),
            None => root().join(&from),
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = match name.strip_prefix('*') {
            None => path.is_file(),
            Some(end) => {
                let all = fs::read_dir(path.parent().unwrap()).unwrap();
                all.filter(|entry| entry.as_ref().unwrap().path().to_str().unwrap().ends_with(end))
                    .count()
                    > 3
            }
        };
        assert!(found, "{from}");
        assert!(to.starts_with("usr/"), "{to}");
    }
    let tos: BTreeSet<String> = assets().into_iter().map(|(_, to)| to).collect();
    for place in [
        "usr/share/man/man1/",
        "usr/share/bash-completion/completions/ctrlrun",
        "usr/share/zsh/vendor-completions/_ctrlrun",
        "usr/share/fish/vendor_completions.d/ctrlrun.fish",
    ] {
        assert!(tos.contains(place), "{place}");
    }
}

#[test]
fn the_scripts_can_be_started() {
    for name in ["deb", "pages", "static"] {
        let path = root().join("packaging").join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{name}");
        let read = Command::new("sh").arg("-n").arg(Path::new(&path)).status().unwrap();
        assert!(read.success(), "{name}");
    }
}
