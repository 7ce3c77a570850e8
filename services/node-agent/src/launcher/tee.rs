//! Copies the output of tasks to the output of their container while they run, like the program
//! `tee`. Each line begins with the number of its task.

use std::io::Write as _;

/// Maximum length of a line in bytes. Longer lines are split.
const MAX_LINE: usize = 4096;

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
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            let complete = self.partial.ends_with(b"\n");
            if complete || self.partial.len() >= MAX_LINE {
                output.extend_from_slice(format!("task {}: ", self.task).as_bytes());
                output.append(&mut self.partial);
                if !complete {
                    output.push(b'\n');
                }
            }
        }
        output
    }
}

/// Writes all lines at once, so that lines of concurrent tasks do not mix. Errors are ignored,
/// because the task is not at fault.
fn write(lines: &[u8]) {
    if !lines.is_empty() {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(lines).and_then(|()| stdout.flush());
    }
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
        assert_eq!(long.len(), "task 7: ".len() + 5000 + 1);
        assert_eq!(output(b"end\n"), "task 7: end\n");
    }
}
