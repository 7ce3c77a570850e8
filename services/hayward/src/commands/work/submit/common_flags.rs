//! Flags that the commands for jobs, services and reservations share.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use hayward_vocabulary::{NodeName, Size};

use super::environment;
use crate::value_parsers;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct CommonFlags {
    /// Name of the work, for people.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The class whose share the work uses. Default: the policy's default class.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// The queue of the work, as root.team.batch, in place of a class.
    #[arg(long, value_name = "QUEUE", conflicts_with = "class")]
    pub queue: Option<String>,
    /// The node pool of the queue. Default: the first pool that has queues.
    #[arg(long, value_name = "POOL", conflicts_with = "class")]
    pub pool: Option<String>,
    /// Priority in the queue. The higher number is served first. Default 0.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Memory of one process, as 512M or 2G. Default 1G.
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::parse_bytes)]
    pub memory: Option<u64>,
    /// CPUs of one process, as 1.5 or 250m.
    #[arg(long, value_name = "CPUS", value_parser = value_parsers::parse_cpu_milli)]
    pub cpu: Option<u64>,
    /// Run only on this node. May be repeated for a choice of nodes.
    #[arg(long = "machine", value_name = "NODE")]
    pub machines: Vec<NodeName>,
    /// A label, for people and programs. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = value_parsers::parse_pair)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub program: ProgramEnvironment,
}

/// Environment and working directory of a program.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ProgramEnvironment {
    /// A variable of the program's environment. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = value_parsers::parse_pair)]
    pub environment: Vec<(String, String)>,
    /// File with variables of the program, one NAME=VALUE in each line. `--export` and `--env` win.
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// Copy variables of this shell: NAME,NAME, or ALL for all but those of the session. `--env`
    /// wins.
    #[arg(long, value_name = "NAMES")]
    pub export: Option<String>,
    /// The working directory of the program on the node. Default: a directory of its own.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

impl CommonFlags {
    /// Returns the requested size. Returns `None` without flags, and the service then uses its
    /// default.
    pub fn size(&self) -> Option<Size> {
        if self.memory.is_none() && self.cpu.is_none() {
            return None;
        }
        let memory_bytes = self.memory.unwrap_or(hayward_vocabulary::resources::GIB);
        Some(Size {
            memory_bytes,
            cpu_milli: self.cpu.unwrap_or(0),
            ..Size::default()
        })
    }
}

impl ProgramEnvironment {
    /// Returns the variables of the program from the file, this shell and the flags.
    pub fn variables(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut variables = match &self.env_file {
            Some(file) => environment::read_file(file)?,
            None => BTreeMap::new(),
        };
        if let Some(names) = &self.export {
            variables.extend(environment::export(names, std::env::vars())?);
        }
        variables.extend(self.environment.iter().cloned());
        Ok(variables)
    }

    /// Returns an absolute path, because the node does not know the directory of this command.
    pub fn working_directory(&self) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.cwd else {
            return Ok(None);
        };
        let dir = std::path::absolute(dir)
            .with_context(|| format!("{} is no directory", dir.display()))?;
        let text = dir
            .to_str()
            .with_context(|| format!("{} is not UTF-8", dir.display()))?;
        Ok(Some(text.to_owned()))
    }
}
