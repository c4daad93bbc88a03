//! Outcomes that the store could not take yet, each in a local file of its own (EXE-23 to EXE-26).
//!
//! A file is written aside, fsynced and renamed, so that it is there whole or not at all; its first
//! line carries a checksum of the rest, so that what is damaged is set aside and never guessed at.
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access, geteuid};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::reach::is_absent;
use crate::plan::attempt::Undelivered;
use crate::plan::effect::OutcomeId;
use crate::plan::key::Key;

const HEAD: &str = "ctrlrun-spool-v1 sha256:";
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The spool of one store, in a directory that it may share with those of other stores.
#[derive(Debug, Clone)]
pub struct Spool {
    /// Where outcomes are kept.
    dir: PathBuf,
    /// Where they may have been kept at another time, when `dir` could not be written.
    others: Vec<PathBuf>,
    store_id: Uuid,
}

/// Why what is kept in `dir` cannot be known, if it cannot: nothing may be taken for free then that a
/// word in it could be about (EXE-25).
#[must_use]
pub fn unreadable(dir: &Path) -> Option<io::Error> {
    fs::read_dir(dir).err().filter(|error| !is_absent(dir, error))
}

/// A file of the spool.
#[derive(Debug)]
pub enum Spooled {
    /// An outcome.
    Outcome(Box<Undelivered>),
    /// A file that is damaged, and where it was set aside.
    Damaged {
        /// The file, by its new name where it could be renamed.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Spool {
    /// The spool of the store `store_id` in the first of `candidates` that can be written, or made.
    /// `None` if there is none: then an outcome that cannot be recorded is told on stderr alone.
    #[must_use]
    pub fn find(candidates: &[PathBuf], store_id: Uuid) -> Option<Self> {
        let dir = candidates.iter().find(|dir| is_usable(dir))?.clone();
        let absolute = candidates.iter().filter(|other| other.is_absolute() && **other != dir);
        let others = absolute.cloned().collect();
        Some(Self { dir, others, store_id })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of an outcome: where it is, or else where it would be.
    #[must_use]
    pub fn path(&self, outcome_id: OutcomeId) -> PathBuf {
        let name = self.name(outcome_id);
        let mut paths = self.dirs().map(|dir| dir.join(&name));
        paths.find(|path| path.exists()).unwrap_or_else(|| self.dir.join(&name))
    }

    fn name(&self, outcome_id: OutcomeId) -> String {
        format!("{}-{}.json", self.store_id.simple(), outcome_id.0.simple())
    }

    fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.dir).chain(&self.others)
    }

    /// Writes an outcome to its file, durably: in the first directory that takes it, for the disk
    /// that is full may be that of the store and of the spool.
    ///
    /// # Errors
    /// I/O, as the first directory has it; then there is no file.
    pub fn keep(&self, undelivered: &Undelivered) -> io::Result<()> {
        let body = serde_json::to_string(undelivered).map_err(io::Error::other)?;
        let name = self.name(undelivered.settle.outcome_id);
        let first = keep_in(&self.dir, &name, &body);
        if first.is_ok() {
            return first;
        }
        let mut others = self.others.iter().filter(|dir| is_usable(dir));
        if others.any(|dir| keep_in(dir, &name, &body).is_ok()) { Ok(()) } else { first }
    }

    /// Removes the file of an outcome that is recorded. Were that to fail, it is delivered once
    /// more, which records nothing twice.
    pub fn discard(&self, outcome_id: OutcomeId) {
        for dir in self.dirs() {
            let _ = fs::remove_file(dir.join(self.name(outcome_id)));
        }
    }

    /// Words of **other** stores about `key` that say it may have happened: the file of each, and
    /// when it was written.
    #[must_use]
    pub fn strays(&self, key: &Key) -> Vec<(PathBuf, SystemTime)> {
        let of_key = self.words_of_others().filter(|(_, of, _)| of == key);
        of_key.map(|(path, _, written)| (path, written)).collect()
    }

