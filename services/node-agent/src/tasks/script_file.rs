//! The script of a job, which is written once into the directory of the allocation (TC-68).

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hayward_job_converter_api::submission::{DEFAULT_SCRIPT_NAME, ScriptSubmission};

/// Returns the path of the script on this node.
pub fn path(script: &ScriptSubmission, work_dir: &Path) -> PathBuf {
    work_dir.join(script.name.as_deref().unwrap_or(DEFAULT_SCRIPT_NAME))
}

/// Returns the words that start the script: its interpreter, and its path. The first line is read
/// here and not by the kernel, so the file system may forbid execution, and the line may end with a
/// carriage return.
pub fn start_words(script: &ScriptSubmission, path: &str) -> Vec<String> {
    let mut words = script.interpreter.clone();
    if words.is_empty() {
        words = first_line_words(&script.text);
    }
    words.push(path.to_owned());
    words
}

/// Returns the interpreter of the first line, with its argument. Like the kernel, passes all words
/// after the interpreter as one argument.
fn first_line_words(text: &str) -> Vec<String> {
    let line = text.lines().next().unwrap_or_default();
    let interpreter = line.strip_prefix("#!").map(str::trim).unwrap_or_default();
    if interpreter.is_empty() {
        return vec!["/bin/sh".to_owned()];
    }
    match interpreter.split_once([' ', '\t']) {
        None => vec![interpreter.to_owned()],
        Some((program, argument)) => vec![program.to_owned(), argument.trim().to_owned()],
    }
}

/// Writes the script, unless it is there.
pub fn write(script: &ScriptSubmission, work_dir: &Path) -> io::Result<()> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o500)
        .open(path(script, work_dir));
    match opened {
        Ok(mut file) => file.write_all(script.text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_interpreter() {
        let start = |text: &str| first_line_words(text).join("|");
        assert_eq!(start("echo x"), "/bin/sh");
        assert_eq!(start("#!\necho x"), "/bin/sh");
        assert_eq!(start("#!/bin/bash\r\necho x"), "/bin/bash");
        assert_eq!(
            start("#! /usr/bin/env python3 -u\n"),
            "/usr/bin/env|python3 -u"
        );
    }

    #[test]
    fn a_script_is_written_once_and_started_by_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let script = ScriptSubmission {
            text: "echo x".into(),
            interpreter: vec!["/bin/bash".into(), "-e".into()],
            name: Some("job.sh".into()),
        };
        write(&script, dir.path()).unwrap();
        write(&script, dir.path()).unwrap();
        let path = path(&script, dir.path());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "echo x");
        assert_eq!(start_words(&script, "/p"), ["/bin/bash", "-e", "/p"]);
    }
}
