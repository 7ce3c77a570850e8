//! `hayward watch nodes`: draws the table of nodes every second until Ctrl-C. Without a terminal it
//! prints the table after each change.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::{Fleet, render};
use crate::connection::Session;
use crate::output::{Renderer, Tone, print};

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Time that node-status may be down before the watcher gives up.
const OUTAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Moves the cursor to the upper left corner and clears the screen below.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";

pub async fn watch_nodes(session: &Session) -> anyhow::Result<ExitCode> {
    let is_terminal = std::io::stdout().is_terminal();
    let (mut last_response, mut last_table) = (Instant::now(), String::new());
    loop {
        let renderer = session.out.renderer();
        let table = match Fleet::read(session).await {
            Ok(fleet) => {
                last_response = Instant::now();
                render(&fleet, &renderer)
            }
            Err(error) if last_response.elapsed() >= OUTAGE_TIMEOUT => return Err(error),
            Err(error) => with_error(&last_table, &error, &renderer),
        };
        if is_terminal {
            print(&format!("{CLEAR_SCREEN}{table}"))?;
        } else if table != last_table {
            print(&format!("{table}\n"))?;
        }
        last_table = table;
        tokio::select! {
            () = tokio::time::sleep(REFRESH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Returns the last table, with the error below it.
fn with_error(last_table: &str, error: &anyhow::Error, renderer: &Renderer) -> String {
    // The last table may end with the error of the previous try, which is replaced.
    let separator = "\nas it was before: ";
    let table = last_table.split(separator).next().unwrap_or_default();
    let warning = format!("{error:#}; trying on");
    format!(
        "{table}{separator}{}\n",
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
        let first = with_error("node-1\n", &error, &renderer);
        assert_eq!(
            first,
            "node-1\n\nas it was before: connection refused; trying on\n"
        );
        assert_eq!(with_error(&first, &error, &renderer), first);
    }
}
