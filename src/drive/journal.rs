//! The journal: a second memory of every attempt, in a file outside the store (AFT-1 to AFT-5).
//!
//! Processes append to it without a lock, so that one that is stopped holds up no other. A line is one
//! write. Where a write was cut off, by a full disk or a crash, the next one lands behind its torn end:
//! whoever sees that has written its own line in vain, and writes it once more.
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::plan::attempt::{Attempt, NotRecorded, Outcome, Report};
use crate::plan::effect::{Holder, RanOn};
use crate::plan::journal::{Began, Line, Settled, Stored, What, Word};
use crate::plan::key::{Fingerprint, Key, idempotency_key};
use crate::store::Identity;

/// No line is longer, in bytes; none that was written here comes near it.
const LINE_MAX: u64 = 1 << 20;

/// What every line of this format begins with.
const HEAD: &[u8] = b"{\"v\":1,";

/// A journal that could be opened.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
}

/// The attempt that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    /// The effect.
    pub key: &'a Key,
    /// Who begins.
    pub holder: Holder,
    /// The caller's label.
    pub attempt_id: &'a str,
    /// What the idempotency key derives from, beside the key.
    pub proven_failures: u64,
    /// What the key is bound to.
    pub fingerprint: Fingerprint,
    /// Where it runs.
    pub ran_on: &'a RanOn,
}

impl Journal {
    /// The journal in this file, which is made if it is not there; its folder is not (AFT-5).
    ///
    /// # Errors
    /// I/O; what is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        to_append(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// [`Journal::began`] for the attempt of a machine that was told to start its child.
    ///
    /// # Errors
    /// As there.
    pub fn begins(
        &self,
        identity: &Identity,
        machine: &Attempt,
        holder: Holder,
        proven_failures: u64,
    ) -> io::Result<()> {
        let (fingerprint, ran_on) = machine.evidence();
        let (key, attempt_id) = (machine.key(), machine.attempt_id());
        let of = Beginning { key, holder, attempt_id, proven_failures, fingerprint, ran_on };
        self.began(identity, of)
    }

    /// [`Journal::settled`], whatever comes of it: the outcome stands, here or in the store, whether or
    /// not this can be written (AFT-4). What went wrong is told to `problems`.
    pub fn settles(
        &self,
        identity: &Identity,
        key: &Key,
        holder: Holder,
        report: &Report,
        problems: &mut Vec<String>,
    ) {
        let spooled = matches!(report.spooled, Some(Ok(())));
        if let Err(error) = self.settled(identity, key, holder, &report.result, spooled) {
            let path = self.path.display();
            problems.push(format!(
                "warning: the journal {path} cannot be written: {error}: this outcome is not in it"
            ));
        }
    }

    /// Says, durably, that an attempt begins (AFT-2).
    ///
    /// # Errors
    /// I/O: then it is not known to be there, and nothing may be started.
    pub fn began(&self, identity: &Identity, of: Beginning<'_>) -> io::Result<()> {
        let what = What::Began(Began {
            attempt_id: of.attempt_id.to_owned(),
            idempotency_key: idempotency_key(of.key, of.proven_failures),
            fingerprint: of.fingerprint,
            host: of.ran_on.host.clone(),
            pid: of.ran_on.pid,
        });
        self.append(&line(identity, of.key, of.holder, what))?.sync_data()
    }

    /// Says what came of an attempt that has begun, with what was reported of it (AFT-4).
    ///
    /// # Errors
    /// I/O.
    pub fn settled(
        &self,
        identity: &Identity,
        key: &Key,
        holder: Holder,
        result: &Outcome,
        spooled: bool,
    ) -> io::Result<()> {
        let what = What::Settled(settled(result, spooled));
        self.append(&line(identity, key, holder, what)).map(drop)
    }

    fn append(&self, line: &Line) -> io::Result<File> {
        let mut file = to_append(&self.path)?;
        let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
        text.push(b'\n');
        if !whole(&mut file, &text)? {
            text.insert(0, b'\n');
            whole(&mut file, &text)?;
        }
        Ok(file)
    }
}

/// Writes `text` to the end of the file; false if what stood before it does not end a line.
fn whole(file: &mut File, text: &[u8]) -> io::Result<bool> {
    let written = loop {
        match file.write(text) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            written => break written?,
        }
    };
    if written < text.len() {
        // The rest would land behind whatever others have written meanwhile.
        return Err(io::Error::new(ErrorKind::StorageFull, "there is no room for a whole line"));
    }
    // A write to the end leaves the position behind it, wherever the end was.
    let start = file.stream_position()?.saturating_sub(text.len() as u64);
    let mut before = [b'\n'];
    if start > 0 {
        file.read_exact_at(&mut before, start - 1)?;
    }
    Ok(before == [b'\n'] || text.starts_with(b"\n"))
}

