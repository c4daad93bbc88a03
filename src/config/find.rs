//! Which files there are, and whether they can be trusted (CFG-5).
//!
//! A plain run pays for this with one failing `open` for each place: nothing is looked at twice.
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ctrlrun::drive::reach::is_absent;
use nix::fcntl::OFlag;
use nix::unistd::{User, geteuid};

use crate::cli::error::{CliError, Hint, Kind};
use crate::cli::render::shell::quote;
use crate::cli::render::text::clean;

/// The variable that names a file.
pub const CONFIG_VARIABLE: &str = "CTRLRUN_CONFIG";

/// The name of every file that is not named.
const NAME: &str = "ctrlrun.toml";

/// Where the machine's own is.
const SYSTEM: &str = "/etc/ctrlrun/ctrlrun.toml";

/// No file is longer.
const BYTES_MAX: u64 = 1 << 20;

/// What the choice of files depends on; read once, so that it can be tested.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--config`.
    pub flag: Option<OsString>,
    /// `CTRLRUN_CONFIG`.
    pub variable: Option<OsString>,
    /// The machine's own file.
    pub system: PathBuf,
    /// `XDG_CONFIG_HOME`.
    pub config_home: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
    /// The working directory, where a file is looked for from there up.
    pub walk_from: Option<PathBuf>,
}

impl Surroundings {
    /// The process's own, with what the flag said.
    #[must_use]
    pub fn of_process(flag: Option<OsString>, walk: bool) -> Self {
        Self {
            flag,
            variable: std::env::var_os(CONFIG_VARIABLE),
            system: SYSTEM.into(),
            config_home: std::env::var_os("XDG_CONFIG_HOME"),
            home: std::env::var_os("HOME"),
            walk_from: if walk { std::env::current_dir().ok() } else { None },
        }
    }
}

/// A file that is there.
#[derive(Debug)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// Whether the working directory led to it.
    pub by_walking: bool,
}

/// The files, the weakest first.
///
/// # Errors
/// 78: a name that is set but empty, a file that cannot be read, or one that is not to be trusted.
pub fn files(from: &Surroundings) -> Result<Vec<Found>, CliError> {
    let named = [(&from.flag, "--config"), (&from.variable, CONFIG_VARIABLE)];
    if let Some((name, what)) = named.into_iter().find_map(|(v, what)| Some((v.as_ref()?, what))) {
        if name.is_empty() {
            let words = format!("{what} is set but empty: nothing was done. Give it a file's name");
            return Err(CliError::new(Kind::Config, words));
        }
        let path = std::path::absolute(name).unwrap_or_else(|_| name.into());
        let opened = open(&path).map_err(|error| unreadable(&path, &error))?;
        return Ok(vec![Found { text: text(&path, opened)?, path, by_walking: false }]);
    }
    let mut files = Vec::new();
    let mut seen = Vec::new();
    let user = user_file(from)?;
    for path in [Some(from.system.clone()), user].into_iter().flatten() {
        let Some((opened, found)) = there(&path)? else {
            continue;
        };
        trusted(&path, &found)?;
        seen.push((found.dev(), found.ino()));
        files.push(Found { text: text(&path, (opened, found))?, path, by_walking: false });
    }
    let Some(start) = &from.walk_from else {
        return Ok(files);
    };
    for dir in start.ancestors() {
        let path = dir.join(NAME);
        let found = match there(&path) {
            Ok(None) => continue,
            found if is_beyond(start, dir, from.home.as_ref()) => {
                drop(found);
                break;
            }
            found => found?,
        };
        let Some((opened, found)) = found else {
            break;
        };
        // In ~/.config/ctrlrun it is the user's own, which may say everything.
        if !seen.contains(&(found.dev(), found.ino())) {
            trusted(&path, &found)?;
            trusted_folder(&path, dir)?;
            files.push(Found { text: text(&path, (opened, found))?, path, by_walking: true });
        }
        break;
    }
    Ok(files)
}

/// `~/.config/ctrlrun/ctrlrun.toml`.
fn user_file(from: &Surroundings) -> Result<Option<PathBuf>, CliError> {
    // Empty counts as unset: the XDG specification says so.
    if let Some(config_home) = from.config_home.as_ref().filter(|value| !value.is_empty()) {
        let path = Path::new(config_home);
        if path.is_relative() {
            let words = format!(
                "XDG_CONFIG_HOME ({}) is not an absolute path, so the configuration would depend on \
                 the working directory: nothing was done",
                clean(&path.to_string_lossy())
            );
            return Err(CliError::new(Kind::Config, words));
        }
        return Ok(Some(path.join("ctrlrun").join(NAME)));
    }
    let home = match &from.home {
        Some(home) => Some(PathBuf::from(home)),
        None => User::from_uid(geteuid()).ok().flatten().map(|user| user.dir),
    };
    // One that is nobody's home leads to no default store either (CLI-1).
    let home = home.filter(|home| home.is_absolute());
    Ok(home.map(|home| home.join(".config").join("ctrlrun").join(NAME)))
}

