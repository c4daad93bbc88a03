//! A store with many effects: nothing holds it for long, and no memory grows with it.
