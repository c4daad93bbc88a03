//! What a batch costs: beside `xargs`, beside GNU parallel, and without children beside the same writes
//! made by hand; and whether it grows with the number of effects in the store.
//!
//! ```text
//! cargo bench --features bench --bench batch [-- children|engine|rows] [--postgres] [--rounds 5]
//! ```
//!
//! Everything that is compared is measured in turn, round by round, so that what the machine does
//! meanwhile meets all alike. It prints ratios and asserts nothing: the times are the machine's.
#[path = "../tests/common/postgres.rs"]
mod postgres;

mod batch {
    pub(super) mod children;
    pub(super) mod engine;
    pub(super) mod floor;
}

use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What is asked for on the command line.
struct Arguments {
    what: Option<String>,
    postgres: bool,
    rounds: usize,
}

fn main() -> Outcome<()> {
    let mut arguments = Arguments { what: None, postgres: false, rounds: 5 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--postgres" => arguments.postgres = true,
            "--rounds" => arguments.rounds = words.next().ok_or("--rounds N")?.parse()?,
            "children" | "engine" | "rows" => arguments.what = Some(word),
            _ => return Err(format!("unknown argument {word}").into()),
        }
    }
    let wanted = |what: &str| arguments.what.as_deref().is_none_or(|wanted| wanted == what);
    if wanted("children") {
        batch::children::measure(&arguments)?;
    }
    if wanted("engine") {
        batch::engine::measure(&arguments)?;
    }
    if wanted("rows") && !arguments.postgres {
        batch::engine::rows(&arguments)?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}
