//! Runs the client programs of Postgres: finds them, checks their version, and passes passwords in
//! the environment instead of the command line.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use percent_encoding::percent_decode_str;
use tokio::process::Command;

/// A client program: `pg_dump`, `pg_restore` or `psql`.
#[derive(Debug, Clone)]
pub struct Tool {
    name: &'static str,
    path: PathBuf,
    /// Major version of the program.
    pub version: u32,
}

impl Tool {
    /// Finds the program and reads its version.
    ///
    /// # Errors
    /// When this machine has no such program, or it does not run.
    pub async fn find(name: &'static str) -> anyhow::Result<Self> {
        let path = hayward_postgres::program(name)?;
        let mut command = Command::new(&path);
        command.arg("--version").stdin(Stdio::null());
        let output = command.output().await;
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = parse_major_version(&output);
        let version = version
            .with_context(|| format!("{} does not say its version: {output}", path.display()))?;
        Ok(Self {
            name,
            path,
            version,
        })
    }

    /// Checks that the program fits a server of this version.
    ///
    /// # Errors
    /// When the program is older than the server: it would refuse, or leave out unknown objects.
    pub fn check_version(&self, server: u32) -> anyhow::Result<()> {
        if self.version < server {
            bail!(
                "{} is of version {}, and the server of version {server}: install the client \
                 programs of Postgres {server} or newer, or say where they are with HAYWARD_PG_BIN",
                self.path.display(),
                self.version
            );
        }
        Ok(())
    }

    /// Returns a command line without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Returns a command line with the database address. The password is in an environment
    /// variable.
    pub fn command_for(&self, url: &str) -> Command {
        let (url, password) = split_password(url);
        let mut command = self.command();
        command.arg(format!("--dbname={url}"));
        if let Some(password) = password {
            command.env("PGPASSWORD", password);
        }
        command
    }

    /// Runs the command to its end. Returns its output.
    pub async fn run(&self, mut command: Command) -> anyhow::Result<String> {
        let output = command.output().await;
        let output = output.with_context(|| format!("cannot run {}", self.path.display()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.name, first_lines(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the first four lines of an error message, joined to one line.
pub fn first_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).take(4).collect();
    lines.join("; ")
}

/// Parses the major version in a line such as `pg_dump (PostgreSQL) 15.8 (Debian …)`.
fn parse_major_version(output: &str) -> Option<u32> {
    let (_, version) = output.split_once("(PostgreSQL) ")?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Separates the password from the address, because other users can see command lines. Returns the
/// address without the password, and the password.
fn split_password(url: &str) -> (String, Option<String>) {
    let unchanged = || (url.to_owned(), None);
    let Some((scheme, rest)) = url.split_once("://") else {
        return unchanged();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let Some((login, host)) = authority.rsplit_once('@') else {
        return unchanged();
    };
    let Some((user, password)) = login.split_once(':') else {
        return unchanged();
    };
    let password = percent_decode_str(password).decode_utf8_lossy();
    (
        format!("{scheme}://{user}@{host}{tail}"),
        Some(password.into_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_on_a_command_line() {
        let (url, password) =
            split_password("postgres://ada:p%40s%3As@db:5432/hayward?sslmode=require");
        assert_eq!(url, "postgres://ada@db:5432/hayward?sslmode=require");
        assert_eq!(password.as_deref(), Some("p@s:s"));
        for url in [
            "postgres://postgres@localhost/hayward?host=/a/b:c@d",
            "postgres://localhost/hayward",
            "hayward",
        ] {
            assert_eq!(split_password(url), (url.to_owned(), None));
        }
    }

    #[test]
    fn an_older_program_is_refused_by_its_version() {
        assert_eq!(
            parse_major_version("pg_dump (PostgreSQL) 15.8 (Debian 15.8-0)"),
            Some(15)
        );
        assert_eq!(parse_major_version("psql (PostgreSQL) 17beta1"), Some(17));
        assert_eq!(parse_major_version("nothing"), None);
        let tool = |version| Tool {
            name: "pg_dump",
            path: "/x/pg_dump".into(),
            version,
        };
        assert!(tool(15).check_version(15).is_ok() && tool(17).check_version(15).is_ok());
        let refusal = tool(14).check_version(15).unwrap_err().to_string();
        assert!(
            refusal.contains("version 14") && refusal.contains("HAYWARD_PG_BIN"),
            "{refusal}"
        );
    }
}
