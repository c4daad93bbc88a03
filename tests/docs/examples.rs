//! The examples are run, each in a copy of its folder with an empty home.
use std::fs;
use std::path::{Path, PathBuf};

use crate::blocks::{Block, Shown};
use crate::shell::Home;

fn examples() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[test]
fn every_example_prints_what_its_folder_says() {
    let folders = examples();
    assert!(folders.len() > 2);
    let mut wrong = Vec::new();
    for folder in folders {
        let home = Home::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, home.own().join(path.file_name().unwrap())).unwrap();
        }
        let expected = fs::read_to_string(folder.join("expected")).unwrap();
        let prints = expected.lines().map(str::to_owned).collect();
        let typed = "sh run".to_owned();
        let commands = vec![Shown { line: 1, typed, prints }];
        let differences = home.differences(&Block { kind: "console".to_owned(), commands });
        wrong.extend(differences.into_iter().map(|it| format!("{}: {it}", folder.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_is_in_the_list_of_them() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/README.md");
    let list = fs::read_to_string(list).unwrap();
    for folder in examples() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(list.contains(&format!("| `{name}` |")), "{name}");
    }
}
