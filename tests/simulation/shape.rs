//! What kind of world a seed makes. A seed whose world has no faults at all is among them: there
//! every doubt has to be a command's own.
use crate::verify::seed::Draws;

/// How often things go wrong is told as one in so many; 0 is never.
#[derive(Debug, Clone)]
pub struct Shape {
    pub hosts: usize,
    pub runners: usize,
    pub keys: usize,
    /// Commands that each of the runners gives, one after another.
    pub jobs: u64,
    pub operator: bool,
    pub lease_ms: u64,
    pub store_timeout_ms: u64,
    /// The longest that a healthy exchange with the store takes, one way.
    pub latency_us: u64,
    /// How long commands take at most.
    pub child_ms: u64,
    pub kill: u64,
    pub kills_max: u32,
    pub freeze: u64,
    pub freezes_max: u32,
    /// An exchange with the store fails, or its answer is lost.
    pub fault: u64,
    /// An exchange takes longer than it may.
    pub slow: u64,
    /// The store's clock is set to another time.
    pub clock_jump: u64,
    /// The store goes away for a while.
    pub outage: u64,
    /// A host without a place for its spool.
    pub no_spool: bool,
}

impl Shape {
    pub fn of(draws: &mut Draws) -> Self {
        let mut odds = |common: u64, rare: u64| match draws.below(3) {
            0 => 0,
            1 => common,
            _ => rare,
        };
        let (kill, freeze, fault) = (odds(40, 200), odds(60, 250), odds(8, 40));
        let (slow, clock_jump, outage) = (odds(30, 120), odds(120, 400), odds(120, 400));
        let calm = draws.below(8) == 0;
        let unless_calm = |odds: u64| if calm { 0 } else { odds };
        let lease_ms = 1_000 + 500 * draws.below(9);
        Self {
            hosts: 1 + index(draws, 2),
            runners: 1 + index(draws, 4),
            keys: 1 + index(draws, 2),
            jobs: 1 + draws.below(3),
            operator: draws.below(3) != 0,
            lease_ms,
            store_timeout_ms: 250 + 250 * draws.below(7),
            latency_us: 500 + draws.below(30_000),
            child_ms: lease_ms / 4 + draws.below(3 * lease_ms),
            kill: unless_calm(kill),
            kills_max: 1 + draws.below(4) as u32,
            freeze: unless_calm(freeze),
            freezes_max: 1 + draws.below(3) as u32,
            fault: unless_calm(fault),
            slow: unless_calm(slow),
            clock_jump: unless_calm(clock_jump),
            outage: unless_calm(outage),
            no_spool: !calm && draws.below(16) == 0,
        }
    }
}

pub fn index(draws: &mut Draws, below: u64) -> usize {
    usize::try_from(draws.below(below)).unwrap_or(0)
}
