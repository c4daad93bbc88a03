//! What acts on purpose inside a worker does nothing outside of a scratch store (VER-5), and every
//! store that is broken on purpose is caught (VER-9).
use crate::common::{self, TestEnv};
use serde_json::Value;

const RUN: [&str; 7] = ["run", "--key", "k", "--", "sh", "-c", "echo x >>marker"];

fn rigged(env: &TestEnv, words: &str) -> Option<i32> {
    let mut command = env.command(RUN);
    command.env("CTRLRUN_RIG", words);
    common::finish(&mut command).code
}

#[test]
fn a_rig_is_without_effect_on_a_store_that_is_no_scratch_store() {
    // VER-5
    let env = TestEnv::new();
    for words in ["append:1-:fail", "break:committed-freed", "break:answers-early", "load:1:stop"] {
        assert_eq!(rigged(&env, words), Some(0), "{words}");
    }
    assert_eq!(std::fs::read_to_string(env.path("here/marker")).unwrap(), "x\n");
}

#[test]
fn a_rig_acts_on_a_scratch_store() {
    // VER-5: the other half, without which the test above shows nothing.
    let env = TestEnv::new();
    assert_eq!(env.run(["init", "--scratch"]).code, Some(0));
    assert_eq!(rigged(&env, "load:1-:fail"), Some(69));
    assert_eq!(rigged(&env, "break:no-such"), Some(0));
    assert_eq!(rigged(&env, "break:committed-freed"), Some(0));
    assert_eq!(std::fs::read_to_string(env.path("here/marker")).unwrap(), "x\nx\n");
}

#[test]
fn every_broken_store_is_caught_by_the_guarantees_that_are_named_for_it() {
    // VER-9
    let env = TestEnv::new();
    let out = env.run(["verify", "--self-test", "--json"]);
    let lines: Vec<Value> =
        out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(out.code, Some(0), "{lines:#?}\n{}", out.stderr);
    let [sound, broken] = lines.as_slice() else { panic!("{lines:#?}") };
    assert_eq!((&sound["failed"], &sound["inconclusive"]), (&0.into(), &0.into()));
    let stores = broken["broken_stores"].as_array().unwrap();
    assert!(stores.len() >= 11, "{broken:#}");
    for store in stores {
        assert_eq!(store["caught"], true, "{store:#}");
        assert!(!store["by"].as_array().unwrap().is_empty(), "{store:#}");
    }
    assert_eq!(broken["missed"], 0);
    assert_eq!(std::fs::read_dir(env.path("home")).unwrap().count(), 0);
}
