//! One connection. Every exchange on it has a deadline of ours, and one that ended in doubt is the
//! last: what a late answer would belong to could no longer be told (CON-7).
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage};

use super::line::Tap;

/// How long a goodbye may take. It is one write that does not wait for an answer.
const GOODBYE: Duration = Duration::from_millis(50);

/// Why an exchange gave no answer that counts.
///
/// Once COMMIT was sent, only [`LinkError::Server`] can prove anything, and not every one of those
/// (CMT-5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Our deadline passed.
    #[error("no answer within {0:.1?}")]
    Deadline(Duration),
    /// The connection ended, or an earlier exchange on it ended in doubt.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The server said no.
    #[error("{0}")]
    Server(ServerError),
    /// The answer made no sense to us.
    #[error("the answer cannot be understood: {0}")]
    Odd(String),
}

/// An error that the server reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// SQLSTATE.
    pub code: String,
    /// Its severity, whatever the server's language; `None` if it did not say.
    pub severity: Option<Severity>,
    /// The text; for people only, it is in the server's language.
    pub message: String,
    /// More of it.
    pub detail: Option<String>,
    /// The server's own advice.
    pub hint: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} (SQLSTATE {})", self.message, self.code)?;
        self.detail.iter().try_for_each(|detail| write!(to, ": {detail}"))
    }
}

impl ServerError {
    pub(super) fn of(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            code: error.code().code().to_owned(),
            severity: error.parsed_severity(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        }
    }
}

/// What the server said of itself when the connection was made; nothing had to be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// `15.18 (Debian ...)`.
    pub version: Option<String>,
    /// `UTF8`, or a store cannot be there.
    pub encoding: Option<String>,
    /// It is a standby; told by 14 and later, hidden by most poolers.
    pub standby: Option<bool>,
    /// Its transactions are read-only unless begun otherwise; told as above.
    pub read_only: Option<bool>,
}

/// What COMMIT was answered with.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is committed.
    Yes,
    /// The server had rolled it back before, and says so by the tag alone.
    RolledBack,
}

/// How the connection ended, once it has.
pub(super) type Fate = Arc<Mutex<Option<String>>>;

/// The parts that [`super::connect`] puts together.
pub(super) struct Parts {
    pub client: Client,
    pub task: JoinHandle<()>,
    pub tap: Arc<Mutex<Tap>>,
    pub fate: Fate,
    pub server: Server,
}

/// One connection to one server.
pub struct Link {
    runtime: Option<Runtime>,
    client: Option<Client>,
    task: Option<JoinHandle<()>>,
    tap: Arc<Mutex<Tap>>,
    fate: Fate,
    dead: AtomicBool,
    /// What the server said of itself.
    pub server: Server,
    /// The host it is at, for messages.
    pub host: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Link").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(runtime: Runtime, parts: Parts, host: String) -> Self {
        Self {
            runtime: Some(runtime),
            client: Some(parts.client),
            task: Some(parts.task),
            tap: parts.tap,
            fate: parts.fate,
            dead: AtomicBool::new(false),
            server: parts.server,
            host,
        }
    }

    /// Runs one exchange, for at most `within`.
    ///
    /// # Errors
    /// [`LinkError`]. After any but an ordinary error of the server the link is dead.
    pub fn run<T, F>(&self, within: Duration, exchange: F) -> Result<T, LinkError>
    where
        F: AsyncFnOnce(&Client) -> Result<T, Error>,
    {
        let (Some(runtime), Some(client)) = (&self.runtime, &self.client) else {
            return Err(LinkError::Lost("it is closed".into()));
        };
        if self.dead.load(Ordering::Acquire) {
            return Err(LinkError::Lost("an earlier exchange ended in doubt".into()));
        }
        let ended =
            runtime.block_on(async { tokio::time::timeout(within, exchange(client)).await });
        let error = match ended {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => self.classify(&error),
            Err(_) => LinkError::Deadline(within),
        };
        let survives = match &error {
            LinkError::Server(error) => error.severity == Some(Severity::Error),
            LinkError::Deadline(_) | LinkError::Lost(_) | LinkError::Odd(_) => false,
        };
        if !survives {
            self.dead.store(true, Ordering::Release);
        }
        Err(error)
    }

    fn classify(&self, error: &Error) -> LinkError {
        if let Some(error) = error.as_db_error() {
            return LinkError::Server(ServerError::of(error));
        }
        let source = std::error::Error::source(error);
        if error.is_closed() || source.is_some_and(|source| source.is::<std::io::Error>()) {
            let fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
            return LinkError::Lost(fate.clone().unwrap_or_else(|| plain(error)));
        }
        LinkError::Odd(plain(error))
    }

    /// No further exchange is possible.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire) || self.client.as_ref().is_none_or(Client::is_closed)
    }

    /// Statements without parameters or answers, separated by semicolons, in one round trip.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn batch(&self, sql: &str, within: Duration) -> Result<(), LinkError> {
        self.run(within, async |client| client.batch_execute(sql).await)
    }

    /// The same with answers, as texts. It stops at the first statement that fails.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn simple(
        &self,
        sql: &str,
        within: Duration,
    ) -> Result<Vec<SimpleQueryMessage>, LinkError> {
        self.run(within, async |client| client.simple_query(sql).await)
    }

    /// Whether the server said with its last answer that it is in a transaction.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.tap.lock().unwrap_or_else(PoisonError::into_inner).in_transaction()
    }

    /// One statement with typed parameters, never prepared by name, in one round trip; all its rows.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn query(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
        within: Duration,
    ) -> Result<Vec<Row>, LinkError> {
        self.run(within, async |client| client.query_typed(sql, params).await)
    }

    /// The same; how many rows it changed.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn execute(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
        within: Duration,
    ) -> Result<u64, LinkError> {
        self.run(within, async |client| client.execute_typed(sql, params).await)
    }

    /// COMMIT, and whether it was one (CON-8). Never to be called after an error in the transaction: the
    /// server would answer, and the answer would be about nothing (CMT-5).
    ///
    /// # Errors
    /// [`LinkError`]. It says nothing about whether the transaction is committed, but by the
    /// codes that CMT names.
    pub fn commit(&self, within: Duration) -> Result<Committed, LinkError> {
        let tap = || self.tap.lock().unwrap_or_else(PoisonError::into_inner);
        drop(tap().take_tag());
        self.batch("COMMIT", within)?;
        let tag = tap().take_tag();
        match tag.as_deref() {
            Some("COMMIT") => Ok(Committed::Yes),
            Some("ROLLBACK") => Ok(Committed::RolledBack),
            Some(_) | None => {
                self.dead.store(true, Ordering::Release);
                Err(LinkError::Odd("COMMIT was answered with another command's tag".into()))
            }
        }
    }
}

/// The error with its causes.
pub(super) fn plain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

impl Drop for Link {
    /// Says goodbye, so that neither server nor pooler logs a lost client, and waits for nothing.
    fn drop(&mut self) {
        drop(self.client.take());
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(task) = self.task.take() {
            let ended = runtime.block_on(async { tokio::time::timeout(GOODBYE, task).await });
            // The server learns of the end by the closed socket at the latest.
            drop(ended);
        }
        // A name look-up that still hangs must not hold us.
        runtime.shutdown_background();
    }
}
