//! What the tests between real programs share: a command behind another one, shells in a place.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::at::{BOUND, Place};
use crate::common::BINARY;

/// `command` as the last words of another one, in the same surroundings.
pub fn behind(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    if let Some(directory) = command.get_current_dir() {
        outer.current_dir(directory);
    }
    outer.stdin(Stdio::null());
    outer
}

/// These words in a place: the store is its store, `ctrlrun` and the place's scripts are in the PATH.
pub fn words(at: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().stdin(Stdio::null());
    let ours = at.ctrlrun::<&str>(&[]);
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let folder = Path::new(BINARY).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{folder}:{path}", scripts(at).display()));
    command.env("CTRLRUN_STORE", at.store()).env("PS1", "$ ").env("HISTFILE", "");
    command.current_dir(scripts(at));
    command
}

/// Writes a script, which `sh NAME` runs in the place.
pub fn script(at: &Place, name: &str, text: &str) {
    fs::write(scripts(at).join(name), text).unwrap();
}

/// Where the scripts are, which is the working directory too.
pub fn scripts(at: &Place) -> PathBuf {
    let folder = at.env.path("scripts");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The lines that scripts have written to a file of the place.
pub fn lines(at: &Place, name: &str) -> Vec<String> {
    let text = fs::read_to_string(at.env.path(name)).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}

/// A script that counts signals into `got`, one name a line, writes its number to `up`, and ends
/// with 7 when `stop` is there. No shell: one runs a trap when its foreground command is over, and
/// of two signals that came until then it has seen one.
pub fn counting(signals: &str) -> String {
    let perl = r#"
        for my $name (split / /, $ENV{SIGNALS}) {
            $SIG{$name} = sub { open(my $to, ">>", "$ENV{PLACE}/got"); print $to "$name\n"; };
        }
        open(my $to, ">", "$ENV{PLACE}/up.new"); print $to "$$\n"; close $to;
        rename "$ENV{PLACE}/up.new", "$ENV{PLACE}/up";
        eval $ENV{ONCE} if $ENV{ONCE};
        select(undef, undef, undef, 0.01) while -d $ENV{PLACE} && ! -e "$ENV{PLACE}/stop";
        exit 7"#;
    format!("SIGNALS='{signals}' exec perl -e '{perl}'")
}

/// Lets a counting script end.
pub fn stop(at: &Place) {
    fs::write(at.env.path("stop"), "").unwrap();
}

/// Ends what a test has left running on purpose.
pub fn kill(pid: i32) {
    let _ =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// The processes whose parent is `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Runs a command to its end, no longer than the bound: a hang is a failure and no hang.
pub fn ends(command: &mut Command) -> crate::common::Output {
    let bound = format!("{}", BOUND.as_secs());
    let mut bounded = behind(&["timeout", "-s", "KILL", &bound], command);
    crate::common::finish(&mut bounded)
}
