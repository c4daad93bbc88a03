//! What reads bytes that anybody may have written, and what must be so whatever they are (FUZ clauses).
//!
//! Each reader is a plain function that panics where something is wrong. libFuzzer calls it from
//! `fuzz/fuzz_targets`, and the tests of the binary call it with the corpus and mutations of it.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::spool;
use ctrlrun::plan::effect::{HistoryRow, Record, evolve};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::probe::{self, Ended, Printed};
use ctrlrun::plan::retention;
use ctrlrun::plan::template::{CommandTemplate, Reading as ReadBack, Template};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::verdict::Said;
use ctrlrun::plan::workflow::Definition;
use ctrlrun::plan::workflow::check::check;
use ctrlrun::store::Location;
use ctrlrun::store::postgres::conninfo::Conninfo;
use ctrlrun::store::postgres::here::{Account, Here, Seen};
use ctrlrun::store::row::{EventRow, Row};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::cli::batch::input::{Format, Input, Reading, Separator, Source};
use crate::cli::render::text::is_unsafe;
use crate::cli::resolve::lines::{Lines, Read1};
use crate::cli::workflow::file;
use crate::config::effect::Effects;
use crate::config::read::read as read_config;

/// A reader of untrusted bytes.
pub type Reader = fn(&[u8]);

/// All of them, by the names of their targets and of their corpora.
#[must_use]
pub fn all() -> [(&'static str, Reader); 8] {
    [
        ("config", config),
        ("batch", batch),
        ("template", template),
        ("spool", spool),
        ("row", row),
        ("url", url),
        ("words", words),
        ("workflow", workflow),
    ]
}

/// What is told of a mistake can be printed: a terminal obeys control characters.
#[track_caller]
fn is_printable(text: &str) {
    let bad = text.chars().find(|c| *c != '\n' && is_unsafe(*c));
    assert!(bad.is_none(), "{bad:?} in {text:?}");
}

/// `ctrlrun.toml`, found by walking and not: an answer or a mistake with its line.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for found in [false, true] {
        let dir = Path::new("/a/folder");
        match read_config(text, dir, found) {
            Ok(layer) => {
                assert!(!found || (layer.store.is_none() && layer.spool.is_none()));
                assert!(!found || (layer.journal.is_none() && layer.hooks.ambiguous.is_none()));
                // Whatever is relative counts from the file's folder.
                assert!(layer.spool.iter().chain(&layer.journal).all(|path| path.is_absolute()));
                if let Some(Location::Sqlite(at)) = layer.store {
                    assert!(at.path.is_absolute());
                }
            }
            Err(problem) => is_printable(&problem.error(Path::new("x.toml"), text).human()),
        }
    }
}

/// The lines of a batch, from a file and from a pipe: what a file's check lets through is what both
/// give, and what a pipe gives before its first mistake is the beginning of that.
pub fn batch(bytes: &[u8]) {
    let table = |separator| {
        let words = ["./refund.sh", "{payment_id}", "{amount}"].map(Into::into);
        Format::table(separator, "refund:{payment_id}", &words).map_err(|error| error.human())
    };
    let formats = [
        Ok(Format::Json { effects: Arc::new(Effects::default()) }),
        table(Separator::Comma),
        table(Separator::Tab),
    ];
    for format in formats {
        let reading = Arc::new(Reading {
            format: format.unwrap_or_else(|told| panic!("{told}")),
            key_as_is: false,
        });
        let whole = of_file(bytes, &reading);
        if let Err(told) = &whole {
            is_printable(told);
        }
        let Some((lines, mistake)) = of_pipe(bytes, &reading) else {
            continue;
        };
        if let Some(told) = &mistake {
            is_printable(told);
        }
        match whole {
            Ok(all) => assert_eq!((&all, &mistake), (&lines, &None)),
            Err(_) => assert!(mistake.is_some(), "a file is refused, and a pipe is not"),
        }
        for line in lines {
            assert!(!line.command.is_empty());
            let nul = |word: &std::ffi::OsString| word.as_encoded_bytes().contains(&0);
            assert!(!line.command.iter().any(nul) && !line.bind.iter().any(nul));
            assert!(Key::new(line.key.as_str()).is_ok());
        }
    }
}

type BatchLine = crate::cli::batch::input::Line;

