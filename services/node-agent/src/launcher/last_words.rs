//! The last words of a task, which are stored with its outcome.

use std::fmt;
use std::io::{self, PipeReader, Read as _, Seek as _, SeekFrom};

use hayward_job_converter_api::tasks::OUTPUT_LIMIT;

use super::output_files::OutputFile;
use super::tee::Tee;

/// The last part of the output of one run.
#[derive(Default)]
pub struct LastWords {
    bytes: Vec<u8>,
    /// Whether older output was dropped.
    truncated: bool,
}

impl LastWords {
    /// Reads the end of a file of output, without the bytes of earlier runs.
    pub fn read_file(output: &OutputFile) -> io::Result<Self> {
        let mut file = output.reopen()?;
        let start = output.start;
        let length = file.metadata()?.len();
        // One more byte tells whether the first line is complete.
        let first = length.saturating_sub(OUTPUT_LIMIT as u64 + 1).max(start);
        file.seek(SeekFrom::Start(first))?;
        let mut bytes = Vec::new();
        file.take(2 * OUTPUT_LIMIT as u64).read_to_end(&mut bytes)?;
        Ok(Self {
            bytes,
            truncated: first > start,
        })
    }

    /// Reads available output. Returns false at the end of the stream.
    pub fn read_available(&mut self, reader: &mut PipeReader, tee: &mut Tee) -> bool {
        let mut buffer = [0; 8192];
        match reader.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                tee.push(&buffer[..length]);
                self.bytes.extend_from_slice(&buffer[..length]);
                // Older output is dropped in large pieces, to copy the rest rarely.
                if self.bytes.len() > 4 * OUTPUT_LIMIT {
                    self.bytes.drain(..self.bytes.len() - OUTPUT_LIMIT);
                    self.truncated = true;
                }
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }
}

impl fmt::Display for LastWords {
    /// Writes at most `OUTPUT_LIMIT` bytes of text. Begins with a complete line if possible.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = &self.bytes[self.bytes.len().saturating_sub(OUTPUT_LIMIT)..];
        // A replaced byte takes three bytes. Postgres text cannot store NUL.
        let text = String::from_utf8_lossy(tail).replace('\0', "\u{fffd}");
        let mut start = text.len().saturating_sub(OUTPUT_LIMIT);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let truncated = self.truncated || start > 0 || tail.len() < self.bytes.len();
        let partial_line_length = text[start..].find('\n').map_or(0, |end| end + 1);
        if truncated && start + partial_line_length < text.len() {
            start += partial_line_length;
        }
        f.write_str(&text[start..])
    }
}
