//! Copies the output of tasks to the output of their container while they run, like the program
//! `tee`. Each line begins with the number of its task.

use std::io::Write as _;

/// Number of bytes that a pipe takes at once (`PIPE_BUF`). Longer writes of several launchers would
/// mix.
const MAX_WRITE: usize = 4096;
/// Maximum length of a line in bytes, without the number of its task. Longer lines are split.
const MAX_LINE: usize = MAX_WRITE - 32;

/// Copies the output of one task.
pub struct Tee {
    task: u64,
    /// The incomplete last line.
    partial: Vec<u8>,
}

impl Tee {
    pub fn new(task: u64) -> Self {
        Self {
            task,
            partial: Vec::new(),
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        write(&self.complete_lines(bytes));
    }

    /// Writes the incomplete last line at the end of the task.
    pub fn finish(&mut self) {
        if !self.partial.is_empty() {
            write(&self.complete_lines(b"\n"));
        }
    }

    /// Returns the lines that are complete with these bytes.
    fn complete_lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = line;
            while !rest.is_empty() {
                let length = rest.len().min(MAX_LINE - self.partial.len());
                let (piece, after) = rest.split_at(length);
                self.partial.extend_from_slice(piece);
                rest = after;
                let is_complete = self.partial.ends_with(b"\n");
                if is_complete || self.partial.len() == MAX_LINE {
                    output.extend_from_slice(format!("task {}: ", self.task).as_bytes());
                    output.append(&mut self.partial);
                    if !is_complete {
                        output.push(b'\n');
                    }
                }
            }
        }
        output
    }
}

/// Writes whole lines at once, so that lines of concurrent tasks do not mix. Errors are ignored,
/// because the task is not at fault.
fn write(lines: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let mut rest = lines;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(first_write_length(rest));
        let _ = stdout.write_all(piece).and_then(|()| stdout.flush());
        rest = after;
    }
}

/// Returns the length of the whole lines that fit into one write.
fn first_write_length(lines: &[u8]) -> usize {
    if lines.len() <= MAX_WRITE {
        return lines.len();
    }
    let last_end = lines[..MAX_WRITE].iter().rposition(|byte| *byte == b'\n');
    last_end.map_or(MAX_WRITE, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_prefixed_with_their_task() {
        let mut tee = Tee::new(7);
        let mut output = |bytes: &[u8]| String::from_utf8(tee.complete_lines(bytes)).unwrap();
        assert_eq!(output(b"a"), "");
        assert_eq!(output(b"b\nc\nd"), "task 7: ab\ntask 7: c\n");
        assert_eq!(output(b"\n\n"), "task 7: d\ntask 7: \n");
        let long = output(&[b'x'; 5000]);
        assert_eq!(long.len(), "task 7: ".len() + MAX_LINE + 1);
        let rest = "x".repeat(5000 - MAX_LINE);
        assert_eq!(output(b"\n"), format!("task 7: {rest}\n"));
        assert_eq!(output(b"end\n"), "task 7: end\n");
    }

    #[test]
    fn a_write_has_whole_lines_and_fits_into_a_pipe() {
        let lines = b"x\n".repeat(MAX_WRITE);
        assert_eq!(first_write_length(&lines), MAX_WRITE);
        assert_eq!(first_write_length(&lines[1..]), MAX_WRITE - 1);
        assert_eq!(first_write_length(b"x\n"), 2);
    }
}
