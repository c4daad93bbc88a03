//! Two hosts and one server (T157): two network namespaces with addresses of their own, a link each
//! to where the server is, and one of them cut off while its command runs (case 29).
mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::hosts::{Hosts, done, ip};
use common::pgstore::wait_until;
use common::{Output, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Two hosts, and what is done on them.
struct Stage(Hosts);

impl Stage {
    fn new() -> Option<Self> {
        Hosts::new().map(Self)
    }

    fn run(&self, host: usize, key: &str, script: &str) -> Command {
        let head = ["run", "--key", key, "--lease", LEASE, "--store-timeout", "1s"];
        self.0.on(host, &[&head[..], &["--", "sh", "-c", script]].concat())
    }

    fn start(&self, host: usize, key: &str, script: &str) -> Child {
        let mut command = self.run(host, key, script);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn marks(&self) -> usize {
        let marked = fs::read_to_string(self.0.env.path("here/marker"));
        marked.unwrap_or_default().lines().count()
    }

    fn show(&self, host: usize, key: &str) -> Value {
        let out = finish(&mut self.0.on(host, &["show", key, "--json"]));
        serde_json::from_str(&out.stdout).unwrap_or(Value::Null)
    }

    fn types(&self, host: usize, key: &str) -> Vec<String> {
        let out = finish(&mut self.0.on(host, &["history", key, "--json"]));
        let kind = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["type"].as_str().map(str::to_owned)
        };
        let types = out.stdout.lines().filter_map(kind);
        types.filter(|kind| kind != "lease_renewed").collect()
    }

    fn spooled(&self, host: usize) -> usize {
        let spool = self.0.env.path(&format!("home/{host}/.local/state/ctrlrun/spool"));
        let files = fs::read_dir(spool).into_iter().flatten().flatten();
        files.filter(|file| file.path().extension().is_some_and(|is| is == "json")).count()
    }

    /// A run on host 0 that has marked, and is then cut off.
    fn cut_off(&self, key: &str) -> Child {
        let before = self.marks();
        let holder = self.start(0, key, HOLD);
        wait_until("it runs", || self.marks() > before);
        self.0.hosts[0].set_link("down");
        holder
    }

    /// The other host is refused, first since the lease is live, then since nobody can know.
    fn refused_over_there(&self, key: &str) {
        let live = finish(&mut self.run(1, key, HOLD));
        assert_eq!(live.code, Some(75), "{live:?}");
        wait_until("its lease has ended", || self.show(1, key)["lease_lapsed"] == true);
        let lapsed = finish(&mut self.run(1, key, HOLD));
        assert_eq!(lapsed.code, Some(76), "{lapsed:?}");
        for refused in [live, lapsed] {
            assert!(refused.stderr.contains("nothing was run"), "{}", refused.stderr);
        }
        assert_eq!(self.show(1, key)["state"], "ambiguous");
    }

    /// A script for a host: what it sends goes out, to nobody, and is lost without a word. That is a
    /// neighbour that is not there: the kernel this runs on need not know how to drop packets.
    fn loses_packets(&self, host: usize) -> String {
        let there = self.0.nets[host];
        format!(
            "PATH=/usr/sbin:/sbin:$PATH ip neigh replace 198.19.{there}.1 \
             lladdr 02:00:00:00:00:99 dev eth nud permanent"
        )
    }

    /// The same from here.
    fn lose_packets(&self, host: usize) {
        let mut sh = Command::new("sh");
        done(&mut self.0.hosts[host].inside(sh.args(["-c", &self.loses_packets(host)]))).unwrap();
    }

    /// What it sends arrives again.
    fn find_packets(&self, host: usize) {
        let there = format!("198.19.{}.1", self.0.nets[host]);
        let words = ["neigh", "del", &there, "dev", "eth"].map(str::to_owned);
        done(&mut self.0.hosts[host].inside(&mut ip(&words))).unwrap();
    }

    fn go(&self) {
        fs::write(self.0.env.path("here/go"), "").unwrap();
    }
}

const LEASE: &str = "4s";
const HOLD: &str = "echo x >>marker; until [ -e go ]; do sleep 0.02; done";

fn ended(child: Child) -> Output {
    let out = child.wait_with_output().unwrap();
    Output {
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        code: out.status.code(),
        signal: None,
    }
}

#[test]
fn t157_one_winner_across_two_hosts_and_a_host_that_is_cut_off_is_not_overtaken() {
    // T157, case 29, the network's part of case 39; EFF-10, EFF-17, EXE-24, EXE-25, CMT-14
    let Some(stage) = Stage::new() else { return };

    // Eight processes on each host, one effect.
    let mut all: Vec<_> = (0..16).map(|n| stage.start(n % 2, "one", HOLD)).collect();
    wait_until("all but one have ended", || {
        all.iter_mut().filter_map(|one| one.try_wait().unwrap()).count() == 15
    });
    stage.go();
    let codes: Vec<_> = all.into_iter().map(ended).map(|out| out.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 75))), "{codes:?}");
    assert_eq!(stage.marks(), 1);
    fs::remove_file(stage.0.env.path("here/go")).unwrap();

    // The link is back before the command ends: its outcome comes late, and is kept.
    let holder = stage.cut_off("back");
    stage.refused_over_there("back");
    let none = finish(&mut stage.run(0, "other", "echo x >>marker"));
    assert_eq!(none.code, Some(69), "{none:?}");
    assert!(none.stderr.contains("nothing was run"), "{}", none.stderr);
    stage.0.hosts[0].set_link("up");
    stage.go();
    let end = ended(holder);
    assert_eq!((end.code, stage.marks()), (Some(74), 2), "{end:?}");
    assert!(end.stderr.contains("late outcome"), "{}", end.stderr);
    let late = ["reserved", "began", "ambiguated", "late_outcome"];
    assert_eq!(stage.types(1, "back"), late);
    assert_eq!((stage.show(1, "back")["state"].as_str(), stage.spooled(0)), (Some("ambiguous"), 0));
    fs::remove_file(stage.0.env.path("here/go")).unwrap();

    // It is not: the outcome is spooled on that host, and delivered from there.
    let holder = stage.cut_off("gone");
    stage.refused_over_there("gone");
    stage.go();
    let end = ended(holder);
    assert_eq!((end.code, stage.marks()), (Some(74), 3), "{end:?}");
    assert!(end.stderr.contains("exited 0"), "{}", end.stderr);
    assert_eq!((stage.spooled(0), stage.types(1, "gone").len()), (1, 3));
    stage.0.hosts[0].set_link("up");
    wait_until("the link is back", || stage.show(0, "gone")["state"] == "ambiguous");
    assert_eq!(finish(&mut stage.run(0, "other", "echo x >>marker")).code, Some(0));
    assert_eq!((stage.types(1, "gone"), stage.spooled(0)), (late.map(str::to_owned).to_vec(), 0));
    let again = finish(&mut stage.run(0, "gone", HOLD));
    assert_eq!((again.code, stage.marks()), (Some(76), 4), "{again:?}");
}

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(5);

