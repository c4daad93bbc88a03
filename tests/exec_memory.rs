//! Memory, measured in a process that does nothing else.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;

use std::{fs::File, io::Read, thread};

use ctrlrun::exec::{Output, Sink};
use exec_support::{run, sh};
use rustix::pipe::{PipeFlags, pipe_with};

const MIB: usize = 1 << 20;

#[test]
fn memory_does_not_grow_with_the_output() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
        let pages: usize = statm.split(' ').nth(1).expect("field").parse().expect("number");
        pages * 4096
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    let mut read = File::from(read);
    let sink = thread::spawn(move || {
        let mut buffer = vec![0; MIB];
        let mut total = 0;
        while let Ok(got @ 1..) = read.read(&mut buffer) {
            total += got;
        }
        total
    });
    let before = resident();
    let mut line = sh("yes | head -c 536870912");
    line.output =
        Output::Capture { cap: 64 * 1024, stdout: Sink::To(write), stderr: Sink::Nowhere };
    let end = run(line);
    let grown = resident().saturating_sub(before);
    assert_eq!(end.stdout.bytes, 512 << 20);
    assert_eq!(sink.join().expect("sink"), 512 << 20);
    assert!(grown < 8 * MIB, "{grown}");
}
