//! The report of a batch: one object a line, as effects end (BAT-18).
use std::fs::File;
use std::io::{BufWriter, Write};

use ctrlrun::drive::batch::Ended;
use ctrlrun::exec::Exit;
use ctrlrun::plan::attempt::Outcome;
use serde_json::{Map, Value, json};

use super::BatchArgs;
use crate::cli::Global;
use crate::cli::access::Opened;
use crate::cli::error::CliError;
use crate::cli::hooks::Hook;
use crate::cli::run::report::{object, open, refused};
use crate::cli::terminal::say;

/// The report that is being made, if one was asked for.
pub struct Report(Option<BufWriter<File>>);

impl Report {
    /// Opens the file, before anything is reserved.
    ///
    /// # Errors
    /// 66 if it cannot be opened; 64 if it is a part of the store.
    pub fn open(args: &BatchArgs, global: &Global) -> Result<Self, CliError> {
        let file = args.report.as_deref().map(|path| open(path, global)).transpose()?;
        Ok(Self(file.map(BufWriter::new)))
    }

    /// Writes what came of one line. What was run is run: a report that cannot be written is only
    /// told, once.
    pub fn line(
        &mut self,
        ended: &Ended,
        told: Option<&CliError>,
        opened: &Opened,
        global: &Global,
    ) {
        let hook = Hook::after(&ended.ran, global);
        if self.0.is_none() && hook.is_none() {
            return;
        }
        let line = line(ended, told, opened).to_string();
        // Each line at once: whoever follows the file sees it, and a crash loses none.
        if let Some(file) = &mut self.0
            && let Err(error) = writeln!(file, "{line}").and_then(|()| file.flush())
        {
            say(&format!("warning: the report cannot be written: {error}"));
            self.0 = None;
        }
        // The children of other lines go on meanwhile; what came of them is told after it (AFT-8).
        if let Some(hook) = hook {
            hook.run(&format!("{line}\n"), global);
        }
    }
}

fn line(ended: &Ended, told: Option<&CliError>, opened: &Opened) -> Value {
    let (item, ran) = (&ended.item, &ended.ran);
    let mut fields = match opened.look(&item.key) {
        Ok(Some(shown)) => match object(&shown, opened) {
            Value::Object(fields) => fields,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        },
        Ok(None) | Err(_) => Map::new(),
    };
    fields.entry("key").or_insert_with(|| json!(item.key.as_str()));
    let child = ran.child.as_ref().filter(|_| ran.report.ran);
    let status = match (told, child.map(|child| child.exit)) {
        (None, _) => 0,
        (Some(_), Some(Exit::Code(code @ 1..))) => code,
        (Some(_), Some(Exit::Signal { number, .. })) => 128 + number,
        (Some(told), Some(Exit::Code(_) | Exit::Lost) | None) => i32::from(told.exit().0),
    };
    let took = child.map(|child| child.duration.as_millis());
    fields.insert("line".to_owned(), json!(item.number));
    fields.insert("ran".to_owned(), json!(ran.report.ran));
    let replayed = matches!(ran.report.result, Outcome::CommittedAlready);
    fields.insert("replayed".to_owned(), json!(replayed));
    fields.insert("refused".to_owned(), json!(refused(ran)));
    fields.insert("exit_status".to_owned(), json!(status));
    fields.insert(
        "duration_ms".to_owned(),
        json!(took.map_or(0, |took| u64::try_from(took).unwrap_or(u64::MAX))),
    );
    if let Some(told) = told {
        fields.insert("message".to_owned(), json!(told.message()));
        fields.entry("next").or_insert_with(|| json!(told.commands().collect::<Vec<_>>()));
    }
    Value::Object(fields)
}