#[test]
fn case_39_packets_that_are_dropped_at_connect_and_at_reserve_run_nothing_and_hold_nobody_up() {
    // Case 39; CMT-14, CON-7
    let Some(stage) = Stage::new() else { return };
    stage.lose_packets(0);
    let from = Instant::now();
    let end = finish(&mut stage.run(0, "connect", HOLD));
    assert!(from.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", from.elapsed());
    assert_eq!((end.code, stage.marks()), (Some(69), 0), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    stage.find_packets(0);

    // It has opened the store and holds its connection; then nothing arrives any more.
    let mut run = stage.run(0, "reserve", HOLD);
    run.env("CTRLRUN_STOP_AT", "before-reserve");
    let holder = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(holder.id().try_into().unwrap());
    let stopped = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    wait_until("it has stopped", stopped);
    stage.lose_packets(0);
    let from = Instant::now();
    kill(pid, Signal::SIGCONT).unwrap();
    let end = ended(holder);
    assert!(from.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", from.elapsed());
    assert_eq!((end.code, stage.marks()), (Some(69), 0), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(stage.types(1, "reserve"), Vec::<String>::new());
    stage.find_packets(0);
    stage.go();
    let end = finish(&mut stage.run(0, "reserve", HOLD));
    assert_eq!((end.code, stage.marks()), (Some(0), 1), "{end:?}");
}

#[test]
fn case_39_packets_that_are_dropped_while_the_command_runs_cost_no_outcome() {
    // Case 39, as case 29; EXE-24, EFF-17
    let Some(stage) = Stage::new() else { return };
    let holder = stage.start(0, "k", HOLD);
    wait_until("it runs", || stage.marks() == 1);
    stage.lose_packets(0);
    stage.refused_over_there("k");
    stage.go();
    let from = Instant::now();
    let end = ended(holder);
    assert!(from.elapsed() < Duration::from_secs(6) + SLACK, "{:?}", from.elapsed());
    assert_eq!((end.code, stage.marks(), stage.spooled(0)), (Some(74), 1, 1), "{end:?}");
    assert!(end.stderr.contains("exited 0"), "{}", end.stderr);
    stage.find_packets(0);
    assert_eq!(finish(&mut stage.run(0, "other", "true")).code, Some(0));
    let late = ["reserved", "began", "ambiguated", "late_outcome"];
    assert_eq!((stage.types(1, "k"), stage.spooled(0)), (late.map(str::to_owned).to_vec(), 0));
}

#[test]
fn case_39_packets_that_are_dropped_at_settle_leave_the_outcome_in_the_spool() {
    // Case 39, as case 6; CMT-14, EXE-24: the command's last deed is to cut its own host off.
    let Some(stage) = Stage::new() else { return };
    let script = format!("echo x >>marker; {}", stage.loses_packets(0));
    let from = Instant::now();
    let end = finish(&mut stage.run(0, "k", &script));
    // A settle may take six times as long, and here the rest of its lease is shorter.
    assert!(from.elapsed() < Duration::from_secs(6) + SLACK, "{:?}", from.elapsed());
    assert_eq!((end.code, stage.marks(), stage.spooled(0)), (Some(74), 1, 1), "{end:?}");
    assert!(end.stderr.contains("exited 0"), "{}", end.stderr);
    assert_eq!(stage.types(1, "k"), ["reserved", "began"]);
    stage.find_packets(0);
    // The next command that writes delivers it, and finds it done.
    let again = finish(&mut stage.run(0, "k", &script));
    assert_eq!((again.code, stage.marks(), stage.spooled(0)), (Some(0), 1, 0), "{again:?}");
    assert_eq!(stage.types(1, "k"), ["reserved", "began", "committed"]);
}

#[test]
fn t53_two_batches_of_one_file_on_two_hosts_run_each_key_once() {
    // Case 53, BAT-14
    let Some(stage) = Stage::new() else { return };
    let lines: String = (0..200)
        .map(|number| {
            let line = serde_json::json!({
                "key": format!("k:{number}"),
                "command": ["sh", "-c", "echo \"$CTRLRUN_KEY\" >>marker"],
            });
            format!("{line}\n")
        })
        .collect();
    fs::write(stage.0.env.path("here/in.jsonl"), lines).unwrap();
    let start = |host: usize| {
        let mut command = stage.0.on(host, &["batch", "in.jsonl", "-j4", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(0), start(1)].map(ended);
    let now: u64 = both
        .iter()
        .map(|end| {
            let told: Value =
                serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{end:?}"));
            told["committed_now"].as_u64().unwrap()
        })
        .sum();
    assert_eq!(now, 200, "{both:?}");
    let marked = fs::read_to_string(stage.0.env.path("here/marker")).unwrap();
    let mut keys: Vec<&str> = marked.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((marked.lines().count(), keys.len()), (200, 200));
}
