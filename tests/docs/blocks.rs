//! The fenced blocks of a page, and the examples in them.

/// One fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// `console` or `text`.
    pub kind: String,
    /// What it shows; empty unless it is run.
    pub commands: Vec<Shown>,
}

/// A command and what the page says that it prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// The line of the page that it stands on, from 1.
    pub line: usize,
    /// What is typed, without the prompt.
    pub typed: String,
    /// What is printed.
    pub prints: Vec<String>,
}

impl Block {
    /// Whether its commands are run.
    pub fn is_run(&self) -> bool {
        self.kind == "console"
    }
}

/// All blocks of a page, or why it cannot be read.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        if !["console", "text"].contains(&kind) {
            let at = at + 1;
            return Err(format!("line {at}: a block is `console` or `text`, not {kind:?}"));
        }
        let inside: Vec<(usize, &str)> =
            lines.by_ref().take_while(|(_, line)| line.trim_start() != "```").collect();
        let mut block = Block { kind: kind.to_owned(), commands: Vec::new() };
        if block.is_run() {
            block.commands = commands(&inside)?;
        }
        found.push(block);
    }
    Ok(found)
}

/// The commands of a block. A line that starts with `> ` and follows a command goes on with it.
fn commands(lines: &[(usize, &str)]) -> Result<Vec<Shown>, String> {
    let mut found: Vec<Shown> = Vec::new();
    for (at, line) in lines {
        let line_number = at + 1;
        if let Some(typed) = line.strip_prefix("$ ") {
            found.push(Shown { line: line_number, typed: typed.to_owned(), prints: Vec::new() });
            continue;
        }
        let Some(last) = found.last_mut() else {
            return Err(format!("line {line_number}: a console block starts with `$ `"));
        };
        match line.strip_prefix("> ") {
            Some(more) if last.prints.is_empty() => {
                last.typed.push('\n');
                last.typed.push_str(more);
            }
            _ => last.prints.push((*line).to_owned()),
        }
    }
    if found.is_empty() {
        return Err("a console block without a command".to_owned());
    }
    Ok(found)
}

#[test]
fn a_page_is_read_block_by_block() {
    let page = "x\n```console\n$ a \\\n> b\nout\n> not typed\n$ c\n```\ny\n```text\n$ d\n```\n";
    let found = blocks(page).unwrap();
    assert_eq!(found.len(), 2);
    let first = &found[0].commands;
    assert_eq!(first.len(), 2);
    assert_eq!((first[0].line, first[0].typed.as_str()), (3, "a \\\nb"));
    assert_eq!(first[0].prints, ["out", "> not typed"]);
    assert_eq!((first[1].line, first[1].prints.len()), (7, 0));
    assert!(!found[1].is_run());
}

#[test]
fn an_example_cannot_be_left_out_quietly() {
    for page in [
        "```\n$ a\n```\n",
        "```sh\na\n```\n",
        "```console,ignore\n$ a\n```\n",
        "```console\nout\n```\n",
        "```console\n```\n",
    ] {
        assert!(blocks(page).is_err(), "{page}");
    }
}
