//! What a connection string may ask of the process it is read in. A value, so that reading one is
//! a pure function and its tests touch no environment.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it holds; empty if it is no regular file.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// Who owns it.
    pub uid: u32,
    /// It is a regular file.
    pub regular: bool,
}

/// A user of the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: String,
    /// The home, for where HOME is not set.
    pub home: PathBuf,
}

/// How a file is read.
pub type Files<'a> = dyn Fn(&Path) -> io::Result<Seen> + 'a;

/// Environment, user and files.
pub struct Here<'a> {
    /// The environment. An empty value counts as none, as libpq has it for nearly all of them.
    pub env: BTreeMap<String, String>,
    /// Variables whose values are not UTF-8; one that would matter is an error, not ignored.
    pub unreadable: Vec<String>,
    /// The user this process runs as. Asked only where it counts: a look-up may cost more than
    /// the rest together.
    pub account: &'a dyn Fn() -> Option<Account>,
    /// How files are read.
    pub files: &'a Files<'a>,
}

impl Here<'static> {
    /// This process as it is.
    #[must_use]
    pub fn this_process() -> Self {
        let mut env = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(env.insert(name, value)),
                Err(_) => unreadable.push(name),
            }
        }
        Self { env, unreadable, account: &account, files: &read }
    }
}

impl Here<'_> {
    /// A variable that is set and not empty.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// `name` below the user's home.
    #[must_use]
    pub fn at_home(&self, name: &str) -> Option<PathBuf> {
        let home = match self.var("HOME") {
            Some(home) => PathBuf::from(home),
            None => (self.account)()?.home,
        };
        Some(home.join(name))
    }
}

/// The user this process runs as, if it has an entry.
#[must_use]
pub fn account() -> Option<Account> {
    let entry = User::from_uid(geteuid()).ok().flatten()?;
    Some(Account { name: entry.name, home: entry.dir })
}

/// Reads a file of the file system. What is no regular file is not opened: a pipe would block.
///
/// # Errors
/// Those of the operating system.
pub fn read(path: &Path) -> io::Result<Seen> {
    let found = std::fs::metadata(path)?;
    let mut bytes = Vec::new();
    if found.is_file() {
        File::open(path)?.read_to_end(&mut bytes)?;
    }
    Ok(Seen { bytes, mode: found.mode() & 0o7777, uid: found.uid(), regular: found.is_file() })
}
