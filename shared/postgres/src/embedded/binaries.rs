//! Finds the installed programs of Postgres.

use std::cmp::Reverse;
use std::env;
use std::path::{Path, PathBuf};

use super::EmbeddedError;

/// Directories with one folder per version, as packages install them: Debian and Ubuntu, Red Hat
/// (`/usr/pgsql-16`), Homebrew on both kinds of Mac.
const VERSIONED: [(&str, &str, &str); 4] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
];

const SERVER: [&str; 2] = ["initdb", "postgres"];

/// Returns the directory that contains `initdb` and `postgres`.
///
/// If `HAYWARD_PG_BIN` is set, only that directory is used. Otherwise the newest installed version
/// wins, and `PATH` is searched last.
pub fn binaries() -> Result<PathBuf, EmbeddedError> {
    if let Some(configured) = env::var_os("HAYWARD_PG_BIN").map(PathBuf::from) {
        return if has(&configured, &SERVER) {
            Ok(configured)
        } else {
            Err(EmbeddedError::ConfiguredPrograms(configured))
        };
    }
    installed(&SERVER).ok_or_else(|| EmbeddedError::NotInstalled(install_line()))
}

/// Finds a client program such as `pg_dump` like [`binaries`]. Client programs may be installed
/// without a server.
pub fn program(name: &'static str) -> Result<PathBuf, EmbeddedError> {
    let found = match env::var_os("HAYWARD_PG_BIN").map(PathBuf::from) {
        Some(directory) => Some(directory).filter(|directory| has(directory, &[name])),
        None => installed(&[name]),
    };
    let directory = found.ok_or(EmbeddedError::NoProgram(name))?;
    Ok(directory.join(name))
}

fn installed(programs: &[&str]) -> Option<PathBuf> {
    let mut versioned = VERSIONED.iter();
    let found =
        versioned.find_map(|(root, prefix, tail)| newest(Path::new(root), prefix, tail, programs));
    found.or_else(|| {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).find(|directory| has(directory, programs))
    })
}

fn has(directory: &Path, programs: &[&str]) -> bool {
    let mut programs = programs.iter();
    programs.all(|program| directory.join(program).is_file())
}

fn newest(root: &Path, prefix: &str, tail: &str, programs: &[&str]) -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(root)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join(tail)))
        })
        .collect();
    found.sort_by_key(|(version, _)| Reverse(*version));
    found
        .into_iter()
        .map(|(_, directory)| directory)
        .find(|directory| has(directory, programs))
}

/// Returns the command that installs Postgres with the package tool of this system.
fn install_line() -> &'static str {
    let has = |program: &str| {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|directory| directory.join(program).is_file())
    };
    if has("apt-get") {
        "sudo apt-get install postgresql"
    } else if has("dnf") {
        "sudo dnf install postgresql-server"
    } else if has("apk") {
        "sudo apk add postgresql"
    } else if has("pacman") {
        "sudo pacman -S postgresql"
    } else if has("brew") {
        "brew install postgresql@17"
    } else {
        "the package of your system that brings `initdb` and `postgres`"
    }
}

#[cfg(test)]
mod tests {
    use super::{SERVER, newest};
    use std::fs;

    #[test]
    fn the_newest_complete_version_wins() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "17", "notes"] {
            fs::create_dir_all(root.path().join(version).join("bin")).unwrap();
        }
        for version in ["9", "15"] {
            for program in ["initdb", "postgres"] {
                fs::write(root.path().join(version).join("bin").join(program), "").unwrap();
            }
        }
        // Version 17 is a client package without a server. A comparison as text would sort 9 after
        // 15.
        let found = newest(root.path(), "", "bin", &SERVER).unwrap();
        assert_eq!(found, root.path().join("15/bin"));
        assert_eq!(newest(root.path(), "pgsql-", "bin", &SERVER), None);
        // A client package is enough if only client programs are requested.
        fs::write(root.path().join("17/bin/pg_dump"), "").unwrap();
        let client = newest(root.path(), "", "bin", &["pg_dump"]).unwrap();
        assert_eq!(client, root.path().join("17/bin"));
    }
}
