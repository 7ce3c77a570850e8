//! `hayward config`: explains the settings of the programs, and checks the settings of one program.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::ValueEnum as _;
use hayward_service::ServerSettings;
use hayward_service::config::{self, Setting};
use serde_json::json;

use super::run_service::{self, Program, program_name, read_settings};
use crate::output::{Output, note, print};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Read the settings of a service as it would, and report faults; starts nothing
    #[command(disable_help_flag = true)]
    Check(run_service::Arguments),
    /// Explain settings: meaning, unit, default, and the programs that have them
    Explain(ExplainArguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct ExplainArguments {
    /// Settings, as `lease_ms` or `HAYWARD_LEASE_MS`. Default: all.
    #[arg(value_name = "SETTING")]
    pub settings: Vec<String>,
    /// Only settings of this program.
    #[arg(long, value_enum)]
    pub program: Option<Program>,
}

/// Runs `hayward config`: explains or checks settings.
pub fn run(out: Output, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Check(arguments) => check(out, arguments),
        Command::Explain(arguments) => explain(out, &arguments),
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
fn explain(out: Output, arguments: &ExplainArguments) -> anyhow::Result<()> {
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
fn check(out: Output, arguments: run_service::Arguments) -> anyhow::Result<()> {
    let name = program_name(arguments.service);
    // Settings of the programs are different types. Only services have server settings.
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

/// Returns the required settings that are missing. The agent has none of them.
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
