//! One line of a trace, split into fields, and the errors of reading a trace.

use std::fmt;

/// How to handle an invalid line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidLines {
    Refuse,
    /// Skip the line and count it.
    Skip,
}

/// An invalid line: position and fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {message}", ColumnSuffix(column.as_ref()))]
pub struct Fault {
    /// Line number, starting at 1 with the header.
    pub line: usize,
    /// Number, starting at 1, and name of the invalid column. `None` if the whole line is invalid.
    pub column: Option<(usize, &'static str)>,
    pub message: String,
}

struct ColumnSuffix<'a>(Option<&'a (usize, &'static str)>);

impl fmt::Display for ColumnSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((number, name)) => write!(f, ", column {number} ({name})"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(transparent)]
    InvalidLine(#[from] Fault),
    /// The file could not be read further. The lines before were complete.
    #[error("cannot read on after line {line}")]
    Read {
        line: usize,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot open {path}")]
    Open {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the file is empty: a header line is missing")]
    Empty,
}

/// The fields of one line, by the columns of the file.
pub(super) struct Record<'a> {
    pub number: usize,
    pub fields: Vec<&'a str>,
}

/// A column: its name and its index in this file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    pub index: usize,
}

impl Record<'_> {
    pub fn fault(&self, column: Column, message: String) -> Fault {
        Fault {
            line: self.number,
            column: Some((column.index + 1, column.name)),
            message,
        }
    }

    pub fn text(&self, column: Column) -> &str {
        self.fields[column.index]
    }

    /// Returns the text of a mandatory field.
    pub fn required_text(&self, column: Column) -> Result<&str, Fault> {
        match self.text(column) {
            "" => Err(self.fault(column, "is empty".into())),
            text => Ok(text),
        }
    }

    pub fn parse_u64(&self, column: Column) -> Result<u64, Fault> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.fault(column, format!("{text:?} is not a whole number from 0 up")))
    }

    /// Parses a whole number, or `None` for -1, which means not known.
    pub fn parse_optional_u64(&self, column: Column) -> Result<Option<u64>, Fault> {
        if self.text(column) == "-1" {
            return Ok(None);
        }
        let message = || format!("{:?} is neither -1 nor a whole number", self.text(column));
        let number = self.text(column).parse();
        number.map(Some).map_err(|_| self.fault(column, message()))
    }
}
