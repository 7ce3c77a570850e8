//! `hayward watch nodes`: the table of machines, drawn anew every second until Ctrl-C. Where nobody
//! looks at a screen, it is printed again when it says something else.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::commands::operate::nodes::{Fleet, text};
use crate::connection::Session;
use crate::output::{Look, Tone, print};

const PAUSE: Duration = Duration::from_secs(1);
/// node-status may be away so long before the watcher gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// To the upper left, and nothing below.
const FROM_THE_TOP: &str = "\u{1b}[H\u{1b}[J";

pub async fn watch(session: &Session) -> anyhow::Result<ExitCode> {
    let screen = std::io::stdout().is_terminal();
    let (mut heard, mut shown) = (Instant::now(), String::new());
    loop {
        let look = session.out.look();
        let table = match Fleet::look(session).await {
            Ok(fleet) => {
                heard = Instant::now();
                text(&fleet, &look)
            }
            Err(error) if heard.elapsed() >= PATIENCE => return Err(error),
            Err(error) => trouble(&shown, &error, &look),
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

/// The last table that was seen stays, with the reason why it is old.
fn trouble(shown: &str, error: &anyhow::Error, look: &Look) -> String {
    let mark = "\nas it was before: ";
    let before = shown.split(mark).next().unwrap_or_default();
    let told = format!("{error:#}; trying on");
    format!("{before}{mark}{}\n", look.paint(&told, Tone::Warning))
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn what_was_seen_last_stays_and_its_age_is_told_once() {
        let look = Look {
            colour: false,
            now: Timestamp::from_unix_ms(1),
        };
        let error = anyhow::anyhow!("connection refused");
        let first = trouble("node-1\n", &error, &look);
        assert_eq!(
            first,
            "node-1\n\nas it was before: connection refused; trying on\n"
        );
        assert_eq!(trouble(&first, &error, &look), first);
    }
}
