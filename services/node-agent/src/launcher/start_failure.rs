//! Says why a program could not be started, by the name of the thing that is missing (TC-124).

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::run_plan::RunPlan;

/// Describes the failed start of a program. The directory is checked first, because the system
/// reports both with the same error.
pub fn describe(plan: &RunPlan, node: &str, error: &io::Error) -> String {
    let directory = plan.working_directory.as_deref();
    if let Some(message) = describe_missing_directory(directory, "it should start in", node) {
        return message;
    }
    let program = plan.argv.first().map_or("", String::as_str);
    let unexplained = format!("{program:?} cannot be run on {node}: {error}");
    if !program.contains('/') {
        let path = plan.environment.get("PATH").map_or("", String::as_str);
        let is_found = path
            .split(':')
            .any(|folder| Path::new(folder).join(program).is_file());
        if is_found {
            return unexplained;
        }
        return format!("{program:?} was not found on {node} in PATH ({path})");
    }
    let base = directory.unwrap_or(Path::new("."));
    let file = base.join(program);
    match file.metadata() {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            format!("{program:?} does not exist on {node}")
        }
        Ok(metadata) if metadata.is_dir() => format!("{program:?} is a directory on {node}"),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            format!("{program:?} is not executable on {node}: set its x permission")
        }
        Ok(_) if error.kind() == io::ErrorKind::NotFound => {
            format!("the interpreter or loader of {program:?} does not exist on {node}")
        }
        _ => unexplained,
    }
}

/// Describes the first part of a path that is not a directory. Returns `None` if each part is one.
pub fn describe_missing_directory(
    directory: Option<&Path>,
    purpose: &str,
    node: &str,
) -> Option<String> {
    let mut parts: Vec<&Path> = directory?.ancestors().collect();
    parts.reverse();
    let first_fault = |part: &&Path| !part.as_os_str().is_empty() && !part.is_dir();
    let part: PathBuf = parts.into_iter().find(first_fault)?.to_owned();
    let shown = directory?.display();
    Some(match part.metadata() {
        Ok(_) => format!(
            "{} is not a directory on {node} ({shown} {purpose})",
            part.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let missing = part.display();
            format!("the directory {missing} does not exist on {node} ({shown} {purpose})")
        }
        Err(error) => format!("{} cannot be used on {node}: {error}", part.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let message = describe_missing_directory(Some(&path), "of stdout", "node-2").unwrap();
        let missing = dir.path().join("a");
        let start = format!(
            "the directory {} does not exist on node-2",
            missing.display()
        );
        assert!(message.starts_with(&start), "{message}");
        std::fs::write(&missing, "").unwrap();
        let message = describe_missing_directory(Some(&path), "of stdout", "node-2").unwrap();
        assert!(
            message.contains("is not a directory on node-2"),
            "{message}"
        );
        assert_eq!(
            describe_missing_directory(Some(dir.path()), "", "node-2"),
            None
        );
    }
}
