//! What a child is given is what it would get without us.
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::at::{Kind, Place};
use crate::real::{behind, ends, scripts};

/// Looks around without a shell, which would change what it sees. Arguments: a name for the answer.
const LOOK: &str = r#"
    open(my $to, '>', "$ENV{PLACE}/$ARGV[0]") or die;
    my %own = map { $_ => 1 } fileno($to);
    opendir(my $dir, '/proc/self/fd'); my @fds = sort { $a <=> $b } grep { /\d/ } readdir $dir;
    for my $fd (@fds) { my $at = readlink("/proc/self/fd/$fd") // next; next if $own{$fd} || $at =~ m{/proc/}; print $to "fd $fd $at\n"; }
    for my $file (qw(status limits oom_score_adj coredump_filter personality timerslack_ns cgroup)) {
        open(my $from, '<', "/proc/self/$file") or next;
        while (<$from>) {
            next if $file eq 'status' && !/^(Umask|Uid|Gid|Groups|Shd|Sig(Pnd|Blk|Ign|Cgt)|Cap|NoNew|Seccomp:|Cpus_allowed:|THP)/;
            print $to "$file $_";
        }
    }
    use Cwd; print $to "cwd ", getcwd(), "\n", "nice ", getpriority(0, 0), "\n";
    print $to "env $_=$ENV{$_}\n" for sort grep { !/^(_|SHLVL|PWD|OLDPWD)$/ } keys %ENV;
"#;

/// What the look-around saw behind `words`, without ctrlrun and with it under these flags.
fn both(at: &Place, name: &str, words: &[&str], flags: &[&str]) -> [Vec<String>; 2] {
    let out = at.env.path("stream");
    [("without", false), ("with", true)].map(|(kind, ours)| {
        let file = format!("{name}-{kind}");
        let command = ["perl", "-e", LOOK, &file];
        let run = at.run_words(name, flags, &command);
        let mut plain = Command::new(command[0]);
        plain.args(&command[1..]).env_clear();
        plain.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        plain.current_dir(run.get_current_dir().unwrap());
        let mut outer = behind(words, if ours { &run } else { &plain });
        let streams = || File::options().append(true).create(true).open(&out).unwrap();
        let done = outer.stdout(streams()).stderr(streams()).status().unwrap();
        assert!(done.success(), "{}", fs::read_to_string(&out).unwrap());
        let text = fs::read_to_string(at.env.path(&file)).unwrap();
        text.lines().map(|line| without_libcs_own(&line.replace(&file, "FILE"))).collect()
    })
}

/// The two signals that the C library keeps to itself (32 and 33) are ignored in whatever its
/// posix_spawn(3) starts, and so are they behind most programs; nobody can use them.
fn without_libcs_own(line: &str) -> String {
    let Some(mask) = line.strip_prefix("status SigIgn:\t") else {
        return line.to_owned();
    };
    let mask = u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31);
    format!("status SigIgn:\t{mask:016x}")
}

/// The lines of the second that are not in the first, and the other way round.
fn differences(seen: &[Vec<String>; 2]) -> Vec<String> {
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        of.iter().filter(|line| !from.contains(line)).cloned().collect()
    };
    let mut lines = missing(&seen[0], &seen[1]);
    lines.extend(missing(&seen[1], &seen[0]).into_iter().map(|line| format!("lost: {line}")));
    lines
}

#[test]
fn a_child_finds_everything_as_without_us_but_for_five_variables() {
    // EXE-19, EXE-20
    let at = Place::new(Kind::Sqlite);
    let line =
        "umask 027; ulimit -n 200; ulimit -c 4; exec 7<$PLACE/seven 12>>$PLACE/twelve; exec \"$@\"";
    fs::write(at.env.path("seven"), "").unwrap();
    // Where SIGCHLD is ignored a child is started in another way.
    for (name, flags, ignored) in [
        ("none", &["--capture", "none"][..], "USR2,PIPE"),
        ("kept", &[], "USR2,PIPE"),
        ("nothing", &["-n"], "XFSZ"),
        ("forked", &["--capture", "none"], "USR2,CHLD"),
        ("forked:kept", &[], "XFSZ,PIPE,CHLD"),
    ] {
        let ignore = format!("--ignore-signal={ignored}");
        let mut words = vec!["nice", "-n", "5", "bash", "-c", line, "bash"];
        words.extend(["env", &ignore, "--block-signal=ALRM"]);
        let seen = both(&at, name, &words, flags);
        assert!(seen[0].iter().any(|line| line.starts_with("fd 12 ")), "{:?}", seen[0]);
        assert!(seen[0].iter().any(|line| line == "nice 5"), "{:?}", seen[0]);
        let mut left = differences(&seen);
        left.retain(|line| {
            let streams = !["none", "forked"].contains(&name)
                && ["fd 1 ", "fd 2 "]
                    .iter()
                    .any(|fd| line.trim_start_matches("lost: ").starts_with(fd));
            !streams
        });
        let ours = |line: &String| {
            ["KEY=", "ATTEMPT=1", "ATTEMPT_ID=", "IDEMPOTENCY_KEY=", "OUTCOME_FILE="]
                .iter()
                .any(|variable| line.starts_with(&format!("env CTRLRUN_{variable}")))
        };
        let (ours, others): (Vec<_>, Vec<_>) = left.into_iter().partition(ours);
        assert_eq!((ours.len(), others), (5, Vec::<String>::new()), "{name}");
    }
}

