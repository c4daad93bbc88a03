//! A store on a file system that goes over a network is refused (case 43; STO-8). The file system is a
//! real one as far as the kernel can tell: FUSE, answered here.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use common::{TestEnv, finish};

/// A mount, undone at its end.
struct Fuse(PathBuf);

impl Drop for Fuse {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// An empty directory of FUSE's at `at`; `None` where nothing can be mounted.
fn fuse(at: &Path) -> Option<Fuse> {
    let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let mut mount = Command::new("mount");
    mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "fake"]);
    mount.arg(at).stdin(Stdio::from(device.try_clone().ok()?)).stderr(Stdio::null());
    if !mount.status().ok()?.success() {
        println!("inconclusive: nothing can be mounted here");
        return None;
    }
    // It ends when the mount does.
    thread::spawn(move || serve(device));
    Some(Fuse(at.to_owned()))
}

/// Answers the kernel: a directory with nothing in it.
fn serve(mut device: File) {
    const NOT_THERE: i32 = -2;
    const NO_SUCH_CALL: i32 = -38;
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if length < 40 {
            return;
        }
        let mut body = Vec::new();
        let error = match word(4) {
            // LOOKUP
            1 => NOT_THERE,
            // FORGET and BATCH_FORGET want no answer.
            2 | 42 => continue,
            // GETATTR: how long it holds, then inode 1, a directory of root's.
            3 => {
                body = vec![0; 104];
                body[0] = 60;
                body[16] = 1;
                body[76..80].copy_from_slice(&0o40_755_u32.to_ne_bytes());
                body[80] = 2;
                0
            }
            // STATFS
            17 => {
                body = vec![0; 80];
                0
            }
            // INIT: the kernel's own version, and no flags.
            26 => {
                body = vec![0; 64];
                body[..8].copy_from_slice(&request[40..48]);
                body[21] = 16;
                0
            }
            _ => NO_SUCH_CALL,
        };
        let all = u32::try_from(16 + body.len()).unwrap();
        let mut answer = all.to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(&request[8..16]);
        answer.extend(body);
        if device.write_all(&answer).is_err() {
            return;
        }
    }
}

#[test]
fn a_store_on_a_network_file_system_is_refused_with_its_mend_unless_it_is_allowed() {
    // Case 43; STO-8
    let env = TestEnv::new();
    let at = env.path("mounted");
    std::fs::create_dir(&at).unwrap();
    let Some(_mounted) = fuse(&at) else { return };
    let store = at.join("effects.db");
    let store = store.to_str().unwrap();
    let out = finish(&mut env.command(["init", "--store", store]));
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(out.stderr.contains("network file system (FUSE)"), "{out:?}");
    assert!(out.stderr.contains("?network=allow"), "{out:?}");
    // Nothing is made there by a run either.
    let run = ["run", "--store", store, "-k", "k", "--", "touch", "marker"];
    let out = finish(&mut env.command(run));
    assert!(out.code == Some(78) && out.stderr.contains("nothing was run"), "{out:?}");
    // The default store is no exception: its place may be another's choice.
    let mut run = env.command(["run", "-k", "k", "--", "touch", "marker"]);
    let out = finish(run.env("XDG_STATE_HOME", &at));
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(out.stderr.contains("nothing was run"), "{out:?}");
    // Allowed, it is tried; this one can hold no file, and that is what is told.
    let allowed = format!("{store}?network=allow");
    let out = finish(&mut env.command(["init", "--store", &allowed]));
    assert!(out.code != Some(0) && !out.stderr.contains("network file system"), "{out:?}");
    assert!(!env.path("here/marker").exists());
}
