//! The pages for users say what happens: their examples are run, and their tables are compared.
//!
//! A fenced block marked `console` is run: each line that starts with `$ ` goes to `/bin/sh`, and
//! what it prints is compared with the lines below it. Blocks marked `text` are not run. There is
//! no third kind, so that no example can be left out quietly.
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod compare;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod shell;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    use crate::{blocks, shell};

    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
    }

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap()
    }

    /// The pages whose examples are promises.
    fn pages() -> Vec<String> {
        let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
        for entry in fs::read_dir(root().join("docs")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name.ends_with(".md"), "docs/{name} is not a page");
            pages.push(format!("docs/{name}"));
        }
        pages
    }

    #[test]
    fn every_example_does_what_its_page_says() {
        let mut wrong = Vec::new();
        for page in pages() {
            let text = read(&page);
            let blocks = blocks::blocks(&text).unwrap_or_else(|why| panic!("{page}: {why}"));
            let home = shell::Home::new();
            for block in blocks.iter().filter(|block| block.is_run()) {
                wrong.extend(home.differences(block).into_iter().map(|it| format!("{page}:{it}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_readme_has_an_example_that_is_run() {
        let blocks = blocks::blocks(&read("README.md")).unwrap();
        assert!(blocks.iter().any(|block| block.is_run() && block.commands.len() > 2));
    }

    /// The numbers that start the rows of the tables of a text.
    fn codes(text: &str) -> BTreeSet<u8> {
        text.lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
            .flat_map(|cell| cell.split(", "))
            .filter_map(|code| code.parse().ok())
            .collect()
    }

    /// The part of a page below the heading or clause that starts with `from`.
    fn part(text: &str, from: &str) -> String {
        let (_, below) = text.split_once(from).unwrap();
        let lines = below.lines().skip(1);
        let own = lines.take_while(|line| !line.starts_with("## ") && !line.starts_with("**"));
        own.collect::<Vec<_>>().join("\n")
    }

    /// CLI-3: the table that users read is the one that the specification has, and the codes that
    /// only a command that ran can give.
    #[test]
    fn the_readme_lists_every_exit_code_of_the_specification() {
        let mut expected = codes(&part(&read("spec/cli.md"), "**CLI-3.**"));
        assert!(expected.contains(&76));
        expected.extend([124, 126, 127]);
        let listed = codes(&part(&read("README.md"), "## Exit status"));
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_tests_of_the_readme_are_those_that_ci_runs() {
        let ci = read(".ci/run");
        let command = ci.trim_end().lines().last().unwrap();
        assert!(command.ends_with("cargo test --locked"), "{command}");
        assert!(read("README.md").contains(&format!("\n{command}\n")), "{command}");
    }
}
