//! Imports go one way, and what the pure room may not know.
use crate::lexer::{Kind, Token, code};
use crate::tree::{self, Source};

/// Each room of the library, and what it may name of the crate.
const ROOMS: [(&str, &[&str]); 4] = [
    ("plan", &["plan"]),
    ("store", &["plan", "store"]),
    ("exec", &["exec"]),
    ("drive", &["plan", "store", "exec", "drive"]),
];

/// What `plan` may not name: whatever would make a decision depend on more than its arguments.
const IMPURE: [&str; 15] = [
    "std::time::Instant",
    "std::time::SystemTime",
    "std::fs",
    "std::io",
    "std::env",
    "std::thread",
    "std::process",
    "std::net",
    "rand",
    "getrandom",
    "nix",
    "libc",
    "rustix",
    "rusqlite",
    "tempfile",
];

/// Functions and macros that do I/O or draw from the world under any path.
const IMPURE_CALLS: [&str; 9] =
    ["now_v7", "now_v1", "new_v4", "println", "print", "eprintln", "eprint", "env", "option_env"];

/// One path that a file names, with groups resolved: `use a::{b, c}` names two.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    segments: Vec<String>,
    line: usize,
    in_use: bool,
}

/// Complaints about the arrows between the rooms.
pub fn arrows(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in library(sources) {
        let Some(room) = room_of(&source.path) else {
            continue;
        };
        let Some((_, may)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!(
                "{}: the room {room:?} is not on the plan of the house",
                source.path
            ));
            continue;
        };
        for (named, line) in rooms_named(source) {
            if !may.contains(&named.as_str()) {
                wrong.push(format!("{}:{line}: {room} names {named}", source.path));
            }
        }
    }
    wrong
}

/// Complaints about a `plan` that would depend on more than its arguments.
pub fn impurities(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.under("src/plan")) {
        let tokens = code(&source.text);
        for named in named(&tokens) {
            for impure in IMPURE {
                if reaches(&named, impure) {
                    wrong.push(format!("{}:{}: plan names {impure}", source.path, named.line));
                }
            }
        }
        for three in tokens.windows(3) {
            let called = three[2].is("(") || three[2].is("!");
            // `now` alone is what every decision is given; `Type::now()` would ask the world.
            let clock = three[0].is("::") && three[1].is("now");
            if called && (clock || IMPURE_CALLS.iter().any(|call| three[1].is(call))) {
                let (call, line) = (&three[1].text, three[1].line);
                wrong.push(format!("{}:{line}: plan calls {call}", source.path));
            }
        }
    }
    wrong
}

/// Complaints about `unsafe` outside `src/exec`.
pub fn unsafes(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let allowed = source.under("src/exec");
        if !source.is_rust() || !source.under("src") || allowed {
            continue;
        }
        for token in code(&source.text) {
            if token.is("unsafe") {
                wrong.push(format!("{}:{}: unsafe outside src/exec", source.path, token.line));
            }
        }
    }
    wrong
}

/// The library's Rust files: all of `src/` but the binary's.
fn library(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_rust() && source.under("src") && !binary(&source.path))
}

/// Whether a file belongs to the binary.
pub fn binary(path: &str) -> bool {
    let rooms = ["src/cli/", "src/config/", "verify/"];
    path == "src/main.rs" || rooms.iter().any(|room| path.starts_with(room))
}

fn room_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?.trim_end_matches(".rs");
    (inside != "lib").then(|| inside.split('/').next().unwrap_or(inside))
}

/// Every room that a file of the library names, and where.
fn rooms_named(source: &Source) -> Vec<(String, usize)> {
    let tokens = code(&source.text);
    let mut rooms = Vec::new();
    for named in named(&tokens) {
        let mut rest = named.segments.iter().map(String::as_str).peekable();
        match rest.next() {
            Some("crate" | "ctrlrun") => {}
            // A path that climbs above its own room is judged by where it comes out.
            Some("super") => {
                let inline = inline_modules(&tokens, named.line);
                let mut base = module_path(&source.path);
                base.extend(inline);
                base.pop();
                while rest.peek() == Some(&"super") {
                    rest.next();
                    base.pop();
                }
                if let Some(room) = base.first() {
                    rooms.push((room.clone(), named.line));
                    continue;
                }
            }
            _ => continue,
        }
        let room = rest.next().unwrap_or("*");
        rooms.push((room.to_owned(), named.line));
    }
    rooms
}