/// Opens without waiting: a pipe in a file's place holds nobody up.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

/// The file, if there is one.
fn there(path: &Path) -> Result<Option<(File, Metadata)>, CliError> {
    match open(path) {
        Ok(opened) => Ok(Some(opened)),
        // A folder that may not be searched and is another user's: HOME is not ours. But a file that may
        // not be read could name the store, and so could one that cannot be reached.
        Err(error) if is_absent(path, &error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Whether a boundary lies between the working directory and `dir`: the home directory, a
/// repository's root, or a mount (CFG-5).
#[must_use]
pub fn is_beyond(start: &Path, dir: &Path, home: Option<&OsString>) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let home = home.and_then(|home| identity(Path::new(home)));
    start.ancestors().take_while(|below| *below != dir).any(|below| {
        let (own, above) = (identity(below), below.parent().and_then(identity));
        let is_home = home.is_some() && own == home;
        let is_mount = own.map(|(device, _)| device) != above.map(|(device, _)| device);
        let is_repository =
            [".git", ".hg", ".jj", ".svn"].iter().any(|dot| below.join(dot).exists());
        is_home || is_mount || is_repository
    })
}

/// A file that nobody else could have changed.
fn trusted(path: &Path, found: &Metadata) -> Result<(), CliError> {
    if let Some(owner) = stranger(found) {
        return Err(refused(path, &format!("it belongs to {owner}")).hint(naming()));
    }
    // A group of the owner's own number is the owner's alone, as many systems have it.
    let by_group = found.mode() & 0o020 != 0 && found.gid() != found.uid();
    let by_all = found.mode() & 0o002 != 0;
    if by_all || by_group {
        let whom = if by_all { "everybody" } else { "its group" };
        let line = format!("chmod go-w {}", quote(path));
        return Err(
            refused(path, &format!("{whom} may write to it")).hint(Hint::command("mend", line))
        );
    }
    Ok(())
}

/// A folder into which nobody else could have put it: a file of ours under a name of theirs, by a
/// link, would pass for one that we meant.
fn trusted_folder(path: &Path, dir: &Path) -> Result<(), CliError> {
    let found = fs::metadata(dir).map_err(|error| unreadable(path, &error))?;
    if let Some(owner) = stranger(&found) {
        return Err(refused(path, &format!("its folder belongs to {owner}")).hint(naming()));
    }
    if found.mode() & 0o002 != 0 {
        return Err(refused(path, "everybody may write to its folder").hint(naming()));
    }
    Ok(())
}

/// The owner, if it is neither us nor root.
fn stranger(found: &Metadata) -> Option<String> {
    if found.uid() == geteuid().as_raw() || found.uid() == 0 {
        return None;
    }
    let owner = User::from_uid(found.uid().into()).ok().flatten();
    Some(owner.map_or_else(|| format!("uid {}", found.uid()), |user| clean(&user.name).into()))
}

fn naming() -> Hint {
    Hint::words("if it is to be used", "name it by --config or CTRLRUN_CONFIG")
}

fn refused(path: &Path, why: &str) -> CliError {
    let shown = path.to_string_lossy();
    let words =
        format!("{}: this configuration is refused: {why}: nothing was done", clean(&shown));
    CliError::new(Kind::Config, words)
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    let shown = path.to_string_lossy();
    let words = format!("{}: this configuration cannot be read: nothing was done", clean(&shown));
    CliError::new(Kind::Config, words).because(error)
}

fn text(path: &Path, (file, found): (File, Metadata)) -> Result<String, CliError> {
    if found.is_dir() {
        return Err(unreadable(path, &ErrorKind::IsADirectory.into()));
    }
    // One whose writer is not there yet reads as an empty file, that is, as no configuration at all.
    let is_pipe = found.file_type().is_fifo() || found.file_type().is_socket();
    if is_pipe {
        let error = io::Error::other("it is a pipe: give it a file");
        return Err(unreadable(path, &error));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(unreadable(path, &io::Error::other("it is longer than 1 MiB")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        unreadable(path, &io::Error::other(format!("line {} is not UTF-8", line + 1)))
    })
}
