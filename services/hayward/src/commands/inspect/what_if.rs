//! `hayward what-if`: forecasts which work would start, wait or leave after a change.
//!
//! A question is a file, flags, or both. The changes from the flags follow those from the file.

mod flag_values;
mod render;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use hayward_rm_scheduler_api::what_if::{Forecast, NewNodes, Submission, WhatIf};
use hayward_vocabulary::{NodeName, WorkId};
use serde_json::Value;

use crate::commands::operate::policy::document::read_policy;
use crate::commands::work::submit::{display_name, parse_value, read_text};
use crate::connection::{Role, Service, Session};

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Arguments {
    /// A question in YAML or JSON, as `POST /v1/what-if` takes it. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Work that would be submitted, as user=ada,class=high,memory=4G,processes=20. Names: user,
    /// class, queue, pool, memory, cpu, gpu, processes, tasks, task (duration of one task),
    /// threads, machine, name, kind. May be repeated.
    #[arg(long, value_name = "WORK", value_parser = flag_values::parse_submission)]
    pub submit: Vec<Submission>,
    /// Work that would be withdrawn. May be repeated.
    #[arg(long, value_name = "ID")]
    pub withdraw: Vec<WorkId>,
    /// Node that would be drained. May be repeated.
    #[arg(long, value_name = "NODE")]
    pub drain: Vec<NodeName>,
    /// Node that would be lost. May be repeated.
    #[arg(long, value_name = "NODE")]
    pub lose: Vec<NodeName>,
    /// Nodes that would join, as 4x64G or 4x64G,cpu=16,gpu=2,pool=fast. A node has only the named
    /// resources: without cpu it takes work that requests none. May be repeated.
    #[arg(long, value_name = "NODES", value_parser = flag_values::parse_nodes)]
    pub add: Vec<NewNodes>,
    /// Policy that would be in force: a changed output of `hayward policy show`.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Maximum number of rounds of the forecast, which ends when nothing changes any more. Default
    /// 10.
    #[arg(long, value_name = "COUNT")]
    pub rounds: Option<u64>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let question = build_question(arguments)?;
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response: Value = client.post("/v1/what-if", &question, None).await?;
    session
        .out
        .print_response(response, |forecast: &Forecast, renderer| {
            render::render_forecast(forecast, renderer)
        })
}

fn build_question(arguments: Arguments) -> anyhow::Result<WhatIf> {
    let mut question = match &arguments.file {
        Some(file) => parse_question(&read_text(file)?).with_context(|| display_name(file))?,
        None => WhatIf::default(),
    };
    question.submissions.extend(arguments.submit);
    question.withdraw.extend(arguments.withdraw);
    question.drain.extend(arguments.drain);
    question.lose.extend(arguments.lose);
    question.add_nodes.extend(arguments.add);
    if let Some(file) = &arguments.policy {
        let (policy, _) = read_policy(file)?;
        question.policy = Some(policy);
    }
    question.rounds = arguments.rounds.or(question.rounds);
    let without_changes = WhatIf {
        rounds: question.rounds,
        ..WhatIf::default()
    };
    if question == without_changes && arguments.file.is_none() {
        bail!("say what would change, as in --submit user=ada,memory=4G,processes=20");
    }
    Ok(question)
}

fn parse_question(text: &str) -> anyhow::Result<WhatIf> {
    let value: Value = yaml_serde::from_str(text).context("invalid YAML")?;
    parse_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_added_after_the_content_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("question.yaml");
        std::fs::write(
            &file,
            "drain: [n1]\nrounds: 3\nsubmissions:\n- processes: 2\n",
        )
        .unwrap();
        let parsed = build_question(Arguments {
            file: Some(file),
            submit: vec![flag_values::parse_submission("user=ada,processes=4").unwrap()],
            drain: vec!["n2".parse().unwrap()],
            ..Arguments::default()
        })
        .unwrap();
        let drained: Vec<&str> = parsed.drain.iter().map(NodeName::as_str).collect();
        assert_eq!(drained, ["n1", "n2"]);
        assert_eq!(parsed.rounds, Some(3));
        let processes: Vec<_> = parsed.submissions.iter().map(|it| it.processes).collect();
        assert_eq!(processes, [Some(2), Some(4)]);
    }

    #[test]
    fn a_question_without_changes_is_refused() {
        let fault = build_question(Arguments::default())
            .unwrap_err()
            .to_string();
        assert!(fault.contains("--submit"), "{fault}");
    }

    #[test]
    fn a_misspelled_field_is_named() {
        let fault = parse_question("submissions:\n- procesess: 2\n")
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("submissions") && fault.contains("procesess"),
            "{fault}"
        );
    }
}
