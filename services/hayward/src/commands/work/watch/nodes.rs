//! `hayward watch nodes`: draws the table of nodes every second until Ctrl-C. Without a terminal it
//! prints the table after each change.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::commands::operate::nodes::{Fleet, text};
use crate::connection::Session;
use crate::output::{Renderer, Tone, print};

const PAUSE: Duration = Duration::from_secs(1);
/// Time that node-status may be down before the watcher gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// Moves the cursor to the upper left corner and clears the screen below.
const FROM_THE_TOP: &str = "\u{1b}[H\u{1b}[J";

pub async fn watch(session: &Session) -> anyhow::Result<ExitCode> {
    let screen = std::io::stdout().is_terminal();
    let (mut last_answer, mut shown) = (Instant::now(), String::new());
    loop {
        let renderer = session.out.renderer();
        let table = match Fleet::read(session).await {
            Ok(fleet) => {
                last_answer = Instant::now();
                text(&fleet, &renderer)
            }
            Err(error) if last_answer.elapsed() >= PATIENCE => return Err(error),
            Err(error) => trouble(&shown, &error, &renderer),
        };
        if screen {
            print(&format!("{FROM_THE_TOP}{table}"))?;
        } else if table != shown {
            print(&format!("{table}\n"))?;
        }
        shown = table;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Returns the last table, with the error below it.
fn trouble(shown: &str, error: &anyhow::Error, renderer: &Renderer) -> String {
    let mark = "\nas it was before: ";
    let before = shown.split(mark).next().unwrap_or_default();
    let warning = format!("{error:#}; trying on");
    format!(
        "{before}{mark}{}\n",
        renderer.paint(&warning, Tone::Warning)
    )
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn the_last_table_stays_and_the_error_is_printed_once() {
        let renderer = Renderer {
            colour: false,
            now: Timestamp::from_unix_ms(1),
        };
        let error = anyhow::anyhow!("connection refused");
        let first = trouble("node-1\n", &error, &renderer);
        assert_eq!(
            first,
            "node-1\n\nas it was before: connection refused; trying on\n"
        );
        assert_eq!(trouble(&first, &error, &renderer), first);
    }
}
