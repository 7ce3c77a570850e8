//! Adds the last lines of output to the exit of a failed program, so that the exit alone explains
//! the failure (W13).

use hayward_vocabulary::{AllocationId, Exit, ExitCause};

use crate::runtime::Runtime;

const MAX_LINES: usize = 3;
const MAX_BYTES: u64 = 300;

/// Adds the last lines if the program itself failed and has written output.
pub fn add_to_exit(runtime: &dyn Runtime, id: &AllocationId, exit: &mut Exit) {
    // Other causes are not explained by the output of the program.
    if !matches!(exit.cause, ExitCause::UserError | ExitCause::UserLimit) {
        return;
    }
    let Some(piece) = runtime.output(id, 0, MAX_BYTES, MAX_BYTES) else {
        return;
    };
    if let Some(lines) = last_lines(&piece.bytes) {
        exit.message = Some(match exit.message.take() {
            Some(message) => format!("{message}; last output: {lines}"),
            None => format!("last output: {lines}"),
        });
    }
}

fn last_lines(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output).replace('\0', "\u{fffd}");
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    (!last.is_empty()).then(|| last.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_joined() {
        let joined = |text: &[u8]| last_lines(text);
        assert_eq!(joined(b"a\nb\n\n  c  \nd\n").unwrap(), "b / c / d");
        assert_eq!(joined(b"\xff\0").unwrap(), "\u{fffd}\u{fffd}");
        assert_eq!(joined(b"\n \n"), None);
    }
}
