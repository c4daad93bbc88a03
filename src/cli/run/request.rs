//! The key that was asked for, and what it is bound to (KEY clauses).
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ctrlrun::plan::effect::{RanOn, Request};
use ctrlrun::plan::key::{Fingerprint, Key, Period, check_hygiene};
use ctrlrun::plan::proof;
use nix::unistd::{Uid, User, geteuid, gethostname};

use super::RunArgs;
use crate::cli::error::{CliError, Deed, Kind};
use crate::cli::render::text::clean;
use crate::cli::values::Per;
use crate::config::RecordCommand;

/// What was asked for, checked before any store is opened.
#[derive(Debug)]
pub struct Asked {
    /// The effect.
    pub key: Key,
    /// What its key is to be bound to.
    pub request: Request,
    /// The program's name, for a person here; the store may keep none.
    pub program: String,
    /// Where it would run.
    pub ran_on: RanOn,
    /// What a careful colleague would say of the command line, a line each.
    pub warnings: Vec<String>,
}

/// Reads the key and the request.
///
/// # Errors
/// 64 for a key that cannot be one, 66 for a file that cannot be read.
pub fn read(args: &RunArgs, record: RecordCommand) -> Result<Asked, CliError> {
    let key = key(args)?;
    let own = std::env::var_os("CTRLRUN_KEY");
    if own.is_some_and(|own| own.as_bytes() == key.as_str().as_bytes()) {
        return Err(CliError::new(
            Kind::Usage,
            format!(
                "{}: refused, nothing was run: this is a command of that very effect, which would \
                 wait for itself",
                clean(key.as_str())
            ),
        ));
    }
    let program = program(&args.command);
    let recorded = record != RecordCommand::None;
    let arguments = u32::try_from(args.command.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let in_full = record == RecordCommand::Full;
    let request = Request {
        fingerprint: fingerprint(args)?,
        program: if recorded { program.clone() } else { String::new() },
        arguments: if recorded { arguments } else { 0 },
        command: in_full.then(|| args.command.iter().map(|word| lossy(word)).collect()),
    };
    let words: Vec<&[u8]> = args.command.iter().map(|word| word.as_bytes()).collect();
    let declared = args.not_executed.clone().unwrap_or_default();
    let warnings = proof::warnings(&words, &declared);
    Ok(Asked { key, request, program, ran_on: ran_on(), warnings })
}

/// What a key is bound to by a command and more values (`bind` of a batch's line).
#[must_use]
pub fn bound_to(command: &[OsString], bind: &[OsString], record: RecordCommand) -> Request {
    let list = |words: &[OsString]| -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    };
    let lists = [list(command), list(bind)];
    let [words, binds] =
        lists.each_ref().map(|list| list.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>());
    let recorded = record != RecordCommand::None;
    let arguments = u32::try_from(command.len().saturating_sub(1)).unwrap_or(u32::MAX);
    Request {
        fingerprint: Fingerprint::of([&words, &binds, &[], &[], &[]]),
        program: if recorded { program(command) } else { String::new() },
        arguments: if recorded { arguments } else { 0 },
        command: (record == RecordCommand::Full)
            .then(|| command.iter().map(|word| lossy(word)).collect()),
    }
}

fn key(args: &RunArgs) -> Result<Key, CliError> {
    let bad = |why| CliError::bad_key(args.key(), &why, Deed::Run);
    Key::new(args.key()).map_err(bad)?;
    if !args.key_as_is {
        check_hygiene(args.key()).map_err(bad)?;
    }
    let Some(per) = args.per else {
        return Key::new(args.key()).map_err(bad);
    };
    let period = match per {
        Per::Hour => Period::Hour,
        Per::Day => Period::Day,
        Per::Week => Period::Week,
        Per::Month => Period::Month,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let suffix = period.suffix(i64::try_from(now).unwrap_or(i64::MAX)).map_err(|error| {
        CliError::new(Kind::Config, "nothing was run: this host's clock cannot be right")
            .because(&error)
    })?;
    Key::new(format!("{}{suffix}", args.key())).map_err(bad)
}

fn fingerprint(args: &RunArgs) -> Result<Fingerprint, CliError> {
    let mut files = Vec::new();
    for path in &args.bind_file {
        files.push(fs::read(path).map_err(|error| unreadable(path, &error))?);
    }
    let mut variables = Vec::new();
    for name in &args.bind_env {
        let value = std::env::var_os(name).ok_or_else(|| {
            let name = name.to_string_lossy();
            let words = format!("nothing was run: --bind-env {}: it is not set", clean(&name));
            CliError::new(Kind::Usage, words)
        })?;
        variables.push(name.clone());
        variables.push(value);
    }
    let only = !args.bind_only.is_empty();
    let bytes = |word: &'_ std::ffi::OsString| -> Vec<u8> { word.as_bytes().to_vec() };
    let command: Vec<Vec<u8>> =
        if only { Vec::new() } else { args.command.iter().map(bytes).collect() };
    let binds: Vec<Vec<u8>> = args.bind.iter().map(bytes).collect();
    let variables: Vec<Vec<u8>> = variables.iter().map(bytes).collect();
    let instead: Vec<Vec<u8>> = args.bind_only.iter().map(bytes).collect();
    let lists = [&command, &binds, &files, &variables, &instead];
    let lists = lists.map(|list| list.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>());
    let [command, binds, files, variables, instead] = &lists;
    Ok(Fingerprint::of([command, binds, files, variables, instead]))
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    let path = path.to_string_lossy();
    let words = format!("nothing was run: --bind-file {}: it cannot be read", clean(&path));
    CliError::new(Kind::NotFound, words).because(error)
}

/// The program's name, without the way to it.
pub fn program(command: &[std::ffi::OsString]) -> String {
    let program = command.first().map_or(OsStr::new(""), |word| word.as_os_str());
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

/// Where a command would run.
pub fn ran_on() -> RanOn {
    let host = gethostname().map_or_else(|_| "?".to_owned(), |name| lossy(&name));
    // The variables first, then the file: a look-up in the password database asks daemons, and may
    // go over a network.
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER")
        .or_else(|| named("LOGNAME"))
        .or_else(|| in_passwd(geteuid()))
        .or_else(|| User::from_uid(geteuid()).ok().flatten().map(|user| user.name))
        .unwrap_or_else(|| format!("uid {}", geteuid()));
    let directory =
        std::env::current_dir().map_or_else(|_| "?".to_owned(), |path| lossy(path.as_os_str()));
    RanOn { host, pid: std::process::id(), user, directory }
}

/// The name that the local password file has for a user, if it stands near its beginning.
fn in_passwd(uid: Uid) -> Option<String> {
    let mut beginning = Vec::with_capacity(PASSWD_MAX);
    let file = std::fs::File::open("/etc/passwd").ok()?;
    file.take(PASSWD_MAX as u64).read_to_end(&mut beginning).ok()?;
    let beginning = String::from_utf8_lossy(&beginning);
    let uid = uid.to_string();
    beginning.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name =
            fields.next().filter(|name| !name.is_empty() && !name.starts_with(['+', '-']))?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

/// Of the password file so much is read, in bytes: the users of a host stand in it first.
const PASSWD_MAX: usize = 8192;

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}
