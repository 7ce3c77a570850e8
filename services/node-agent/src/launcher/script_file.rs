//! The script of a job, which is written into the directory of the allocation (TC-68).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hayward_job_converter_api::submission::{DEFAULT_SCRIPT_NAME, ScriptSubmission};

/// Folder of the script below the directory of the allocation. Its name begins with a dot, so tasks
/// that remove all files of their directory leave it, and files of output are elsewhere.
const FOLDER: &str = ".hayward";

/// Returns the path of the script on this node.
pub fn path(script: &ScriptSubmission, work_dir: &Path) -> PathBuf {
    let name = script.name.as_deref().unwrap_or(DEFAULT_SCRIPT_NAME);
    work_dir.join(FOLDER).join(name)
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

/// Writes the script, unless it is there. It appears at its path only when it is complete. `slot`
/// tells writers at the same time apart.
pub fn ensure(script: &ScriptSubmission, work_dir: &Path, slot: usize) -> io::Result<()> {
    let target = path(script, work_dir);
    if target.exists() {
        return Ok(());
    }
    let folder = work_dir.join(FOLDER);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let incomplete = folder.join(format!(".{slot}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o700)
        .open(&incomplete)?;
    file.write_all(script.text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o500))?;
    fs::rename(incomplete, target)
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
    fn a_script_is_written_again_if_a_task_removed_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = ScriptSubmission {
            text: "echo x".into(),
            interpreter: vec!["/bin/bash".into(), "-e".into()],
            name: Some("job.sh".into()),
        };
        let path = path(&script, dir.path());
        for slot in [0, 0, 1] {
            ensure(&script, dir.path(), slot).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "echo x");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o500);
        }
        fs::remove_file(&path).unwrap();
        ensure(&script, dir.path(), 0).unwrap();
        assert!(path.exists());
        assert_eq!(start_words(&script, "/p"), ["/bin/bash", "-e", "/p"]);
    }
}
