//! Output of commands: tables for people, JSON for programs, and colours only on a terminal.
//! Results go to standard output, everything else to standard error.

pub mod bars;
pub mod error_text;
pub mod format;
pub mod preemption_text;
pub mod table;
pub mod unblock_text;

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use hayward_service::{Clock as _, SystemClock};
use hayward_vocabulary::Timestamp;
use owo_colors::OwoColorize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use table::{Cell, Facts, Table, Tone, toned};

/// Settings for text: colours, and the current time. Equal settings give equal text.
#[derive(Debug, Clone, Copy)]
pub struct Renderer {
    pub colour: bool,
    /// Time to which ages refer.
    pub now: Timestamp,
}

impl Renderer {
    pub fn paint(&self, text: &str, tone: Tone) -> String {
        match tone {
            _ if !self.colour => text.to_owned(),
            Tone::Plain => text.to_owned(),
            Tone::Good => text.green().to_string(),
            Tone::Bad => text.red().to_string(),
            Tone::Warning => text.yellow().to_string(),
            Tone::Faint => text.bright_black().to_string(),
        }
    }

    pub fn title(&self, text: &str) -> String {
        if self.colour {
            text.bold().to_string()
        } else {
            text.to_owned()
        }
    }

    /// Returns the time since `at`.
    pub fn age(&self, at: Timestamp) -> String {
        format::format_age(at, self.now)
    }

    /// Returns an age as part of a sentence.
    pub fn ago(&self, at: Timestamp) -> String {
        match self.age(at).as_str() {
            "now" => "just now".to_owned(),
            age => format!("{age} ago"),
        }
    }
}

/// Format of the output.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
    colour: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        // Any value that is not empty switches colours off, see <https://no-color.org>.
        let allows_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            json,
            colour: allows_colour && std::io::stdout().is_terminal(),
        }
    }

    pub fn renderer(&self) -> Renderer {
        Renderer {
            colour: self.colour,
            now: SystemClock.now(),
        }
    }

    /// Prints a response: unchanged as JSON, or formatted by `render`.
    pub fn print_response<T: DeserializeOwned>(
        &self,
        response: Value,
        render: impl FnOnce(&T, &Renderer) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return self.json(&response);
        }
        let value = parse_response(response)?;
        print(&render(&value, &self.renderer()))
    }

    /// Prints JSON.
    pub fn json(&self, response: &Value) -> anyhow::Result<()> {
        print(&format!("{}\n", serde_json::to_string_pretty(response)?))
    }
}

/// Parses a response.
pub fn parse_response<T: DeserializeOwned>(response: Value) -> anyhow::Result<T> {
    serde_json::from_value(response)
        .context("the answer is not what this version of the command expects")
}

/// Error that the reader of standard output has closed the pipe, as `head` does.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output has closed the pipe")]
struct ClosedPipe;

/// Prints to standard output and flushes. A closed pipe is a separate kind of error that ends the
/// program quietly, see [`is_closed_pipe`].
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => ClosedPipe.into(),
        _ => error.into(),
    })
}

/// Prints to standard error: information that is not part of the result.
pub fn note(text: &str) {
    // A failed write to standard error cannot be reported.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Returns true if the reader of standard output has closed the pipe. A broken connection to a
/// service or a database has the same system error, but is a failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<ClosedPipe>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_is_not_a_closed_pipe() {
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::new(broken).context("cannot connect to the database");
        assert!(
            !is_closed_pipe(&error),
            "the program would end with success"
        );
    }

    #[test]
    fn a_closed_pipe_ends_the_program_quietly() {
        let error = anyhow::Error::new(ClosedPipe).context("the list");
        assert!(is_closed_pipe(&error));
    }
}
