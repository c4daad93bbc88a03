//! What a traced run of the binary did to the files of one directory.
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One call that changes a file, or that somebody relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A file was opened that may not have been there.
    Create(PathBuf),
    Write {
        path: PathBuf,
        at: usize,
        bytes: Vec<u8>,
    },
    Size(PathBuf, usize),
    /// Of a file, or of the directory.
    Sync(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A program was started that is not ctrlrun itself, with this as its last word.
    Started(String),
}

const CALLS: &str = "trace=openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,\
    truncate,fallocate,fsync,fdatasync,sync_file_range,unlink,unlinkat,rename,renameat,renameat2,\
    link,linkat,execve";

/// Runs `command` to its end and tells what it did in `directory`; `None` where nothing can be traced.
pub fn trace(command: &Command, directory: &Path) -> Option<Vec<Op>> {
    let into = directory.with_extension("trace");
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-qq",
        "-y",
        "-xx",
        "-s",
        "9999999",
        "-e",
        "signal=none",
        "-e",
        CALLS,
        "-o",
    ]);
    strace.arg(&into).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        strace.env(name, value.unwrap());
    }
    strace.current_dir(command.get_current_dir().unwrap());
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = strace.status();
    let text = fs::read_to_string(&into).unwrap_or_default();
    if !text.contains("execve(") {
        assert!(std::env::var_os("CI").is_none(), "strace is needed: {ended:?}");
        println!("inconclusive: no strace here that may trace ({ended:?})");
        return None;
    }
    Some(read(&text, directory))
}

fn read(text: &str, directory: &Path) -> Vec<Op> {
    let mut ops = Vec::new();
    // A call that another process's came in between of is told in two parts.
    let mut unfinished: HashMap<&str, String> = HashMap::new();
    let first = text.split(' ').next().unwrap();
    for line in text.lines() {
        let (pid, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(begun) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(pid, begun.to_owned());
            continue;
        }
        let call = match call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => unfinished.remove(pid).unwrap_or_default() + rest,
            None => call.to_owned(),
        };
        let Some((call, result)) = call.rsplit_once(" = ") else { continue };
        if result.starts_with('-') || result.starts_with('?') {
            continue;
        }
        if call.starts_with("execve(") {
            if pid != first {
                ops.push(Op::Started(last_word(call)));
            }
            continue;
        }
        let op = one(call, result).filter(|op| is_in(op, directory));
        ops.extend(op);
    }
    ops
}

/// A call as an operation; `None` if it changes nothing.
fn one(call: &str, result: &str) -> Option<Op> {
    let (name, rest) = call.split_once('(')?;
    let rest = rest.trim_end().strip_suffix(')')?;
    // Text is all in hexadecimal: a comma is always between two arguments.
    let arguments: Vec<&str> = rest.split(", ").collect();
    let number = |at: usize| arguments[at].parse::<usize>().unwrap();
    let op = match name {
        "openat" | "open" | "creat" => {
            let flags =
                arguments.iter().find(|it| it.starts_with("O_")).copied().unwrap_or("O_CREAT");
            assert!(!flags.contains("O_TRUNC"), "not thought of: {call}");
            flags.contains("O_CREAT").then(|| Op::Create(described(result)))?
        }
        "pwrite64" => {
            let mut bytes = text(arguments[1]);
            bytes.truncate(result.parse().unwrap());
            Op::Write { path: described(arguments[0]), at: number(3), bytes }
        }
        "ftruncate" => Op::Size(described(arguments[0]), number(1)),
        "fsync" | "fdatasync" => Op::Sync(described(arguments[0])),
        "unlink" => Op::Unlink(path(text(arguments[0]))),
        "rename" => Op::Rename(path(text(arguments[0])), path(text(arguments[1]))),
        "renameat" | "renameat2" => Op::Rename(path(text(arguments[1])), path(text(arguments[3]))),
        // Of these none is known to fall on a store's file: one that does must be thought of.
        _ => Op::Write { path: described(arguments[0]), at: usize::MAX, bytes: Vec::new() },
    };
    Some(op)
}

fn is_in(op: &Op, directory: &Path) -> bool {
    let path = match op {
        Op::Create(path) | Op::Size(path, _) | Op::Sync(path) | Op::Unlink(path) => path,
        Op::Rename(_, to) => to,
        Op::Write { path, at, .. } => {
            assert!(*at != usize::MAX || !path.starts_with(directory), "not thought of: {op:?}");
            path
        }
        Op::Started(_) => return true,
    };
    path.starts_with(directory)
}

/// The last of the words that a program was started with: `execve("\x2f", ["\x73", "\x62"], 0x7f)`.
fn last_word(call: &str) -> String {
    let inside = call.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let last = inside.and_then(|(words, _)| words.rsplit(", ").next()).unwrap_or_default();
    String::from_utf8_lossy(&bytes(last.trim_matches('"'))).into_owned()
}

/// The path behind a descriptor: `3<\x2f...>`.
fn described(argument: &str) -> PathBuf {
    let inside = argument.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>'));
    path(bytes(inside.map_or("", |(inside, _)| inside)))
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// The bytes of `"\x68\x69"`.
fn text(argument: &str) -> Vec<u8> {
    assert!(argument.ends_with('"'), "cut off: {argument}");
    bytes(argument.trim_matches('"'))
}

fn bytes(escaped: &str) -> Vec<u8> {
    escaped.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}
