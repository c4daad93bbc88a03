//! What the tests of workflows share: a place, files of workflows, runs.
use std::fs;
use std::process::Command;

use serde_json::Value;

use nix::sys::signal::Signal;

use crate::at::{Home, Kind, Place, Running, until};
use crate::common::{Output, finish};

/// A place, and workflows in it.
pub struct Lab {
    pub at: Place,
}

/// A line of a script: which node came about, by its name, and the attempt's number.
pub const MARK: &str = r#"echo "$CTRLRUN_KEY $CTRLRUN_ATTEMPT" >>"$PLACE/marker"; "#;

impl Lab {
    pub fn new(kind: Kind) -> Self {
        Self { at: Place::scratch(kind) }
    }

    /// Writes a workflow's file; its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.at.env.path(&format!("here/{name}.toml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// `ctrlrun workflow ...` on this store.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut all = vec!["workflow"];
        all.extend(arguments);
        self.at.ctrlrun(&all)
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        finish(&mut self.command(arguments))
    }

    /// Starts a run; it must be new.
    pub fn start(&self, file: &str, id: &str) {
        let started = self.ask(&["start", file, "--id", id]);
        assert_eq!((started.code, started.stdout), (Some(0), format!("{id}: started\n")));
    }

    /// Does all that there is to do.
    pub fn drain(&self) -> Output {
        let done = self.ask(&["work", "--until-idle", "--hold", "1s"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// The run as JSON.
    pub fn status(&self, id: &str) -> Value {
        let shown = self.ask(&["status", id, "--json"]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        serde_json::from_str(&shown.stdout).unwrap()
    }

    /// How the run stands.
    pub fn stands(&self, id: &str) -> String {
        self.status(id)["status"].as_str().unwrap().to_owned()
    }

    /// How a node of it stands.
    pub fn node(&self, id: &str, node: &str) -> String {
        self.status(id)["nodes"][node]["state"].as_str().unwrap().to_owned()
    }

    /// How often each effect came about, in the order of the marker.
    pub fn marked(&self) -> Vec<String> {
        self.at.marked()
    }
}

/// Three nodes, one after the other, each of which marks; the second runs `script` behind that.
pub fn three(script: &str) -> String {
    let node = |name: &str, needs: &str, script: &str| {
        format!(
            "[node.{name}]\nneeds = [{needs}]\nlease = \"2s\"\ncommand = [\"sh\", \"-c\", '''{MARK}{script}''']\n"
        )
    };
    format!(
        "name = \"three\"\n{}{}{}",
        node("one", "", ""),
        node("two", "\"one\"", script),
        node("three", "\"two\"", "")
    )
}

/// Tells a worker to end, and waits for it, whatever points it stops at on its way.
pub fn ends(mut worker: Running) -> Output {
    worker.signal(Signal::SIGTERM);
    until("it has ended", || {
        if !worker.ended() {
            worker.go_on();
        }
        worker.ended()
    });
    worker.end()
}

impl Home {
    /// Changes rows behind the tool's back; `{runs}` and the like are tables.
    pub fn write(&self, sql: &str) {
        match self {
            Self::File(path) => {
                let sql = sql.replace(['{', '}'], "");
                rusqlite::Connection::open(path).unwrap().execute_batch(&sql).unwrap();
            }
            Self::Shared(schema) | Self::Own(schema, _) => {
                self.sql(&sql.replace('{', &format!("{schema}.")).replace('}', ""));
            }
        }
    }
}
