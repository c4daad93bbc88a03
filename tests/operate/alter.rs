//! What a test changes in a store behind its back: times, and damage.
use crate::at::Home;

impl Home {
    /// Makes an effect older by `days`, as if all of its history had been recorded so long before.
    pub fn age(&self, key: &str, days: i64) {
        let micros = days * 86_400_000_000;
        let update = |history: &str, effects: &str| {
            format!(
                "UPDATE {history} SET recorded_at=recorded_at-({micros}) WHERE effect_key='{key}';
                 UPDATE {effects} SET created_at=created_at-({micros}), updated_at=updated_at-({micros})
                 WHERE effect_key='{key}'"
            )
        };
        match self {
            Self::File(path) => {
                let store = rusqlite::Connection::open(path).unwrap();
                store.execute_batch(&update("history", "effects")).unwrap();
            }
            Self::Shared(schema) | Self::Own(schema, _) => {
                let table = |name: &str| format!("{schema}.{name}");
                self.sql(&update(&table("history"), &table("effects")));
            }
        }
    }

    /// Changes what is stored by a statement in which `:effects`, `:history`, `:output` and `:store`
    /// are the tables.
    pub fn tamper(&self, sql: &str) {
        let filled = |before: &str| {
            ["effects", "history", "output", "store"].iter().fold(sql.to_owned(), |sql, table| {
                sql.replace(&format!(":{table}"), &format!("{before}{table}"))
            })
        };
        match self {
            Self::File(path) => {
                let store = rusqlite::Connection::open(path).unwrap();
                store.execute_batch(&filled("")).unwrap();
            }
            Self::Shared(schema) | Self::Own(schema, _) => {
                self.sql(&filled(&format!("{schema}.")));
            }
        }
    }
}
