//! `hayward plan`: runs the production planner on a scenario, without a fleet, and prints one line
//! of JSON for each round.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use hayward_rm_scheduler_scenario::{OutcomeOptions, Scenario};
use serde_json::json;

use crate::output::{note, print};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The scenario, or `-` for standard input.
    #[arg(value_name = "SCENARIO.json")]
    pub file: PathBuf,
    /// Compare the rounds with the expectations of the scenario, and print only the differences.
    #[arg(long)]
    pub check: bool,
    /// Print the nodes of the processes of each job.
    #[arg(long)]
    pub places: bool,
    /// Print why work waits, the change that would let it start, and the preemptions.
    #[arg(long)]
    pub explain: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = arguments.file.display();
    let text = read_file(&arguments.file).with_context(|| format!("cannot read {name}"))?;
    let scenario = Scenario::read(&text).with_context(|| format!("{name} is no scenario"))?;
    // A scenario may expect any field, so the comparison includes all fields.
    let options = OutcomeOptions {
        places: arguments.places || arguments.check,
        explain: arguments.explain || arguments.check,
    };
    let outcomes = scenario.run(options).with_context(|| name.to_string())?;
    if !arguments.check {
        for outcome in &outcomes {
            print(&format!("{}\n", serde_json::to_string(outcome)?))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let differences = scenario.check(&outcomes);
    let summary = json!({
        "cycles": outcomes.len(),
        "expectations": scenario.expectation_count(),
        "differences": differences,
    });
    print(&format!("{summary}\n"))?;
    for difference in &differences {
        note(&format!("{name}: {difference}"));
    }
    Ok(if differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Reads a file, or standard input for `-`.
fn read_file(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}
