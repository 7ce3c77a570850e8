//! Standard input of programs: nothing, a text, or a file that is opened with the rights of the
//! user (TC-69).

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, OFlags, memfd_create};

use super::run_plan::{Input, RunPlan};
use super::start_failure::describe_missing_directory;

/// Opens the input. Returns a sentence for the user on failure.
pub fn open(plan: &RunPlan, node: &str) -> Result<Stdio, String> {
    match &plan.input {
        Input::Empty => Ok(Stdio::null()),
        Input::Text(text) => open_text(text)
            .map(Stdio::from)
            .map_err(|error| format!("stdin cannot be written on {node}: {error}")),
        Input::File(path) => open_regular(path).map(Stdio::from).map_err(|error| {
            let missing = describe_missing_directory(path.parent(), "of stdin", node);
            let path = path.display();
            missing.unwrap_or_else(|| format!("{path} of stdin cannot be read on {node}: {error}"))
        }),
    }
}

/// Returns a file in memory with this text. Each run has its own position in it.
fn open_text(text: &str) -> io::Result<File> {
    let mut memory = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    memory.write_all(text.as_bytes())?;
    memory.rewind()?;
    // The program can only read it.
    File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))
}

/// Opens a regular file. A pipe or a device is refused, and never waited for.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_text_is_read_from_its_beginning_and_cannot_be_changed() {
        let mut file = open_text("hello").unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(file.write_all(b"x").is_err());
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        std::fs::write(&path, "x").unwrap();
        assert!(open_regular(&path).is_ok());
        assert!(open_regular(dir.path()).is_err());
        assert!(open_regular(Path::new("/dev/null")).is_err());
    }
}
