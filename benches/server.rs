//! The same pairs on a server on loopback, which is started for it as the tests do.
#[path = "../tests/common/postgres.rs"]
mod postgres;

use std::path::Path;
use std::process::Command;

use super::{Outcome, WARM_UP, ctrlrun, median, timed};

/// Alternates `ctrlrun run` and the floor program, each on a server of its own, so that neither works
/// in what the other has left behind; prints the ratio.
pub fn measure(directory: &Path, pairs: usize) -> Outcome<()> {
    let mut urls = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let server = postgres::server().ok_or("no PostgreSQL server is installed")?;
        let url = server.url("postgres");
        let mut init = ctrlrun(directory);
        let made = init.args(["init", "--store", &url]).output()?;
        if !made.status.success() {
            return Err(format!("ctrlrun init: {made:?}").into());
        }
        urls.push(url);
        servers.push(server);
    }
    let (ours_url, floor_url) = (&urls[0], &urls[1]);
    let mut times = Vec::new();
    for round in 0..WARM_UP + pairs {
        let key = format!("bench:{round}");
        let mut ours = ctrlrun(directory);
        ours.args(["run", "--store", ours_url, "--key", &key, "--", "true"]);
        let mut floor = Command::new(directory.join("floor_pg"));
        floor.args([floor_url, &key, "true"]);
        // Which is first changes, and with it whatever the first leaves behind for the second.
        let (ours, floor) = if round % 2 == 0 {
            let ours = timed(ours)?;
            (ours, timed(floor)?)
        } else {
            let floor = timed(floor)?;
            (timed(ours)?, floor)
        };
        if round >= WARM_UP {
            times.push((ours.as_secs_f64(), floor.as_secs_f64()));
        }
    }
    let ours = median(times.iter().map(|(ours, _)| *ours));
    let floor = median(times.iter().map(|(_, floor)| *floor));
    let ratio = median(times.iter().map(|(ours, floor)| ours / floor));
    println!("{pairs} pairs on PostgreSQL, of `true` on a new key; times in ms, medians");
    println!("ctrlrun {:.3}, floor {:.3}", ours * 1e3, floor * 1e3);
    println!("ratio of medians {:.3}, median of ratios {ratio:.3}", ours / floor);
    Ok(())
}
