//! `hayward run SERVICE` runs one service as a separate process. `hayward config` checks or
//! explains the settings of a service.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Context as _;
use clap::ValueEnum as _;
use hayward_service::config::{self, Outcome, Setting, SettingsStruct};
use hayward_service::{ServerSettings, Shutdown, client, telemetry};
use serde_json::json;

use crate::output::{Output, note, print};

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

/// Returns the service that the program name selects: a link named `hayward-rm-scheduler` runs that
/// service. Returns `None` for any other name.
pub fn program_of_link(program: &OsStr) -> Option<Program> {
    let name = Path::new(program).file_name()?.to_str()?;
    Program::from_str(name.strip_prefix("hayward-")?, false).ok()
}

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The program.
    #[arg(value_enum)]
    pub service: Program,
    /// Its own flags; `--help` lists them.
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub flags: Vec<OsString>,
}

/// `hayward config`
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum ConfigCommand {
    /// Read the settings of a service as it would, and say what is wrong; starts nothing
    #[command(disable_help_flag = true)]
    Check(Arguments),
    /// Say of settings what they mean, their units and defaults, and which programs have them
    Explain(Explain),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Explain {
    /// Settings, as `lease_ms` or `HAYWARD_LEASE_MS`. Default: all.
    #[arg(value_name = "SETTING")]
    pub settings: Vec<String>,
    /// Only those of this program.
    #[arg(long, value_enum)]
    pub program: Option<Program>,
}

fn environment() -> BTreeMap<String, OsString> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect()
}

fn read_settings<T: SettingsStruct>(name: &str, flags: Vec<OsString>) -> anyhow::Result<Option<T>> {
    match config::read(name, flags.into_iter(), &environment())? {
        Outcome::Settings(settings) => Ok(Some(settings)),
        Outcome::Text(text) => print(&text).map(|()| None),
    }
}

/// Runs one service until a shutdown signal, like its own program.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    client::install_crypto();
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

/// Runs `hayward config`: explains or checks settings.
pub fn run_config(out: Output, config: Config) -> anyhow::Result<()> {
    match config.command {
        ConfigCommand::Check(arguments) => check(out, arguments),
        ConfigCommand::Explain(arguments) => explain(out, &arguments),
    }
}

/// Returns the settings of a program, from their definition.
pub fn program_settings(program: Program) -> anyhow::Result<Vec<Setting>> {
    match program {
        Program::JobConverter => config::all_settings::<hayward_job_converter::Settings>(),
        Program::RmScheduler => config::all_settings::<hayward_rm_scheduler::Settings>(),
        Program::ContainerManager => config::all_settings::<hayward_container_manager::Settings>(),
        Program::NodeStatus => config::all_settings::<hayward_node_status::Settings>(),
        Program::Blocklist => config::all_settings::<hayward_blocklist::Settings>(),
        Program::NodeAgent => config::all_settings::<hayward_node_agent::Settings>(),
    }
}

/// Returns every setting with its programs. A setting whose meaning or default differs between
/// programs has several entries.
pub fn all_settings() -> anyhow::Result<BTreeMap<Setting, Vec<&'static str>>> {
    let mut all: BTreeMap<Setting, Vec<&'static str>> = BTreeMap::new();
    for program in Program::value_variants() {
        for setting in program_settings(*program)? {
            all.entry(setting).or_default().push(program_name(*program));
        }
    }
    Ok(all)
}

/// Runs `hayward config explain [SETTING]...`.
fn explain(out: Output, arguments: &Explain) -> anyhow::Result<()> {
    let all = all_settings()?;
    let names = arguments.settings.iter().map(|text| {
        let name = text.replace('-', "_");
        let name = name.strip_prefix("HAYWARD_").unwrap_or(&name);
        name.to_ascii_lowercase()
    });
    let names: Vec<String> = names.collect();
    for name in &names {
        let known = all.keys().any(|setting| setting.name == *name);
        anyhow::ensure!(known, "no program has a setting `{name}`");
    }
    let program = arguments.program.map(program_name);
    let selected: Vec<_> = all
        .iter()
        .filter(|(setting, _)| names.is_empty() || names.contains(&setting.name))
        .filter(|(_, programs)| program.is_none_or(|it| programs.contains(&it)))
        .collect();
    if out.json {
        let entry = |(setting, programs): &(&Setting, &Vec<&str>)| {
            json!({
                "setting": setting.name, "variable": setting.variable(),
                "default": setting.default, "meaning": setting.meaning, "programs": programs,
            })
        };
        return out.json(&json!({ "settings": selected.iter().map(entry).collect::<Vec<_>>() }));
    }
    let text = selected.iter().map(|(setting, programs)| {
        let programs = programs.join(", ");
        format!(
            "{}      Programs: {programs}\n",
            config::format_setting(setting)
        )
    });
    print(&text.collect::<Vec<_>>().join("\n"))
}

/// Runs `hayward config check SERVICE`.
fn check(out: Output, arguments: Arguments) -> anyhow::Result<()> {
    let name = program_name(arguments.service);
    macro_rules! missing_settings {
        ($type:ty, $server:expr) => {{
            let settings = read_settings::<$type>(name, arguments.flags);
            let Some(settings) = settings.with_context(|| format!("{name} would not start"))?
            else {
                return Ok(());
            };
            let server: fn(&$type) -> Option<&ServerSettings> = $server;
            missing_required(server(&settings))
        }};
    }
    let missing = match arguments.service {
        Program::JobConverter => {
            missing_settings!(hayward_job_converter::Settings, |it| Some(&it.server))
        }
        Program::RmScheduler => {
            missing_settings!(hayward_rm_scheduler::Settings, |it| Some(&it.server))
        }
        Program::ContainerManager => {
            missing_settings!(hayward_container_manager::Settings, |it| Some(&it.server))
        }
        Program::NodeStatus => {
            missing_settings!(hayward_node_status::Settings, |it| Some(&it.server))
        }
        Program::Blocklist => missing_settings!(hayward_blocklist::Settings, |it| Some(&it.server)),
        Program::NodeAgent => missing_settings!(hayward_node_agent::Settings, |_| None),
    };
    if out.json {
        return out.json(&json!({ "service": name, "ok": true, "not_set": missing }));
    }
    for setting in missing {
        note(&format!("`{setting}` is not set; {name} needs it to start"));
    }
    print(&format!("the settings of {name} are good\n"))
}

/// Returns the required settings that are missing.
fn missing_required(server: Option<&ServerSettings>) -> Vec<&'static str> {
    let Some(server) = server else {
        return Vec::new();
    };
    let required = [
        ("database_url", server.database_url.is_none()),
        ("keys", server.keys.is_none()),
    ];
    required
        .into_iter()
        .filter(|(_, missing)| *missing)
        .map(|(name, _)| name)
        .collect()
}

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
