//! A home of its own in which the examples of one page are run.
use std::fs::{File, create_dir, read};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::blocks::{Block, Shown};
use crate::compare::agrees;

/// The longest that one block may take.
const BLOCK_MAX: Duration = Duration::from_secs(60);

/// Where the pages say that home is.
const HOME_ON_PAGES: &str = "/home/me";

/// Said where temporary files lie on a file system that does not outlive its machine or container
/// (STO-6): a fact of the machine that runs this test, and not of the page.
const FLEETING: &str = "ctrlrun: warning: this store lies on ";

/// A directory that holds a home and a PATH with the binary of this build.
#[derive(Debug)]
pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    /// A new and empty one.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        create_dir(directory.path().join("home")).unwrap();
        create_dir(directory.path().join("bin")).unwrap();
        let binary = directory.path().join("bin/ctrlrun");
        symlink(env!("CARGO_BIN_EXE_ctrlrun"), binary).unwrap();
        Home { directory }
    }

    /// Its home directory.
    pub fn own(&self) -> PathBuf {
        self.path().join("home")
    }

    fn path(&self) -> PathBuf {
        // A temporary directory behind a link would be printed under its other name.
        self.directory.path().canonicalize().unwrap()
    }

    /// Runs the commands of a block in one shell; says, by line, where its page is wrong.
    pub fn differences(&self, block: &Block) -> Vec<String> {
        let printed = self.run(&block.commands);
        let mut wrong = Vec::new();
        for (shown, printed) in block.commands.iter().zip(printed) {
            let lines = printed.lines().filter(|line| !line.starts_with(FLEETING));
            let printed: Vec<String> = lines.map(str::to_owned).collect();
            if !agrees(&shown.prints, &printed) {
                let (line, typed) = (shown.line, &shown.typed);
                let (page, real) = (shown.prints.join("\n    "), printed.join("\n    "));
                wrong.push(format!(
                    "{line}: $ {typed}\n  the page says:\n    {page}\n  it prints:\n    {real}"
                ));
            }
        }
        wrong
    }

    /// What each command prints, on both streams.
    fn run(&self, commands: &[Shown]) -> Vec<String> {
        let path = self.path();
        let home = path.join("home");
        let mark = format!("--- end of {} ---", uuid::Uuid::now_v7());
        let mut script = String::new();
        for shown in commands {
            // The status is handed on over the mark, so that a page can show `echo $?`.
            let typed = &shown.typed;
            script += &format!("{typed}\nkept=$?; printf '%s' '{mark}'; (exit $kept)\n");
        }
        // Both streams go to one file, each write behind the last, as on a terminal.
        let output = path.join("output");
        let file = File::options().create(true).append(true).open(&output).unwrap();
        file.set_len(0).unwrap();
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &script])
            .current_dir(&home)
            .env_clear()
            .env("HOME", &home)
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", path.join("bin").display()))
            .env("USER", "me")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0);
        let mut child = shell.spawn().unwrap();
        let id = child.id();
        let (ended, waiting) = channel();
        let waiter = thread::spawn(move || {
            let status = child.wait();
            // Nobody listens any more if it took too long.
            drop(ended.send(status));
        });
        if waiting.recv_timeout(BLOCK_MAX).is_err() {
            let group = format!("-{id}");
            Command::new("kill").args(["-KILL", "--", &group]).status().unwrap();
            waiter.join().unwrap();
            panic!("line {}: its block did not end in {BLOCK_MAX:?}", commands[0].line);
        }
        waiter.join().unwrap();
        let printed = String::from_utf8_lossy(&read(&output).unwrap())
            .replace(home.to_str().unwrap(), HOME_ON_PAGES);
        let mut parts: Vec<String> = printed.split(&mark).map(str::to_owned).collect();
        parts.pop();
        // A command that ends its shell takes those behind it along.
        assert_eq!(parts.len(), commands.len(), "a command ended the shell: {printed}");
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::Home;
    use crate::blocks::blocks;

    fn differences(page: &str) -> usize {
        let home = Home::new();
        let blocks = blocks(page).unwrap();
        blocks.iter().map(|block| home.differences(block).len()).sum()
    }

    #[test]
    fn a_page_that_is_right_has_no_differences() {
        let page = "```console\n$ echo hi; echo ho >&2\nhi\nho\n$ (exit 3)\n$ echo $?\n3\n\
            $ x=1\n$ printf $x\n1\n$ pwd\n/home/me\n$ touch kept\n```\n\
            ```console\n$ ls\nkept\n$ cat\n$ for i in a b; do\n> echo $i\n> done\na\nb\n\
            $ command -v ctrlrun\n...bin/ctrlrun\n```\n";
        assert_eq!(differences(page), 0);
    }

    #[test]
    fn a_page_that_is_wrong_has_differences() {
        assert_eq!(differences("```console\n$ echo hi\nho\n$ echo ho\n```\n"), 2);
        assert_eq!(differences("```console\n$ (exit 3)\n$ echo $?\n0\n```\n"), 1);
    }

    #[test]
    #[should_panic(expected = "a command ended the shell")]
    fn a_page_that_ends_its_shell_is_not_read_further() {
        differences("```console\n$ exit 0\n$ echo hi\nhi\n```\n");
    }
}
