//! `hayward policy import`: converts the configuration of DUCC, an older cluster manager, to a
//! policy. The command needs no fleet.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hayward_rm_scheduler_policy::import::{Input, Source, import};
use serde_json::json;

use super::document::{error_with_faults, to_yaml};
use crate::commands::work::submit::read_text;
use crate::connection::Session;
use crate::output::{note, print};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// File with the stanzas of pools and classes, as `ducc.classes`.
    #[arg(value_name = "PATH")]
    pub classes: PathBuf,
    /// File with the stanzas of users, as `ducc.users`.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Folder of the node files. Default: the folder of the classes.
    #[arg(long, value_name = "DIR")]
    pub nodes_dir: Option<PathBuf>,
    /// File with properties. Only `ducc.rm.*` are read.
    #[arg(long, value_name = "FILE")]
    pub properties: Option<PathBuf>,
}

/// The name and content of a file to import.
struct SourceFile {
    name: String,
    text: String,
}

impl SourceFile {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display().to_string();
        let text = read_text(file)?;
        Ok(Self { name, text })
    }

    /// Returns the file as an input of the import.
    fn source(&self) -> Source<'_> {
        Source {
            name: &self.name,
            text: &self.text,
        }
    }
}

pub fn run(session: &Session, files: &Arguments) -> anyhow::Result<()> {
    let classes = SourceFile::read(&files.classes)?;
    let users = files.users.as_deref().map(SourceFile::read).transpose()?;
    let properties = files
        .properties
        .as_deref()
        .map(SourceFile::read)
        .transpose()?;
    let class_folder = files.classes.parent().unwrap_or(Path::new("."));
    let folder = files.nodes_dir.as_deref().unwrap_or(class_folder);
    let input = Input {
        classes: classes.source(),
        users: users.as_ref().map(SourceFile::source),
        properties: properties.as_ref().map(SourceFile::source),
        node_file: &|name| std::fs::read_to_string(folder.join(name)).ok(),
    };
    let imported = import(input)
        .map_err(|faults| {
            let lines = faults.into_iter().map(|fault| {
                let line = fault
                    .line
                    .map(|line| format!(":{line}"))
                    .unwrap_or_default();
                (format!("{}{line}", fault.file), fault.detail)
            });
            error_with_faults("the files cannot be imported".to_owned(), lines)
        })
        .with_context(|| classes.name.clone())?;
    if session.out.json {
        let (policy, notes) = (&imported.policy, &imported.notes);
        return session
            .out
            .json(&json!({ "policy": policy, "notes": notes }));
    }
    for line in &imported.notes {
        note(line);
    }
    print(&to_yaml(&imported.policy)?)
}
