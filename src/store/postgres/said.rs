//! The cells of a row that was answered in texts, read one after the other; a cell of another kind
//! than its column is named.
use data_encoding::HEXLOWER;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use crate::store::row::Malformed;

/// The cells of a row.
pub struct Said<'row> {
    row: &'row SimpleQueryRow,
    at: usize,
}

impl<'row> Said<'row> {
    /// The first row of an answer; `None` where there is none.
    pub fn first(answer: &'row [SimpleQueryMessage]) -> Option<Self> {
        answer.iter().find_map(|message| {
            if let SimpleQueryMessage::Row(row) = message {
                Some(Self { row, at: 0 })
            } else {
                None
            }
        })
    }

    /// A text or null.
    pub fn or_null(&mut self, column: &'static str) -> Result<Option<&'row str>, Malformed> {
        let cell = self.row.try_get(self.at);
        self.at += 1;
        cell.map_err(|error| Malformed::new(column, error.to_string()))
    }

    /// A text.
    pub fn text(&mut self, column: &'static str) -> Result<&'row str, Malformed> {
        self.or_null(column)?.ok_or_else(|| Malformed::new(column, "null"))
    }

    /// A whole number or null.
    pub fn number_or_null(&mut self, column: &'static str) -> Result<Option<i64>, Malformed> {
        let number = |text: &str| text.parse().map_err(|_| Malformed::new(column, "no number"));
        self.or_null(column)?.map(number).transpose()
    }

    /// A whole number.
    pub fn number(&mut self, column: &'static str) -> Result<i64, Malformed> {
        self.number_or_null(column)?.ok_or_else(|| Malformed::new(column, "null"))
    }

    /// True or false.
    pub fn flag(&mut self, column: &'static str) -> Result<bool, Malformed> {
        match self.text(column)? {
            "t" => Ok(true),
            "f" => Ok(false),
            _ => Err(Malformed::new(column, "neither true nor false")),
        }
    }

    /// So many bytes, which were encoded as hexadecimal digits.
    pub fn hex<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = HEXLOWER.decode(self.text(column)?.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| Malformed::new(column, format!("not {N} bytes")))
    }
}
