//! `hayward run SERVICE`: runs one service as a separate process. A link with the name of a service
//! does the same.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::ValueEnum as _;
use hayward_service::config::{self, Outcome, SettingsStruct};
use hayward_service::{Shutdown, client, telemetry};

use crate::output::print;

/// A program with settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    JobConverter,
    RmScheduler,
    ContainerManager,
    NodeStatus,
    Blocklist,
    NodeAgent,
}

/// Returns the program that a link selects by its name. For example, a link named
/// `hayward-rm-scheduler` runs rm-scheduler. Returns `None` for any other name.
pub fn program_of_link(program: &OsStr) -> Option<Program> {
    let name = Path::new(program).file_name()?.to_str()?;
    Program::from_str(name.strip_prefix("hayward-")?, false).ok()
}

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Name of the service.
    #[arg(value_enum)]
    pub service: Program,
    /// Flags of the program; `--help` lists them.
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub flags: Vec<OsString>,
}

fn environment() -> BTreeMap<String, OsString> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect()
}

/// Reads the settings of a program from flags, environment and file. Returns `None` after `--help`.
pub(super) fn read_settings<T: SettingsStruct>(
    name: &str,
    flags: Vec<OsString>,
) -> anyhow::Result<Option<T>> {
    match config::read(name, flags.into_iter(), &environment())? {
        Outcome::Settings(settings) => Ok(Some(settings)),
        Outcome::Text(text) => print(&text).map(|()| None),
    }
}

/// Runs one service until a shutdown signal.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    client::install_crypto();
    // The service crates have items of the same names and share no trait.
    macro_rules! serve {
        ($service:ident) => {{
            let settings = read_settings::<$service::Settings>($service::NAME, arguments.flags)?;
            let Some(settings) = settings else {
                return Ok(());
            };
            let telemetry = telemetry::init($service::NAME, &settings.server)?;
            let running = $service::start(settings, Shutdown::on_signals()?).await?;
            let result = running.wait_until_stopped().await;
            tokio::task::spawn_blocking(move || telemetry.shutdown()).await?;
            result
        }};
    }
    match arguments.service {
        Program::JobConverter => serve!(hayward_job_converter),
        Program::RmScheduler => serve!(hayward_rm_scheduler),
        Program::ContainerManager => serve!(hayward_container_manager),
        Program::NodeStatus => serve!(hayward_node_status),
        Program::Blocklist => serve!(hayward_blocklist),
        Program::NodeAgent => anyhow::bail!("the agent is run by `hayward node-agent agent`"),
    }
}

/// Returns the name of a program, as in its link without `hayward-`.
pub fn program_name(program: Program) -> &'static str {
    match program {
        Program::JobConverter => hayward_job_converter::NAME,
        Program::RmScheduler => hayward_rm_scheduler::NAME,
        Program::ContainerManager => hayward_container_manager::NAME,
        Program::NodeStatus => hayward_node_status::NAME,
        Program::Blocklist => hayward_blocklist::NAME,
        Program::NodeAgent => hayward_node_agent::NAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_link_selects_the_service() {
        for program in Program::value_variants() {
            let link = format!("/usr/local/bin/hayward-{}", program_name(*program));
            assert_eq!(program_of_link(OsStr::new(&link)), Some(*program));
        }
        for other in [
            "hayward",
            "/usr/bin/hayward-0.2",
            "job-converter",
            "",
            "hayward-run",
        ] {
            assert_eq!(program_of_link(OsStr::new(other)), None, "{other}");
        }
    }
}
