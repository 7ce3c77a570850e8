//! Describes the deployment of a service and its processors as text. A processor is one process of
//! a service, with an id that stays.

use hayward_job_converter_api::service_processors::{Deployment, ProcessorView, RetriesSubmission};
use hayward_vocabulary::Role;

use crate::output::format::{enum_text, format_duration};
use crate::output::{Facts, Renderer, Table};

pub fn add_facts(deployment: &Deployment, facts: &mut Facts) {
    facts.add("deployment", &deployment.deployment);
    facts.add("healthy", if deployment.healthy { "yes" } else { "no" });
    if deployment.outdated > 0 {
        let outdated = deployment.outdated;
        facts.add("outdated", format!("{outdated} processes, to be replaced"));
    }
    if deployment.standbys > 0 {
        let placement = match &deployment.fault_domain_label {
            Some(label) => format!("where label {label} differs"),
            None => "never on its node".to_owned(),
        };
        facts.add(
            "standbys",
            format!("{} for each, {placement}", deployment.standbys),
        );
    }
    if deployment.host_affinity {
        facts.add("starts again", "where it was last seen");
    }
    if let Some(retries) = &deployment.retries {
        facts.add("retries", retries_text(retries));
    }
}

fn retries_text(retries: &RetriesSubmission) -> String {
    let end = if retries.fail_service {
        "then it has failed"
    } else {
        "then it continues without it"
    };
    match retries.count {
        // A negative number means no limit.
        ..0 => "always".to_owned(),
        count => format!(
            "{count} within {}, {end}",
            format_duration(retries.window_ms)
        ),
    }
}

pub fn render_table(deployment: &Deployment, renderer: &Renderer) -> String {
    let header = ["processor", "role", "state", "node", "failures", "next"];
    let mut table = Table::new(header).align_right(&[4]);
    for processor in &deployment.processors {
        let role = match &processor.role {
            Role::Active => "active",
            Role::Standby { .. } => "standby",
        };
        table.push_row([
            (&processor.processor).into(),
            role.into(),
            enum_text(&processor.state).into(),
            processor
                .host
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
                .into(),
            processor
                .failures
                .map_or(0, |failures| u64::from(failures.count))
                .into(),
            next_step(processor).into(),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

/// Describes the next move of a processor. The text is empty without one.
fn next_step(processor: &ProcessorView) -> String {
    if let Some(standby) = processor
        .failover
        .as_ref()
        .and_then(|failover| failover.waits_for.as_ref())
    {
        return format!("fails over when {standby} has ended");
    }
    match &processor.wanted_host {
        Some(host) if processor.failover.is_some() => format!("fails over to {host}"),
        Some(host) => format!("wants {host}"),
        None => String::new(),
    }
}