#[test]
fn a_descriptor_that_the_caller_has_closed_is_closed_in_the_child() {
    // EXE-19. Rust opens /dev/null there for us, and that is not the child's.
    let look = "[ -e /proc/$$/fd/0 ] || : >$PLACE/0; [ -e /proc/$$/fd/1 ] || : >$PLACE/1; [ -e /proc/$$/fd/2 ] || : >$PLACE/2";
    for (close, flags, closed) in [
        ("<&-", &[][..], &["0"][..]),
        ("<&- >&-", &["--capture", "none"], &["0", "1"]),
        ("2>&-", &["--capture", "none"], &["2"]),
        ("<&- >&- 2>&-", &["--capture", "none", "-n"], &["1", "2"]),
        // What is kept goes through a pipe of ours, whatever becomes of it then.
        (">&- 2>&-", &[], &[]),
    ] {
        let at = Place::new(Kind::Sqlite);
        let line = format!("exec {close}; exec \"$@\"");
        let end = behind(&["sh", "-c", &line, "sh"], &at.run("k", flags, look)).status().unwrap();
        assert!(end.success());
        let seen: Vec<&str> =
            ["0", "1", "2"].into_iter().filter(|fd| at.env.path(fd).exists()).collect();
        assert_eq!(seen, closed, "{close}");
    }
}

#[test]
fn arguments_names_and_variables_that_are_no_text_reach_it_unchanged() {
    // EXE-19
    let at = Place::new(Kind::Sqlite);
    let odd = OsString::from_vec(vec![b'a', 0xff, 0xc3, b'\n', b' ', b'\'', 0x80]);
    let script = scripts(&at).join(OsString::from_vec(b"prog\xfe".to_vec()));
    fs::write(&script, "#!/bin/sh\nprintf %s \"$1\" >$PLACE/argument; printf %s \"$ODD\" >$PLACE/variable; printf %s \"$0\" >$PLACE/name\n").unwrap();
    let mut permissions = fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(&script, permissions).unwrap();
    let mut run = at.run_words("k", &[], &[]);
    run.arg(&script).arg(&odd).arg("").env("ODD", &odd);
    let end = ends(&mut run);
    assert_eq!(end.code, Some(0), "{end:?}");
    let read = |name: &str| OsString::from_vec(fs::read(at.env.path(name)).unwrap());
    assert_eq!((read("argument"), read("variable")), (odd.clone(), odd));
    assert_eq!(read("name"), script.into_os_string());
    // A message about it is text, and one line.
    let shown = at.ask(&["show", "k"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

#[test]
fn its_own_variables_replace_those_of_an_outer_run_and_nothing_else_is_lost() {
    // EXE-20
    let at = Place::new(Kind::Sqlite);
    let inner =
        r#""$CTRLRUN" run --store "$STORE" -k inner -- sh -c 'env | grep ^CTRLRUN_ | sort'"#;
    let mut run = at.run("outer", &[], &format!("env | grep ^CTRLRUN_ | sort; {inner}"));
    let end = ends(run.env("STORE", at.store()).env("CTRLRUN_UNKNOWN", "stays"));
    let of = |name: &str| -> Vec<&str> {
        end.stdout
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("CTRLRUN_{name}=")))
            .collect()
    };
    assert_eq!(of("KEY"), ["outer", "inner"], "{end:?}");
    assert_eq!(of("UNKNOWN"), ["stays", "stays"]);
    for name in ["ATTEMPT_ID", "IDEMPOTENCY_KEY", "OUTCOME_FILE"] {
        let values = of(name);
        assert_eq!(values.len(), 2, "{name}: {end:?}");
        assert_ne!(values[0], values[1], "{name}");
    }
}
