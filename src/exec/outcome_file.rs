//! The file in which a child says what came of its effect.

use std::{
    env, fs,
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The most that is read of an outcome file, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 64 * 1024;

/// A file at a path that nobody can guess, empty and there before the child starts (mode 0600).
///
/// One is made for each attempt. It is removed when the value is dropped.
#[derive(Debug)]
pub struct OutcomeFile {
    path: PathBuf,
}

/// What was found at the path after the child had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomeRead {
    /// The whole content, at most [`OUTCOME_BYTES_MAX`] bytes, empty if nothing was said. Not checked to be UTF-8.
    Bytes(Vec<u8>),
    /// Nothing is there any more.
    Gone,
    /// More than [`OUTCOME_BYTES_MAX`] bytes.
    TooLong,
    /// Something is there that cannot be read as a file; the text says why.
    Unreadable(String),
}

impl OutcomeFile {
    /// Makes a new, empty file in `dir`, or in `$TMPDIR` (else /tmp).
    ///
    /// # Errors
    /// Where no file can be made there: nothing has run, so the caller can refuse.
    pub fn create(dir: Option<&Path>) -> io::Result<Self> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = dir.map_or_else(env::temp_dir, Path::to_path_buf);
        // A relative $TMPDIR must not depend on where the child has changed its directory to.
        let path = std::path::absolute(dir)?.join(format!("ctrlrun-{name}"));
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = Self { path };
        // The caller's umask may have taken the owner's own bits away.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        Ok(made)
    }

    /// Where it is: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what was said. To be called once, after the child was reaped: what a descendant
    /// writes later is not looked at.
    #[must_use]
    pub fn read(&self) -> OutcomeRead {
        match self.read_bounded() {
            Ok(bytes) if bytes.len() > OUTCOME_BYTES_MAX => OutcomeRead::TooLong,
            Ok(bytes) => OutcomeRead::Bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => OutcomeRead::Gone,
            Err(error) => OutcomeRead::Unreadable(error.to_string()),
        }
    }

    fn read_bounded(&self) -> io::Result<Vec<u8>> {
        // The child may have put anything there: a pipe must not hang us, nor a link lead elsewhere.
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY)
            .open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(OUTCOME_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for OutcomeFile {
    fn drop(&mut self) {
        // Where it is gone already, or a directory now, there is nothing that could be mended here.
        let _ = fs::remove_file(&self.path);
    }
}
