//! A line, made ready to be run.
use std::ffi::OsString;
use std::time::Duration;

use ctrlrun::drive::batch::Item;
use ctrlrun::plan::verdict::NotExecuted;

use super::BatchArgs;
use super::input::Line;
use crate::cli::Global;
use crate::cli::run::request::bound_to;
use crate::config::RecordCommand;

/// How soon a crash is noticed, where nothing says otherwise.
const LEASE: Duration = Duration::from_secs(300);

/// What stands where a line does not say otherwise.
#[derive(Debug, Clone)]
pub struct Defaults {
    not_executed: Option<NotExecuted>,
    timeout: Option<Duration>,
    lease: Duration,
    record: RecordCommand,
}

impl Defaults {
    /// Flags, then the configuration.
    #[must_use]
    pub fn of(args: &BatchArgs, global: &Global) -> Self {
        let configured = &global.settings.defaults;
        Self {
            not_executed: args.not_executed.clone(),
            timeout: args.timeout,
            lease: args.lease.or(configured.lease).unwrap_or(LEASE),
            record: configured.record_command.unwrap_or_default(),
        }
    }

    /// The effect of a line.
    #[must_use]
    pub fn item(&self, line: Line) -> Item {
        let request = bound_to(&line.command, &line.bind, self.record);
        let mut words = line.command.into_iter();
        let program: OsString = words.next().unwrap_or_default();
        let said = line.settings;
        Item {
            number: line.number,
            key: line.key,
            request,
            program,
            args: words.collect(),
            not_executed: said.not_executed.or(self.not_executed.clone()).unwrap_or_default(),
            timeout: said.timeout.or(self.timeout),
            lease: said.lease.unwrap_or(self.lease),
            max_attempts: said.max_attempts,
        }
    }
}
