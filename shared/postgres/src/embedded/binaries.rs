//! Finds the installed programs of Postgres.

use std::cmp::Reverse;
use std::env;
use std::path::{Path, PathBuf};

use super::EmbeddedError;

/// Directories with one folder per version, as packages install them: Debian and Ubuntu, Red Hat
/// (`/usr/pgsql-16`), Homebrew on both kinds of Mac. Each entry has the directory, the prefix of
/// its version folders, and the folder of the programs inside.
const VERSIONED_DIRECTORIES: [(&str, &str, &str); 4] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
];

const SERVER_PROGRAMS: [&str; 2] = ["initdb", "postgres"];

/// Returns the directory that contains `initdb` and `postgres`.
///
/// If `HAYWARD_PG_BIN` is set, only that directory is used. Otherwise the newest installed version
/// wins, and `PATH` is searched last.
pub fn binaries() -> Result<PathBuf, EmbeddedError> {
    if let Some(configured) = env::var_os("HAYWARD_PG_BIN").map(PathBuf::from) {
        return if has_programs(&configured, &SERVER_PROGRAMS) {
            Ok(configured)
        } else {
            Err(EmbeddedError::ConfiguredPrograms(configured))
        };
    }
    find_installed(&SERVER_PROGRAMS).ok_or_else(|| EmbeddedError::NotInstalled(install_command()))
}

/// Finds a client program such as `pg_dump`, in the same way as [`binaries`]. Client programs may
/// be installed without a server.
pub fn program(name: &'static str) -> Result<PathBuf, EmbeddedError> {
    let directory = match env::var_os("HAYWARD_PG_BIN").map(PathBuf::from) {
        Some(directory) => Some(directory).filter(|directory| has_programs(directory, &[name])),
        None => find_installed(&[name]),
    };
    let directory = directory.ok_or(EmbeddedError::NoProgram(name))?;
    Ok(directory.join(name))
}

fn find_installed(programs: &[&str]) -> Option<PathBuf> {
    let mut versioned = VERSIONED_DIRECTORIES.iter();
    let directory = versioned.find_map(|(root, prefix, subdirectory)| {
        find_newest(Path::new(root), prefix, subdirectory, programs)
    });
    directory.or_else(|| {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).find(|directory| has_programs(directory, programs))
    })
}

fn has_programs(directory: &Path, programs: &[&str]) -> bool {
    let mut programs = programs.iter();
    programs.all(|program| directory.join(program).is_file())
}

/// Returns the program folder of the newest version that has all `programs`.
fn find_newest(
    root: &Path,
    prefix: &str,
    subdirectory: &str,
    programs: &[&str],
) -> Option<PathBuf> {
    let mut candidates: Vec<(u32, PathBuf)> = std::fs::read_dir(root)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join(subdirectory)))
        })
        .collect();
    candidates.sort_by_key(|(version, _)| Reverse(*version));
    candidates
        .into_iter()
        .map(|(_, directory)| directory)
        .find(|directory| has_programs(directory, programs))
}

/// Returns the command that installs Postgres with the package tool of this system.
fn install_command() -> &'static str {
    let has_tool = |program: &str| {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|directory| directory.join(program).is_file())
    };
    if has_tool("apt-get") {
        "sudo apt-get install postgresql"
    } else if has_tool("dnf") {
        "sudo dnf install postgresql-server"
    } else if has_tool("apk") {
        "sudo apk add postgresql"
    } else if has_tool("pacman") {
        "sudo pacman -S postgresql"
    } else if has_tool("brew") {
        "brew install postgresql@17"
    } else {
        "the package of your system that brings `initdb` and `postgres`"
    }
}

#[cfg(test)]
mod tests {
    use super::{SERVER_PROGRAMS, find_newest};
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
        let found = find_newest(root.path(), "", "bin", &SERVER_PROGRAMS).unwrap();
        assert_eq!(found, root.path().join("15/bin"));
        assert_eq!(
            find_newest(root.path(), "pgsql-", "bin", &SERVER_PROGRAMS),
            None
        );
        // A client package is enough if only client programs are requested.
        fs::write(root.path().join("17/bin/pg_dump"), "").unwrap();
        let client = find_newest(root.path(), "", "bin", &["pg_dump"]).unwrap();
        assert_eq!(client, root.path().join("17/bin"));
    }
}