/// `src/plan/effect/mod.rs` is `plan::effect`.
fn module_path(path: &str) -> Vec<String> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    inside.split('/').map(str::to_owned).collect()
}

/// The modules with braces that are open on `line`.
fn inline_modules(tokens: &[Token], line: usize) -> Vec<String> {
    let mut open: Vec<(String, usize)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        open.retain(|(_, end)| *end > index);
        if token.line > line {
            break;
        }
        let braced = token.is("mod") && tokens.get(index + 2).is_some_and(|brace| brace.is("{"));
        if braced {
            let end = tree::closing(tokens, index + 2, "{", "}");
            open.push((tokens[index + 1].text.clone(), end));
        }
    }
    open.into_iter().map(|(name, _)| name).collect()
}

/// Every path that starts at a root: `crate`, `super`, or the name of a crate.
fn named(tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut in_use = false;
    for (index, token) in tokens.iter().enumerate() {
        if token.is("use") {
            in_use = true;
        } else if token.is(";") {
            in_use = false;
        }
        let inside = index
            .checked_sub(1)
            .is_some_and(|before| tokens[before].is("::") && continues(tokens, before));
        if token.kind != Kind::Word || inside {
            continue;
        }
        let follows = tokens.get(index + 1).is_some_and(|next| next.is("::"));
        let renamed = in_use && tokens.get(index + 1).is_some_and(|next| next.is("as"));
        let first = index.checked_sub(1).is_some_and(|before| tokens[before].is("use"));
        let whole = in_use && first;
        if follows || whole || renamed {
            expand(tokens, index, &mut Vec::new(), in_use, &mut found);
        }
    }
    found
}

/// Whether the `::` at `at` continues a path, and is not the leading one of `::std`.
fn continues(tokens: &[Token], at: usize) -> bool {
    at > 0
        && (tokens[at - 1].kind == Kind::Word || tokens[at - 1].is(">"))
        && !tokens[at - 1].is("use")
}

/// Adds the paths that start at `at`, behind `prefix`; returns the index behind them.
fn expand(
    tokens: &[Token],
    at: usize,
    prefix: &mut Vec<String>,
    in_use: bool,
    into: &mut Vec<Named>,
) -> usize {
    let depth = prefix.len();
    let mut at = at;
    while let Some(token) = tokens.get(at) {
        if token.is("{") {
            at += 1;
            while tokens.get(at).is_some_and(|token| !token.is("}")) {
                at = if tokens[at].is(",") {
                    at + 1
                } else {
                    expand(tokens, at, prefix, in_use, into).max(at + 1)
                };
            }
            prefix.truncate(depth);
            return at + 1;
        }
        if token.kind != Kind::Word && !token.is("*") {
            break;
        }
        prefix.push(token.text.clone());
        let more = tokens.get(at + 1).is_some_and(|next| next.is("::"));
        let line = token.line;
        at += 1;
        if !more || tokens.get(at + 1).is_some_and(|next| next.is("<")) {
            into.push(Named { segments: prefix.clone(), line, in_use });
            if in_use && tokens.get(at).is_some_and(|next| next.is("as")) {
                at += 2;
            }
            break;
        }
        at += 1;
    }
    prefix.truncate(depth);
    at
}