    /// All of them, each by its key.
    #[must_use]
    pub fn all_strays(&self) -> Vec<(Key, SystemTime)> {
        self.words_of_others().map(|(_, key, written)| (key, written)).collect()
    }

    fn words_of_others(&self) -> impl Iterator<Item = (PathBuf, Key, SystemTime)> {
        let prefix = format!("{}-", self.store_id.simple());
        self.dirs()
            .flat_map(fs::read_dir)
            .flat_map(Iterator::flatten)
            .filter(move |entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                !name.starts_with(&prefix) && name.ends_with(".json")
            })
            .filter_map(|entry| {
                let word = load(&entry.path()).ok()?;
                let written = entry.metadata().ok()?.modified().ok()?;
                let may_have = word.settle.verdict.may_have_happened();
                may_have.then(|| (entry.path(), word.key, written))
            })
    }

    /// What is in it for this store; damaged files are set aside by that, if `may_set_aside`.
    #[must_use]
    pub fn read(&self, may_set_aside: bool) -> Vec<Spooled> {
        let prefix = format!("{}-", self.store_id.simple());
        let mut paths: Vec<PathBuf> = self
            .dirs()
            .flat_map(fs::read_dir)
            .flat_map(Iterator::flatten)
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with(&prefix) && name.ends_with(".json")
            })
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        paths.into_iter().filter_map(|path| read_one(path, may_set_aside)).collect()
    }
}

fn keep_in(dir: &Path, name: &str, body: &str) -> io::Result<()> {
    let path = dir.join(name);
    let aside = path.with_extension("new");
    let written = write(dir, &aside, body).and_then(|()| {
        fs::rename(&aside, &path)?;
        File::open(dir)?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn write(dir: &Path, path: &Path, body: &str) -> io::Result<()> {
    make(dir)?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(format!("{HEAD}{}\n{body}", checksum(body)).as_bytes())?;
    file.sync_all()
}

fn read_one(path: PathBuf, may_set_aside: bool) -> Option<Spooled> {
    match load(&path) {
        Ok(undelivered) => Some(Spooled::Outcome(Box::new(undelivered))),
        // Another process has delivered it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Not ours to judge: it may be whole.
        Err(error) if error.kind() != io::ErrorKind::InvalidData => {
            Some(Spooled::Damaged { path, why: error.to_string() })
        }
        Err(error) => {
            let aside = path.with_extension("damaged");
            let moved = may_set_aside && fs::rename(&path, &aside).is_ok();
            Some(Spooled::Damaged {
                path: if moved { aside } else { path },
                why: error.to_string(),
            })
        }
    }
}

fn load(path: &Path) -> io::Result<Undelivered> {
    let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    // Whoever can write here could put anything here: a pipe is not waited for, a link is not
    // followed, and what another user wrote is not believed.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
            return Err(damaged("it is a symbolic link"));
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(damaged("it is no file"));
    }
    if found.uid() != geteuid().as_raw() && found.uid() != 0 {
        return Err(damaged("it is another user's"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    parse(&bytes).map_err(|why| damaged(&why))
}

/// Reads a spool file's bytes.
///
/// # Errors
/// What is wrong with them.
pub fn parse(bytes: &[u8]) -> Result<Undelivered, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let (head, body) = text.split_once('\n').ok_or("it has no first line")?;
    let sum = head.strip_prefix(HEAD).ok_or("its first line is not a spool file's")?;
    if sum != checksum(body) {
        return Err("its checksum does not match".to_owned());
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}

fn checksum(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Whether a file could be made there: the directory can be written, or can be made in one that can.
/// One of another user's is not used: what is kept there would be in that user's hands.
fn is_usable(dir: &Path) -> bool {
    if !dir.is_absolute() {
        return false;
    }
    let Some(nearest) = dir.ancestors().find(|ancestor| ancestor.exists()) else {
        return false;
    };
    let trusted = fs::metadata(nearest).is_ok_and(|found| {
        found.is_dir() && (found.uid() == geteuid().as_raw() || found.uid() == 0)
    });
    trusted && access(nearest, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}