fn of_file(bytes: &[u8], reading: &Arc<Reading>) -> Result<Vec<BatchLine>, String> {
    // A file without a place on any disk.
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("batch", flags).map(File::from);
    let mut file = file.unwrap_or_else(|error| panic!("{error}"));
    let written = file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0)));
    written.unwrap_or_else(|error| panic!("{error}"));
    let source = Source::File(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let input = Input::open(&source, reading).map_err(|error| error.human())?;
    let total = input.total();
    let lines: Result<Vec<_>, _> = input.collect();
    let lines = lines.unwrap_or_else(|error| panic!("the check let it through: {error}"));
    assert_eq!(total, Some(lines.len() as u64));
    Ok(lines)
}

/// Its lines and what ended them; `None` if a pipe's buffer does not take it in one go.
fn of_pipe(bytes: &[u8], reading: &Arc<Reading>) -> Option<(Vec<BatchLine>, Option<String>)> {
    if bytes.len() > 32 * 1024 {
        return None;
    }
    let (reader, mut writer) = io::pipe().unwrap_or_else(|error| panic!("{error}"));
    writer.write_all(bytes).unwrap_or_else(|error| panic!("{error}"));
    let source = Source::File(PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd())));
    let input = Input::open(&source, reading);
    let input = input.unwrap_or_else(|error| panic!("a pipe: {}", error.human()));
    drop(writer);
    let (mut lines, mut mistake) = (Vec::new(), None);
    for line in input {
        assert!(mistake.is_none(), "it went on behind a mistake");
        match line {
            Ok(line) => lines.push(line),
            Err(error) => mistake = Some(error.to_string()),
        }
    }
    Some((lines, mistake))
}

/// A key's template and a command's: the first line is the template, each further one a value, by
/// turns of the placeholders.
pub fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default();
    let given: Vec<&str> = lines.collect();
    let parsed = match Template::parse(first) {
        Ok(parsed) => parsed,
        Err(bad) => {
            assert!((1..=first.chars().count()).contains(&bad.column()), "{bad:?}");
            return;
        }
    };
    let names: Vec<&str> = parsed.placeholders().map(|(name, _)| name).collect();
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in names.iter().zip(&given) {
        values.entry(name).or_insert(value);
    }
    assert_eq!(parsed.is_literal(), names.is_empty());
    if let Ok(key) = parsed.key(|name| values.get(name).copied()) {
        // A value is put in as it is, and a key that it made names these values, or more than one set.
        assert!(names.iter().all(|name| key.contains(values[name])));
        let own: BTreeMap<String, String> =
            names.iter().map(|name| ((*name).to_owned(), values[name].to_owned())).collect();
        match parsed.read_back(&key) {
            ReadBack::One(read) => assert_eq!(read, own),
            ReadBack::Several => {}
            ReadBack::No => panic!("{key:?} was made of it"),
        }
    } else {
        // What a key does not take an argument may.
        let _ = parsed.argument(|name| values.get(name).copied());
    }
    let _ = parsed.read_back(given.first().copied().unwrap_or_default());
    if let Ok(command) = CommandTemplate::parse(&["./a.sh", first, "{b}"])
        && let Ok(words) = command.fill(|name| values.get(name).copied().or(Some("v")))
    {
        assert_eq!(words.len(), 3, "no value adds an argument");
    }
}

/// A file of the spool: as it is, and with a checksum that is right, so that what is behind it is read.
pub fn spool(bytes: &[u8]) {
    let _ = spool::parse(bytes);
    let Ok(body) = std::str::from_utf8(bytes) else {
        return;
    };
    let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = |sum: &str, body: &str| format!("ctrlrun-spool-v1 sha256:{sum}\n{body}");
    if let Ok(read) = spool::parse(file(&sum, body).as_bytes()) {
        // What it says it says again when it is written and read once more.
        let body = serde_json::to_string(&read).unwrap_or_else(|error| panic!("{error}"));
        let sum: String =
            Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let again = spool::parse(file(&sum, &body).as_bytes());
        let again = again.unwrap_or_else(|why| panic!("{why}: {body}"));
        assert_eq!(format!("{read:?}"), format!("{again:?}"));
        let mut torn = file(&sum, &body).into_bytes();
        torn.pop();
        assert!(spool::parse(&torn).is_err(), "a torn file is believed");
    }
}

