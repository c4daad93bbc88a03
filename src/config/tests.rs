//! Files in a place of their own, read as a process would.
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::cli::error::Kind;

struct Place {
    root: tempfile::TempDir,
    from: Surroundings,
}

impl Place {
    /// `etc`, `home/.config/ctrlrun` and `home/proj/deep`, where a process stands.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for dir in ["etc", "home/.config/ctrlrun", "home/proj/deep"] {
            fs::create_dir_all(path(dir)).unwrap();
        }
        let from = Surroundings {
            system: path("etc/ctrlrun.toml"),
            home: Some(path("home").into()),
            walk_from: Some(path("home/proj/deep")),
            ..Surroundings::default()
        };
        Self { root, from }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        path
    }

    fn load(&self) -> Config {
        load_from(&self.from).unwrap_or_else(|error| panic!("{}", error.human()))
    }

    fn refusal(&self) -> String {
        let error = load_from(&self.from).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        error.human().replace(self.root.path().to_str().unwrap(), "")
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn lease(text: &str) -> String {
    format!("[defaults]\nlease = \"{text}\"\n")
}

/// What is told of a text that is named by `--config`.
fn told(text: &str) -> String {
    let mut place = Place::new();
    place.from.flag = Some(place.write("c.toml", text).into());
    place.refusal()
}

const ALL: &str = r#"
[store]
url = "sqlite:effects.db"
[defaults]
lease = "7m"
capture = "1MiB"
record_command = "full"
[hooks]
ambiguous = ["./page.sh", "x"]
failed = ["logger", "-t", "ctrlrun"]
[spool]
dir = "spool"
[journal]
file = "/var/log/journal.jsonl"
[effect.refund]
key = "refund:{payment_id}"
command = ["./refund.sh", "{payment_id}", "{amount}"]
not_executed = [6, 11]
timeout = "30s"
lease = "1m"
retries = 2
backoff = "2s"
max_attempts = 5
reconcile = ["./was-it.sh", "{payment_id}"]
reconcile_final = true
"#;

#[test]
fn a_file_says_all_of_it() {
    // CFG-7, CFG-8, CFG-9, CFG-10
    let mut place = Place::new();
    place.from.flag = Some(place.write("etc/named.toml", ALL).into());
    let config = place.load();
    let at = |name: &str| place.path(name);
    let (store, file) = config.store.as_ref().unwrap();
    assert_eq!(*store, Location::file(at("etc/effects.db")));
    assert_eq!(*file, at("etc/named.toml"));
    assert_eq!(config.defaults.lease, Some(Duration::from_secs(420)));
    assert_eq!(config.defaults.capture, Some(Capture::Bytes(1 << 20)));
    assert_eq!(config.defaults.record_command, Some(RecordCommand::Full));
    let page = at("etc/./page.sh").to_str().unwrap().to_owned();
    assert_eq!(config.hooks.ambiguous, Some(vec![page, "x".to_owned()]));
    assert_eq!(config.hooks.failed.as_ref().unwrap()[0], "logger");
    assert_eq!(config.hooks.committed, None);
    assert_eq!(config.spool, Some(at("etc/spool")));
    assert_eq!(config.journal, Some("/var/log/journal.jsonl".into()));
    let refund = config.effects.get("refund").unwrap();
    let settings = &refund.settings;
    assert!(settings.not_executed.as_ref().unwrap().has(11));
    assert_eq!(settings.timeout, Some(Duration::from_secs(30)));
    assert_eq!(settings.lease, Some(Duration::from_secs(60)));
    assert_eq!((settings.retries, settings.max_attempts), (Some(2), Some(5)));
    assert_eq!(settings.backoff, Some(Duration::from_secs(2)));
    assert!(refund.reconcile.is_some() && refund.reconcile_final);
    assert_eq!(refund.parameters(), ["payment_id", "amount"]);
    assert_eq!(config.effects.names().collect::<Vec<_>>(), ["refund"]);
}

#[test]
fn later_files_override_earlier_ones_value_by_value() {
    // CFG-5, CFG-8
    let place = Place::new();
    assert_eq!(place.load(), Config::default());
    let effect = |key: &str| format!("[effect.e]\nkey = \"{key}\"\ncommand = [\"x\"]\n");
    let own = place
        .write("etc/ctrlrun.toml", &format!("{}capture = \"none\"\n{}", lease("1m"), effect("a")));
    let user = place
        .write("home/.config/ctrlrun/ctrlrun.toml", &format!("{}{}", lease("2m"), effect("b")));
    let config = place.load();
    assert_eq!(config.defaults.lease, Some(Duration::from_secs(120)));
    assert_eq!(config.defaults.capture, Some(Capture::Nothing));
    assert_eq!(
        config.effects.get("e").unwrap().key,
        ctrlrun::plan::template::Template::parse("b").unwrap()
    );
    let found = place.write("home/proj/ctrlrun.toml", &lease("3m"));
    let config = place.load();
    assert_eq!(config.defaults.lease, Some(Duration::from_secs(180)));
    assert_eq!(config.files, [own, user, found]);
    // The nearest, and no other.
    place.write("home/proj/deep/ctrlrun.toml", &lease("4m"));
    let config = place.load();
    assert_eq!((config.defaults.lease, config.files.len()), (Some(Duration::from_secs(240)), 3));
}

#[test]
fn a_file_that_is_named_is_the_only_one() {
    // CFG-5, case 61
    let mut place = Place::new();
    place.write("etc/ctrlrun.toml", &lease("1m"));
    place.write("home/proj/ctrlrun.toml", &lease("3m"));
    let named = place.write("c.toml", "[defaults]\ncapture = \"none\"\n");
    place.from.variable = Some(named.clone().into());
    let config = place.load();
    assert_eq!((config.defaults.lease, config.files), (None, vec![named.clone()]));
    place.from.flag = Some(place.write("d.toml", "").into());
    assert_eq!(place.load().files, [place.path("d.toml")]);
    place.from.flag = Some("".into());
    assert!(place.refusal().starts_with("ctrlrun: --config is set but empty: nothing was done."));
    place.from.flag = None;
    place.from.variable = Some("".into());
    assert!(place.refusal().starts_with("ctrlrun: CTRLRUN_CONFIG is set but empty"));
    place.from.variable = Some(place.path("gone.toml").into());
    assert!(place.refusal().contains("/gone.toml: this configuration cannot be read"));
    place.from.variable = Some(place.path("etc").into());
    assert!(place.refusal().contains("/etc: this configuration cannot be read"));
}

#[test]
fn the_walk_ends_at_the_home_directory_a_repository_and_a_mount() {
    // CFG-5
    let place = Place::new();
    place.write("ctrlrun.toml", &lease("1m"));
    assert_eq!(place.load().files.len(), 0, "it went above the home directory");
    place.write("home/ctrlrun.toml", &lease("2m"));
    assert_eq!(place.load().files.len(), 1);
    fs::create_dir(place.path("home/proj/.git")).unwrap();
    assert_eq!(place.load().files.len(), 0, "it went above a repository");
    place.write("home/proj/ctrlrun.toml", &lease("3m"));
    assert_eq!(place.load().files.len(), 1);
    // /proc is a mount, and its own root is not beyond it.
    assert!(find::is_beyond(Path::new("/proc/self"), Path::new("/"), None));
    assert!(!find::is_beyond(Path::new("/proc/self"), Path::new("/proc"), None));
}

#[test]
fn a_file_that_the_walk_finds_picks_no_store_and_no_hook() {
    // CFG-9
    for table in ["[store]", "[hooks]", "[spool]", "[journal]"] {
        let place = Place::new();
        place.write("home/proj/ctrlrun.toml", &format!("{}\n{table}\n", lease("1m")));
        let told = place.refusal();
        let head =
            format!("ctrlrun: /home/proj/ctrlrun.toml:4:2: {table} in a file that was found by");
        assert!(told.starts_with(&head), "{told}");
        // The user's own may, also where one stands in its folder.
        let mut place = Place::new();
        place.write("home/.config/ctrlrun/ctrlrun.toml", table);
        place.from.walk_from = Some(place.path("home/.config/ctrlrun"));
        assert_eq!(place.load().files.len(), 1);
    }
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    // CFG-9, case 61
    let place = Place::new();
    let path = place.write("home/proj/ctrlrun.toml", &lease("1m"));
    mode(&path, 0o666);
    let told = place.refusal();
    assert!(told.contains("this configuration is refused: everybody may write to it"), "{told}");
    assert!(told.contains("mend: chmod go-w /home/proj/ctrlrun.toml"), "{told}");
    mode(&path, 0o644);
    mode(&place.path("home/proj"), 0o1777);
    assert!(place.refusal().contains("everybody may write to its folder"));
    mode(&place.path("home/proj"), 0o755);
    assert_eq!(place.load().files.len(), 1);
    if nix::unistd::geteuid().is_root() {
        let dir = place.path("home/proj");
        nix::unistd::chown(&dir, Some(65534.into()), None).unwrap();
        assert!(place.refusal().contains("refused: its folder belongs to "));
        nix::unistd::chown(&dir, Some(0.into()), None).unwrap();
        nix::unistd::chown(&path, Some(0.into()), Some(65534.into())).unwrap();
        mode(&path, 0o664);
        assert!(place.refusal().contains("its group may write to it"));
        nix::unistd::chown(&path, Some(65534.into()), Some(65534.into())).unwrap();
        mode(&path, 0o644);
        let told = place.refusal();
        assert!(told.contains("refused: it belongs to "), "{told}");
        assert!(told.contains("name it by --config or CTRLRUN_CONFIG"), "{told}");
        // A link does not make it ours.
        fs::rename(&path, place.path("home/proj/theirs")).unwrap();
        symlink("theirs", &path).unwrap();
        assert!(place.refusal().contains("refused: it belongs to "));
    }
    let user = place.write("home/.config/ctrlrun/ctrlrun.toml", "");
    mode(&user, 0o646);
    assert!(place.refusal().contains("everybody may write to it"));
    let _ = fs::remove_file(&user);
    nix::unistd::mkfifo(&user, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::remove_file(&path).unwrap();
    // A pipe without a writer holds nobody up, and is not taken for an empty file.
    assert!(place.refusal().contains("it is a pipe: give it a file"));
}

#[test]
fn a_file_that_cannot_be_reached_is_not_taken_for_none() {
    // CFG-5: links that lead nowhere, of the file and of its folder, as with a disk that is not mounted.
    let place = Place::new();
    let user = place.write("home/.config/ctrlrun/ctrlrun.toml", "");
    let away = place.path("away.toml");
    fs::rename(&user, &away).unwrap();
    symlink(&away, &user).unwrap();
    assert_eq!(place.load().files.len(), 1);
    fs::remove_file(&away).unwrap();
    assert!(place.refusal().contains("this configuration cannot be read"));
    let folder = place.path("home/.config/ctrlrun");
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(place.load().files.len(), 0);
    symlink(place.path("nowhere"), &folder).unwrap();
    assert!(place.refusal().contains("this configuration cannot be read"));
}

#[test]
fn where_the_users_own_file_is() {
    // CFG-5
    let mut place = Place::new();
    fs::create_dir_all(place.path("xdg/ctrlrun")).unwrap();
    let path = place.write("xdg/ctrlrun/ctrlrun.toml", "");
    place.from.config_home = Some(place.path("xdg").into());
    assert_eq!(place.load().files, [path]);
    place.from.config_home = Some("xdg".into());
    assert!(place.refusal().contains("XDG_CONFIG_HOME (xdg) is not an absolute path"));
    place.from.config_home = Some("".into());
    assert_eq!(place.load().files.len(), 0);
    for odd in ["", "/", "home"] {
        place.from.home = Some(odd.into());
        assert_eq!(place.load().files.len(), 0, "{odd:?}");
    }
}

#[test]
fn a_mistake_is_shown_in_its_line() {
    // CFG-6
    assert_eq!(
        told("[defaults]\nlease = \"5m\"\nleaze = \"5m\"\n"),
        "ctrlrun: /c.toml:3:1: unknown field `leaze`, expected one of `lease`, `capture`, \
         `record_command`: nothing was done\n\
         ctrlrun:     |\n\
         ctrlrun:   3 | leaze = \"5m\"\n\
         ctrlrun:     | ^^^^^\n"
    );
    for (text, place, what) in [
        ("[defaults]\nlease = \"5m\"\nlease = \"6m\"\n", "3:1", "duplicate key"),
        ("[defaults]\n[defaults]\n", "2:2", "duplicate key"),
        (
            "[effect.a]\nkey=\"a\"\ncommand=[\"x\"]\n[effect.a]\nkey=\"b\"\ncommand=[\"x\"]\n",
            "4:9",
            "duplicate key",
        ),
        ("[defautls]\n", "1:2", "unknown table [defautls]: [defaults]?"),
        ("[other]\n", "1:2", "unknown table [other]; there are store, defaults"),
        ("lease = \"5m\"\n", "1:1", "unknown table [lease]"),
        ("[defaults]\nlease = \"30\"\n", "2:9", "a duration needs a unit: 30s?"),
        ("[defaults]\nlease = \"1ms\"\n", "2:9", "a lease is at least 1s"),
        ("[defaults]\nlease = 30\n", "2:9", "invalid type: integer `30`, expected a string"),
        ("[defaults]\ncapture = \"64\"\n", "2:11", "a size needs a unit: 64B?"),
        ("[defaults]\nrecord_command = \"all\"\n", "2:18", "\"all\" is none of \"full\""),
        ("[store]\nurl = \"\"\n", "2:7", "it is set but empty"),
        ("[store]\nurl = \"mysql://h/d\"\n", "2:7", "mysql"),
        ("[store]\nurl = \"sqlite:\"\n", "2:7", "names no file"),
        ("[spool]\ndir = \"\"\n", "2:7", "it is set but empty"),
        ("[hooks]\nfailed = []\n", "2:10", "the command names no program"),
        ("[hooks]\nfailed = \"x\"\n", "2:10", "invalid type: string"),
        ("[hooks]\nfialed = [\"x\"]\n", "2:1", "unknown field `fialed`"),
        ("[effect.a]\nkey = \"a\"\n", "1:1", "missing field `command`"),
        ("[effect.\"a b\"]\nkey=\"a\"\ncommand=[\"x\"]\n", "1:9", "is a word for the command line"),
        ("[effect.-a]\nkey=\"a\"\ncommand=[\"x\"]\n", "1:9", "is a word for the command line"),
        ("[effect.a]\nkey = \"a:{id\"\ncommand = [\"x\"]\n", "2:10", "`{` begins no placeholder"),
        (
            "[effect.a]\nkey = \"a\\u003a{id\"\ncommand = [\"x\"]\n",
            "2:7",
            "`{` begins no placeholder",
        ),
        ("[effect.a]\nkey = \"é{}\"\ncommand = [\"x\"]\n", "2:9", "`{}` is no placeholder"),
        ("[effect.a]\nkey = \"a\"\ncommand = []\n", "3:11", "the command is empty"),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"awk\", \"{print\"]\n",
            "3:20",
            "`{` begins no placeholder",
        ),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"sh\", \"-c\", \"x {id}\"]\n",
            "3:27",
            "would be read as code",
        ),
        (
            "[effect.a]\nkey = \"a:{a=b}\"\ncommand = [\"x\"]\n",
            "2:7",
            "could not be given as NAME=VALUE",
        ),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"x\"]\nnot_executed = [0]\n",
            "4:16",
            "exit code 0 means that it happened",
        ),
        ("[effect.a]\nkey = \"a\"\ncommand = [\"x\"]\nretries = -1\n", "4:11", "invalid value"),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"x\"]\nmax_attempts = 0\n",
            "4:16",
            "no attempt at all",
        ),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"x\"]\nreconcile_final = true\n",
            "4:19",
            "without `reconcile`",
        ),
        (
            "[effect.a]\nkey = \"a\"\ncommand = [\"x\", \"{n}\"]\nreconcile = [\"p\", \"{n}\"]\n",
            "4:20",
            "is no part of the key",
        ),
        ("[defaults]\nlease = \"5m\n", "2:", ""),
        ("[defaults", "1:10", ""),
    ] {
        let told = told(text);
        let head = format!("ctrlrun: /c.toml:{place}");
        assert!(told.starts_with(&head) && told.contains(what), "{text}\n{told}");
        assert!(told.contains(": nothing was done\n") && told.contains('^'), "{text}\n{told}");
    }
}