/// Opens the file to append, and makes it durably if it is not there.
fn to_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    // A pipe in its place must not hold anybody up.
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
    let opened = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = options.clone().create(true).open(path)?;
            made.sync_all()?;
            File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
            made
        }
        opened => opened?,
    };
    regular(&opened.metadata()?)?;
    Ok(opened)
}

fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(io::Error::other("it is no regular file")) }
}

fn line(identity: &Identity, key: &Key, holder: Holder, what: What) -> Line {
    Line {
        v: 1,
        at: format!("{:.6}", jiff::Timestamp::now()),
        store_id: identity.store_id,
        store: identity.place.clone(),
        key: key.clone(),
        attempt: holder.attempt,
        reservation_id: holder.reservation_id,
        what,
    }
}

fn settled(result: &Outcome, spooled: bool) -> Settled {
    let never_started = |detail: &str| Settled {
        word: Word::Failed,
        detail: detail.to_owned(),
        stored: if spooled { Stored::Spooled } else { Stored::Ours },
    };
    match result {
        Outcome::Settled { verdict, ending } => Settled {
            word: Word::from(*verdict),
            detail: ending.detail.clone(),
            stored: Stored::Ours,
        },
        Outcome::NotRecorded { undelivered, why } => Settled {
            word: Word::from(undelivered.settle.verdict),
            detail: undelivered.settle.ending.detail.clone(),
            stored: match why {
                _ if spooled => Stored::Spooled,
                NotRecorded::Late => Stored::Late,
                NotRecorded::Forgotten => Stored::Forgotten,
                NotRecorded::Store(_) => Stored::No,
            },
        },
        // It was begun, and then refused: too late, or no longer ours. Nothing was started.
        Outcome::Refused(_) => never_started("never started"),
        // These come before a child is started, or are a bug of ours: nothing is claimed.
        Outcome::CommittedAlready | Outcome::CouldNot(_) | Outcome::Unknown(_) => Settled {
            word: Word::Ambiguous,
            detail: "no outcome was seen".to_owned(),
            stored: Stored::No,
        },
    }
}

/// What stands at one place of a journal.
#[derive(Debug)]
pub enum Stands {
    /// A line.
    Line(Box<Line>),
    /// A line that was cut off: by a crash, or a disk that was full. Whoever wrote it did not go on.
    Torn {
        /// It is the file's last.
        last: bool,
    },
    /// What cannot be read.
    Unreadable {
        /// Its number, from 1.
        number: u64,
    },
}

/// Hands what stands in a journal to `each`, from its beginning to where it ends now.
///
/// # Errors
/// I/O; what is no regular file; what `each` says.
pub fn read<E: From<io::Error>>(
    path: &Path,
    each: &mut dyn FnMut(Stands) -> Result<(), E>,
) -> Result<(), E> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    regular(&file.metadata().map_err(E::from)?)?;
    let mut file = BufReader::new(file);
    let mut bytes = Vec::new();
    let mut number = 0;
    loop {
        bytes.clear();
        let got = file.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes)?;
        if got == 0 {
            return Ok(());
        }
        number += 1;
        let last = bytes.last() != Some(&b'\n');
        let text = bytes.trim_ascii();
        if text.is_empty() {
            continue;
        }
        each(match serde_json::from_slice::<Line>(text) {
            Ok(line) => Stands::Line(Box::new(line)),
            Err(_) if last && got as u64 == LINE_MAX => {
                skip_line(&mut file)?;
                Stands::Unreadable { number }
            }
            Err(_) if last => Stands::Torn { last },
            // Cut off, with a whole line behind it that was then written once more.
            Err(_) if ends_in_a_line(text) => Stands::Torn { last: false },
            Err(_) => Stands::Unreadable { number },
        })?;
    }
}

fn ends_in_a_line(text: &[u8]) -> bool {
    let starts = (1..text.len().saturating_sub(HEAD.len())).rev();
    let mut starts = starts.filter(|at| text[*at..].starts_with(HEAD));
    starts.next().is_some_and(|at| serde_json::from_slice::<Line>(&text[at..]).is_ok())
}

fn skip_line(file: &mut impl BufRead) -> io::Result<()> {
    let mut rest = Vec::new();
    loop {
        rest.clear();
        let got = file.by_ref().take(LINE_MAX).read_until(b'\n', &mut rest)?;
        if got == 0 || rest.last() == Some(&b'\n') {
            return Ok(());
        }
    }
}