/// Rows as a store may hand them over: a record or a column that is named; and what is read comes back
/// as it was.
pub fn row(bytes: &[u8]) {
    let mut draw = Draw { bytes, at: 0 };
    let record = record(&mut draw);
    if let Some(record) = &record {
        match Row::of(record) {
            Ok(row) => assert_eq!(row.record().as_ref(), Ok(record)),
            Err(error) => panic!("{record:?} was read, and cannot be written: {error}"),
        }
    }
    let Ok(key) = Key::new("k") else { return };
    let (mut history, mut fold): (Vec<HistoryRow>, Option<Record>) = (Vec::new(), None);
    while let Some(row) = event(&mut draw) {
        if let Ok(row) = row.event() {
            let again = EventRow::of(&row).map(EventRow::event);
            assert!(matches!(&again, Ok(Ok(again)) if *again == row), "{row:?}: {again:?}");
            // What cannot follow is an error and nothing else.
            match evolve(&key, fold.take(), &row) {
                Ok(next) => fold = Some(next),
                Err(_) => return,
            }
            history.push(row);
        }
    }
    for record in record.iter().chain(&fold) {
        let now = Timestamp(i64::MAX);
        let _ = retention::key(record, &history, now, Duration::ZERO);
        let _ = retention::key(record, &history, Timestamp(i64::MIN), Duration::MAX);
        let _ = record.is_lapsed(now);
    }
}

fn record(draw: &mut Draw<'_>) -> Option<Record> {
    let states = ["reserved", "executing", "committed", "failed", "ambiguous", ""];
    let causes =
        ["lapsed", "exit", "signal", "timeout", "contradiction", "late_outcome", "reopened", "x"];
    let row = Row {
        effect_key: draw.text(),
        record_version: draw.int(),
        write_id: draw.id(),
        reservation_id: draw.id(),
        state: draw.one_of(&states),
        first_attempt: draw.int(),
        attempt: draw.int(),
        attempt_id: draw.text(),
        fingerprint: [draw.byte(); 32],
        program: draw.text(),
        arguments: draw.int(),
        command: draw.maybe(Draw::text),
        lease_expires_at: draw.maybe(Draw::int),
        cause: draw.maybe(|draw| draw.one_of(&causes)),
        reaped: draw.byte() % 2 == 1,
        in_doubt: draw.byte() % 2 == 1,
        doubted: draw.byte() % 2 == 1,
        exit_code: draw.maybe(Draw::int),
        signal: draw.maybe(Draw::int),
        detail: draw.maybe(Draw::text),
        resolved_by: draw.maybe(Draw::text),
        reason: draw.maybe(Draw::text),
        proven_failures: draw.int(),
        run_id: draw.maybe(Draw::text),
        created_at: draw.int(),
        updated_at: draw.int(),
    };
    match row.record() {
        Ok(record) => Some(record),
        Err(error) => {
            assert!(!error.column.is_empty());
            None
        }
    }
}

/// The next event; `None` at the end of the bytes.
fn event(draw: &mut Draw<'_>) -> Option<EventRow> {
    let kinds = [
        "reserved",
        "began",
        "lease_renewed",
        "committed",
        "failed",
        "ambiguated",
        "late_outcome",
        "probed",
        "resolved",
        "reopened",
        "x",
    ];
    (draw.at < draw.bytes.len()).then(|| EventRow {
        revision: draw.int(),
        write_id: draw.id(),
        outcome_id: draw.maybe(Draw::id),
        kind: draw.one_of(&kinds),
        attempt: draw.int(),
        recorded_at: draw.int(),
        data: draw.text(),
    })
}

/// Values out of bytes, one after the other; behind the end all are 0.
struct Draw<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// Mostly small, and at times one of the ends.
    fn int(&mut self) -> i64 {
        match self.byte() {
            255 => i64::MAX,
            254 => i64::MIN,
            253 => -1,
            252 => i64::from(u32::MAX) + 1,
            small => small.into(),
        }
    }

    fn id(&mut self) -> Uuid {
        Uuid::from_u128(self.byte().into())
    }

    fn maybe<T>(&mut self, of: impl Fn(&mut Self) -> T) -> Option<T> {
        (self.byte() % 2 == 1).then(|| of(self))
    }

    fn one_of(&mut self, all: &[&str]) -> String {
        let at = usize::from(self.byte());
        all.get(at % all.len()).copied().unwrap_or_default().to_owned()
    }

    /// Up to the next NUL.
    fn text(&mut self) -> String {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        self.at += end + 1;
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }
}