#[test]
fn nothing_of_a_file_reaches_the_terminal_as_it_is() {
    // CFG-6
    let told = told("[defaults]\n\"a\\u001b[2Jb\" = 1 # \u{202e}x\n");
    assert!(!told.chars().any(|c| c.is_control() && c != '\n'), "{told:?}");
    assert!(!told.contains('\u{202e}'), "{told:?}");
    let mut place = Place::new();
    let path = place.path("c.toml");
    fs::write(&path, b"# ok\n# \xff\n").unwrap();
    place.from.flag = Some(path.clone().into());
    assert!(place.refusal().contains("line 2 is not UTF-8"));
    fs::write(&path, "#".repeat(2 << 20)).unwrap();
    assert!(place.refusal().contains("longer than 1 MiB"));
}

#[test]
fn the_template_of_init_says_nothing_and_means_all_of_it() {
    // CFG-12
    let template = crate::cli::init::config::TEMPLATE;
    let dir = Path::new("/etc/ctrlrun");
    let layer = read::read(template, dir, true).unwrap();
    assert!(layer.effects.is_empty() && layer.defaults == Defaults::default());
    let uncommented: String = template
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.starts_with('[') || line.contains(" = "))
        .map(|line| format!("{line}\n"))
        .collect();
    let layer = read::read(&uncommented, dir, false).unwrap();
    assert!(layer.store.is_some() && layer.spool.is_some() && layer.journal.is_some());
    assert_eq!(layer.effects[0].name, "refund");
    assert!(layer.hooks.committed.is_some() && layer.defaults.record_command.is_some());
}
