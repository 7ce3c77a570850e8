//! Restores a dump in one transaction, which drops the old schemas, creates the new ones, and
//! begins new histories. A failure leaves the database unchanged.
//!
//! `pg_restore` converts the dump to an SQL script, and `psql` executes the script.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};

use super::postgres_tool::{Tool, first_lines};
use super::revision_histories::{History, new_history_statements};
use crate::prepare::SERVICES;

/// Database into which a dump is restored.
pub struct Target<'a> {
    pub url: &'a str,
    /// Histories in the database before the restore, by schema.
    pub histories_before: &'a BTreeMap<String, History>,
    /// Settings that the server knows.
    pub settings: &'a BTreeSet<String>,
}

/// Client programs that a restore needs.
pub struct Tools {
    pg_restore: Tool,
    psql: Tool,
}

impl Tools {
    pub async fn find() -> anyhow::Result<Self> {
        Ok(Self {
            pg_restore: Tool::find("pg_restore").await?,
            psql: Tool::find("psql").await?,
        })
    }

    /// Checks that the programs fit the server.
    ///
    /// # Errors
    /// When a program is older than the server.
    pub fn check_versions(&self, server: u32) -> anyhow::Result<()> {
        self.pg_restore.check_version(server)?;
        self.psql.check_version(server)
    }

    /// Checks that the dump is complete.
    ///
    /// # Errors
    /// When the dump cannot be read, or is not from a fleet.
    pub async fn check_dump(&self, dump: &Path) -> anyhow::Result<()> {
        check_dump(&self.pg_restore, dump).await
    }

    /// Restores the dump into the target.
    ///
    /// # Errors
    /// When a program fails. The database is then unchanged.
    pub async fn restore(&self, dump: &Path, target: Target<'_>) -> anyhow::Result<()> {
        let mut pg_restore = self.pg_restore.command();
        // Hayward creates the schemas itself, because the administrator need not own the database.
        for (_, schema) in SERVICES {
            pg_restore.arg(format!("--schema={}", schema.name));
        }
        pg_restore.arg("--file=-").arg(dump);
        pg_restore.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = self.psql.command_for(target.url);
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::null());
        psql.stderr(Stdio::piped());
        let mut pg_restore = pg_restore.spawn().context("cannot run pg_restore")?;
        let mut psql = psql.spawn().context("cannot run psql")?;
        let script = pg_restore.stdout.take();
        let mut script = BufReader::new(script.context("pg_restore has no output")?);
        let mut errors = pg_restore
            .stderr
            .take()
            .context("pg_restore has no errors")?;
        let mut input = psql.stdin.take().context("psql takes no input")?;
        let copy_script = async {
            input.write_all(prologue().as_bytes()).await?;
            let head = read_head(&mut script, target.settings).await?;
            input.write_all(&head).await?;
            tokio::io::copy(&mut script, &mut input).await?;
            let mut error_output = Vec::new();
            errors.read_to_end(&mut error_output).await?;
            let succeeded = pg_restore.wait().await?.success();
            if succeeded {
                let epilogue = epilogue(target.histories_before);
                input.write_all(epilogue.as_bytes()).await?;
                input.shutdown().await?;
            }
            // After a failure the final `commit` is missing. psql then ends with an open
            // transaction, which the server rolls back.
            drop(input);
            anyhow::Ok((succeeded, error_output))
        };
        let (copied, output) = tokio::join!(copy_script, psql.wait_with_output());
        let output = output.context("psql did not end")?;
        if !output.status.success() {
            bail!(
                "the database refused it and is as it was: {}",
                first_lines(&output.stderr)
            );
        }
        let (succeeded, error_output) = copied.context("the dump cannot be sent to psql")?;
        if !succeeded {
            bail!(
                "the dump cannot be read, and the database is as it was: {}",
                first_lines(&error_output)
            );
        }
        Ok(())
    }
}

/// Reads the head of a `pg_restore` script, without settings that the server does not know. For
/// example, a newer client sets `transaction_timeout`, which a server before 17 refuses. The head
/// ends at the first line that is neither a setting nor a comment.
async fn read_head(
    script: &mut (impl AsyncBufRead + Unpin),
    settings: &BTreeSet<String>,
) -> std::io::Result<Vec<u8>> {
    let (mut head, mut line) = (Vec::new(), Vec::new());
    while script.read_until(b'\n', &mut line).await? > 0 {
        let text = String::from_utf8_lossy(&line);
        let set = text.strip_prefix("SET ");
        let name = set.and_then(|set| set.split([' ', '=']).next());
        if name.is_none_or(|name| settings.contains(name)) {
            head.extend_from_slice(&line);
        }
        // Newer versions begin with `\restrict`, which forbids a script to call programs.
        let head_prefixes = ["SET ", "--", "\\restrict ", "SELECT pg_catalog.set_config("];
        let is_head = text.trim().is_empty() || head_prefixes.iter().any(|it| text.starts_with(it));
        if !is_head {
            break;
        }
        line.clear();
    }
    Ok(head)
}

/// Checks that a dump is complete and has the rows of all five services.
pub async fn check_dump(pg_restore: &Tool, dump: &Path) -> anyhow::Result<()> {
    let mut list = pg_restore.command();
    list.arg("--list").arg(dump);
    let list = pg_restore.run(list).await;
    let list = list.with_context(|| format!("{} cannot be read", dump.display()))?;
    for (service, schema) in SERVICES {
        // Each service has a table `writer`.
        if !list.contains(&format!("TABLE DATA {} writer ", schema.name)) {
            bail!("{} has no rows of {service}", dump.display());
        }
    }
    Ok(())
}

/// Returns the statements before the dump. They open the transaction and recreate the schemas.
fn prologue() -> String {
    let mut text = "begin;\nset client_min_messages = warning;\n".to_owned();
    for (_, schema) in SERVICES {
        let name = schema.name;
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "drop schema if exists {name} cascade; create schema {name} authorization {name}_owner;"
        );
    }
    text
}

/// Returns the statements after the dump. They begin new histories and commit the transaction.
fn epilogue(histories_before: &BTreeMap<String, History>) -> String {
    let mut text = "\n".to_owned();
    for (_, schema) in SERVICES {
        let history = histories_before.get(schema.name);
        let epoch = history.map_or(0, |history| history.epoch);
        for statement in new_history_statements(schema.name, epoch) {
            let _ = writeln!(text, "{statement};");
        }
    }
    text.push_str("commit;\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settings_unknown_to_the_server_are_removed_from_the_head_only() {
        let script = "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\
            SET statement_timeout = 0;\nSET transaction_timeout = 0;\n\
            SELECT pg_catalog.set_config('search_path', '', false);\n\
            CREATE TABLE a.t (text text);\n";
        let rows = "COPY a.t (text) FROM stdin;\nSET transaction_timeout = 0;\n\\.\n";
        let full_script = format!("{script}{rows}");
        let mut reader = full_script.as_bytes();
        let settings = BTreeSet::from(["statement_timeout".to_owned()]);
        let filtered = read_head(&mut reader, &settings).await.unwrap();
        let expected = script.replace("SET transaction_timeout = 0;\n", "");
        assert_eq!(String::from_utf8(filtered).unwrap(), expected);
        assert_eq!(reader, rows.as_bytes());
    }
}
