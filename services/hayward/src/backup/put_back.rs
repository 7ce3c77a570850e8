//! A dump becomes the database, in one transaction: the schemas of before go, those of the dump
//! come, and they are another history at once. Whatever fails, the database is as it was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::history::{History, begin_another};
use super::tool::{Tool, first_lines};
use crate::prepare::SERVICES;

/// Everything that is needed for it.
pub struct Tools {
    pg_restore: Tool,
    psql: Tool,
}

impl Tools {
    pub async fn find(server: u32) -> anyhow::Result<Self> {
        let tools = Self {
            pg_restore: Tool::find("pg_restore").await?,
            psql: Tool::find("psql").await?,
        };
        tools.pg_restore.fits(server)?;
        tools.psql.fits(server)?;
        Ok(tools)
    }

    /// # Errors
    /// When the dump cannot be read, or is not of a fleet.
    pub async fn check(&self, dump: &Path) -> anyhow::Result<()> {
        check(&self.pg_restore, dump).await
    }

    /// `before` is what the database holds now, by schema.
    pub async fn put_back(
        &self,
        dump: &Path,
        url: &str,
        before: &BTreeMap<String, History>,
    ) -> anyhow::Result<()> {
        let mut read = self.pg_restore.command();
        // The schemas themselves are made here: who restores need not own the database.
        for (_, schema) in SERVICES {
            read.arg(format!("--schema={}", schema.name));
        }
        read.arg("--file=-").arg(dump);
        read.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut write = self.psql.on(url);
        write.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
        write.stdin(Stdio::piped()).stdout(Stdio::null());
        write.stderr(Stdio::piped());
        let mut read = read.spawn().context("cannot run pg_restore")?;
        let mut write = write.spawn().context("cannot run psql")?;
        let mut rows = read.stdout.take().context("pg_restore has no output")?;
        let mut said = read.stderr.take().context("pg_restore has no errors")?;
        let mut into = write.stdin.take().context("psql takes no input")?;
        let fed = async {
            into.write_all(prologue().as_bytes()).await?;
            tokio::io::copy(&mut rows, &mut into).await?;
            let mut complaint = Vec::new();
            said.read_to_end(&mut complaint).await?;
            let whole = read.wait().await?.success();
            if whole {
                into.write_all(epilogue(before).as_bytes()).await?;
                into.shutdown().await?;
            }
            // Without the last word psql ends with an open transaction, which is rolled back.
            drop(into);
            anyhow::Ok((whole, complaint))
        };
        let (fed, written) = tokio::join!(fed, write.wait_with_output());
        let written = written.context("psql did not end")?;
        if !written.status.success() {
            bail!(
                "the database refused it and is as it was: {}",
                first_lines(&written.stderr)
            );
        }
        let (whole, complaint) = fed.context("the dump could not be fed to psql")?;
        if !whole {
            bail!(
                "the dump cannot be read, and the database is as it was: {}",
                first_lines(&complaint)
            );
        }
        Ok(())
    }
}

/// Reads the contents of a dump: it is whole, and has the rows of all five services.
pub async fn check(pg_restore: &Tool, dump: &Path) -> anyhow::Result<()> {
    let mut list = pg_restore.command();
    list.arg("--list").arg(dump);
    let list = pg_restore.run(list).await;
    let list = list.with_context(|| format!("{} cannot be read", dump.display()))?;
    for (service, schema) in SERVICES {
        if !list.contains(&format!("TABLE DATA {} writer ", schema.name)) {
            bail!("{} has no rows of {service}", dump.display());
        }
    }
    Ok(())
}

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

fn epilogue(before: &BTreeMap<String, History>) -> String {
    let mut text = "\n".to_owned();
    for (_, schema) in SERVICES {
        let epoch = before.get(schema.name).map_or(0, |history| history.epoch);
        for statement in begin_another(schema.name, epoch) {
            let _ = writeln!(text, "{statement};");
        }
    }
    text.push_str("commit;\n");
    text
}