/// `--store`: a path, or a connection string; the lines behind the first are the files that it leads to.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match Location::parse(first) {
        Ok(location @ Location::Sqlite(_)) => {
            let shown = location.to_string();
            assert_eq!(Location::parse(&shown), Ok(location), "{shown:?}");
        }
        Ok(Location::Postgres(at)) => {
            // What is shown can be shown again, and nothing more comes out of it.
            let shown = at.redacted();
            let again = Location::parse(&shown);
            if let Ok(Location::Postgres(again)) = again {
                assert_eq!(again.redacted(), shown);
            }
            connection(first, rest, &shown);
        }
        Err(error) => assert!(error.hint.is_some(), "{}", error.message),
    }
}

/// A connection string against a process with these files.
fn connection(url: &str, files: &str, shown: &str) {
    let account = || Some(Account { name: "me".to_owned(), home: PathBuf::from("/home/me") });
    let seen = |_: &Path| {
        let bytes = files.as_bytes().to_vec();
        Ok(Seen { bytes, mode: 0o600, uid: nix::unistd::geteuid().as_raw(), regular: true })
    };
    let here = Here {
        env: BTreeMap::from([("PGSERVICEFILE".to_owned(), "/s".to_owned())]),
        unreadable: Vec::new(),
        account: &account,
        files: &seen,
    };
    match Conninfo::parse(url, &here) {
        Ok(info) => {
            assert!(!info.hosts.is_empty());
            // A password that stands in the URL, and nowhere else in it, is not in what is shown.
            for password in info.hosts.iter().filter_map(|host| host.password.as_ref()) {
                let password = password.reveal();
                let is_telling = password.len() >= 6 && url.matches(password).count() == 1;
                if info.password_in_url && is_telling {
                    assert!(!shown.contains(password), "{shown:?} shows {password:?}");
                    assert!(!format!("{info:?}").contains(password));
                }
            }
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty());
        }
    }
}

/// What a child and a probe say, and what a person has written into a file of decisions.
pub fn words(bytes: &[u8]) {
    let said = Said::read(bytes);
    assert_eq!(format!("{said:?}"), format!("{:?}", Said::read(bytes)));
    let printed = |head, tail, whole| Printed { head, tail, whole };
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    for printed in [printed(bytes, &[], true), printed(head, tail, false)] {
        for ended in [Ended::Code(0), Ended::Code(1), Ended::Signal(None), Ended::EndedByUs] {
            let answer = probe::answer(ended, printed);
            // Only a probe that exited 0 and said one of two words says anything.
            assert!(ended == Ended::Code(0) || answer.is_err(), "{answer:?}");
        }
    }
    let mut lines = Lines::new(Cursor::new(bytes), "me".to_owned());
    let mut last = 0;
    loop {
        match lines.read() {
            Ok(Read1::Decision(number, decided)) => {
                assert!(number > last && Key::new(decided.key.as_str()).is_ok());
                last = number;
            }
            Ok(Read1::Wrong(wrong)) => {
                assert!(wrong.number > last && !wrong.why.is_empty());
                last = wrong.number;
            }
            Ok(Read1::End) => break,
            Err(error) => panic!("bytes in memory: {error}"),
        }
    }
}

/// A workflow's file: a definition without a fault, or all that is wrong with it, by line. What is read
/// says the same when a store gives it back.
pub fn workflow(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let named = |name: &str| {
        (name == "refund").then(|| file::Named {
            key: "refund:{id}".to_owned(),
            command: vec!["./refund.sh".to_owned(), "{id}".to_owned()],
            takes: ["id".to_owned()].into(),
            ..file::Named::default()
        })
    };
    match file::parse(text, &named) {
        Ok(definition) => {
            let complaints = check(&definition);
            assert!(complaints.is_empty(), "{complaints:?}");
            let stored =
                serde_json::to_string(&definition).unwrap_or_else(|error| panic!("{error}"));
            let again: Result<Definition, _> = serde_json::from_str(&stored);
            assert!(again.as_ref().is_ok_and(|again| *again == definition), "{again:?}");
        }
        Err(wrong) => {
            assert!(!wrong.is_empty());
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            for wrong in wrong {
                assert!((1..=lines).contains(&wrong.line), "{wrong:?}");
                assert!(!wrong.what.is_empty());
            }
        }
    }
}
