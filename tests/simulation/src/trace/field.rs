//! One line of a trace, field by field, and what can be wrong with it.

use std::fmt;

/// What to do with a broken line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    Refuse,
    /// Pass it over and count it.
    Skip,
}

/// A broken line: where, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {what}", At(column.as_ref()))]
pub struct Fault {
    /// From 1, the header included.
    pub line: usize,
    /// Number from 1, and name, of the column at fault; absent where it is the line as a whole.
    pub column: Option<(usize, &'static str)>,
    pub what: String,
}

struct At<'a>(Option<&'a (usize, &'static str)>);

impl fmt::Display for At<'_> {
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
    Broken(#[from] Fault),
    /// The file could not be read on; the lines before were whole.
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

/// The fields of one line by their columns in the file.
pub(super) struct Line<'a> {
    pub number: usize,
    pub fields: Vec<&'a str>,
}

/// A column: its name, and its place in this file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    pub at: usize,
}

impl Line<'_> {
    pub fn fault(&self, column: Column, what: String) -> Fault {
        Fault {
            line: self.number,
            column: Some((column.at + 1, column.name)),
            what,
        }
    }

    pub fn text(&self, column: Column) -> &str {
        self.fields[column.at]
    }

    /// Text that must be there.
    pub fn name(&self, column: Column) -> Result<&str, Fault> {
        match self.text(column) {
            "" => Err(self.fault(column, "is empty".into())),
            text => Ok(text),
        }
    }

    pub fn whole(&self, column: Column) -> Result<u64, Fault> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.fault(column, format!("{text:?} is not a whole number from 0 up")))
    }

    /// A whole number, or -1 for what is not known.
    pub fn maybe(&self, column: Column) -> Result<Option<u64>, Fault> {
        if self.text(column) == "-1" {
            return Ok(None);
        }
        let what = || format!("{:?} is neither -1 nor a whole number", self.text(column));
        let number = self.text(column).parse();
        number.map(Some).map_err(|_| self.fault(column, what()))
    }
}