/// Whether a path names something of `impure`, or brings in a part that could.
fn reaches(named: &Named, impure: &str) -> bool {
    let wanted: Vec<&str> = impure.split("::").collect();
    let mut path: Vec<&str> = named.segments.iter().map(String::as_str).collect();
    let glob = path.last() == Some(&"*");
    if glob || path.last() == Some(&"self") {
        path.pop();
    }
    if path.first() == Some(&"core") {
        path[0] = "std";
    }
    if path.starts_with(&wanted) {
        return true;
    }
    // `use std::time;` or `use std::*;` would let the next line say `time::Instant`; the name of a
    // crate's type alone (`use jiff::Timestamp`) gives nothing away by itself.
    let opens = wanted[0] == "std" && (named.in_use || glob);
    opens && wanted.starts_with(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let sources = [Source::new(path, text)];
        let mut all = arrows(&sources);
        all.extend(impurities(&sources));
        all.extend(unsafes(&sources));
        all
    }

    #[test]
    fn the_house_keeps_its_arrows() {
        let sources = tree::all();
        tree::none(&arrows(&sources));
    }

    #[test]
    fn the_plan_is_pure() {
        let sources = tree::all();
        assert!(sources.iter().any(|source| source.under("src/plan")));
        tree::none(&impurities(&sources));
    }

    #[test]
    fn unsafe_stays_in_exec() {
        tree::none(&unsafes(&tree::all()));
    }

    #[test]
    fn an_arrow_that_points_back_is_found() {
        let wrong = [
            ("src/plan/key.rs", "use crate::store::Store;"),
            ("src/plan/key.rs", "fn f(_: crate::drive::Call) {}"),
            ("src/plan/effect/mod.rs", "use super::super::store::Store;"),
            ("src/plan/mod.rs", "use super::store::Store;"),
            ("src/plan/mod.rs", "use crate::*;"),
            ("src/plan/mod.rs", "use crate::{key::Key, plan::{time, key}};"),
            ("src/plan/mod.rs", "mod tests { use super::super::exec; }"),
            ("src/store/mod.rs", "use crate::exec::Child;"),
            ("src/store/sqlite/mod.rs", "use crate::{plan::key, drive::host};"),
            ("src/exec/mod.rs", "use crate::plan::verdict;"),
            ("src/exec/mod.rs", "use crate::store;"),
            ("src/drive/mod.rs", "use crate::cli::run;"),
            ("src/drive/mod.rs", "use crate as all;"),
            ("src/drive/mod.rs", "use ctrlrun::verify::Check;"),
            ("src/attic/mod.rs", ""),
        ];
        for (path, text) in wrong {
            assert_ne!(complaints(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn an_arrow_that_points_on_is_let_through() {
        let right = [
            ("src/plan/effect/decide.rs", "use super::super::key::Key; use crate::plan::time;"),
            ("src/plan/key.rs", "#[cfg(test)] mod tests { use super::*; }"),
            ("src/plan/key.rs", "// crate::store would be wrong\npub(crate) fn f() {}"),
            ("src/store/mod.rs", "use crate::{plan::{key, time}, store::Flow};"),
            ("src/exec/mod.rs", "mod reap; use self::reap::Reaper; use super::exec::clock;"),
            ("src/drive/mod.rs", "use crate::{exec, plan, store};"),
            ("src/lib.rs", "pub mod plan;"),
            ("src/cli/run.rs", "use crate::cli::render; use ctrlrun::drive;"),
        ];
        for (path, text) in right {
            assert_eq!(complaints(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn a_plan_that_looks_at_the_world_is_found() {
        let wrong = [
            "use std::time::Instant;",
            "use std::time::{Duration, SystemTime};",
            "use std::{time::{self}, fmt};",
            "use std::time;",
            "use std::time::*;",
            "use std::*;",
            "fn f() { let _ = ::std::fs::read(\"x\"); }",
            "fn f() { std::env::var(\"X\"); }",
            "use std::thread;",
            "use std::process::Command;",
            "use std::net::TcpStream;",
            "use nix;",
            "use nix::unistd::getpid;",
            "fn f() { rusqlite::Connection::open_in_memory(); }",
            "fn f() -> u8 { rand::random() }",
            "fn f() { jiff::Timestamp::now(); }",
            "fn f() { Uuid::now_v7(); }",
            "fn f() { println!(); }",
        ];
        for text in wrong {
            let found = complaints("src/plan/key.rs", text);
            assert_ne!(found, Vec::<String>::new(), "{text}");
        }
        let right = [
            "use std::time::Duration; use std::collections::BTreeMap; use std::fmt;",
            "fn f(now: Timestamp) { let _ = std::time::Duration::from_secs(1); }",
            "/// Unlike std::time::Instant, …\nfn f() { jiff::Timestamp::from_second(1); }",
        ];
        for text in right {
            let found = complaints("src/plan/key.rs", text);
            assert_eq!(found, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn an_unsafe_block_elsewhere_is_found() {
        let block = "fn f() { unsafe { g() } }";
        assert_eq!(complaints("src/exec/reap.rs", block), Vec::<String>::new());
        assert_ne!(complaints("src/store/mod.rs", block), Vec::<String>::new());
        assert_ne!(complaints("src/cli/run.rs", block), Vec::<String>::new());
        let named = "#![deny(unsafe_code)] // unsafe";
        assert_eq!(complaints("src/lib.rs", named), Vec::<String>::new());
    }
}
