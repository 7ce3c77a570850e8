//! What tasks write, passed on while they run: line by line into the output of their container,
//! each line with the number of its task. So whoever follows a job hears it at once, and not only
//! when a task is over.

use std::io::Write as _;

/// A line that goes on for longer is cut: nobody waits for its end.
const LONGEST: usize = 4096;

pub struct Tee {
    task: u64,
    /// A line that is not complete.
    begun: Vec<u8>,
}

impl Tee {
    pub fn of(task: u64) -> Self {
        Self {
            task,
            begun: Vec::new(),
        }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        say(&self.lines(bytes));
    }

    /// The task is over, and so is its last line.
    pub fn finish(mut self) {
        if !self.begun.is_empty() {
            say(&self.lines(b"\n"));
        }
    }

    /// What can be said now that these came.
    fn lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            let whole = self.begun.ends_with(b"\n");
            if whole || self.begun.len() >= LONGEST {
                said.extend_from_slice(format!("task {}: ", self.task).as_bytes());
                said.append(&mut self.begun);
                if !whole {
                    said.push(b'\n');
                }
            }
        }
        said
    }
}

/// In one piece, so that lines of tasks that run side by side stay whole. That nobody listens is no
/// fault of the task.
fn say(lines: &[u8]) {
    if !lines.is_empty() {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(lines).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_have_the_number_of_their_task() {
        let mut tee = Tee::of(7);
        let mut said = |bytes: &[u8]| String::from_utf8(tee.lines(bytes)).unwrap();
        assert_eq!(said(b"a"), "");
        assert_eq!(said(b"b\nc\nd"), "task 7: ab\ntask 7: c\n");
        assert_eq!(said(b"\n\n"), "task 7: d\ntask 7: \n");
        let long = said(&[b'x'; 5000]);
        assert_eq!(long.len(), "task 7: ".len() + 5000 + 1);
        assert_eq!(said(b"end\n"), "task 7: end\n");
    }
}
