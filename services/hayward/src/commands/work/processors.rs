//! The processors of a service as text.

use hayward_job_converter_api::processors::{Deployment, ProcessorView, RetriesSubmission};
use hayward_vocabulary::Role;

use crate::output::format::{duration, word};
use crate::output::{Facts, Renderer, Table};

pub fn say(deployment: &Deployment, facts: &mut Facts) {
    facts.say("deployment", &deployment.deployment);
    facts.say("healthy", if deployment.healthy { "yes" } else { "no" });
    if deployment.outdated > 0 {
        let old = deployment.outdated;
        facts.say("outdated", format!("{old} processes, to be replaced"));
    }
    if deployment.standbys > 0 {
        let apart = match &deployment.fault_domain_label {
            Some(label) => format!("where label {label} differs"),
            None => "never on its node".to_owned(),
        };
        facts.say(
            "stand by",
            format!("{} for each, {apart}", deployment.standbys),
        );
    }
    if deployment.host_affinity {
        facts.say("starts again", "where it was last seen");
    }
    if let Some(retries) = &deployment.retries {
        facts.say("retries", in_words(retries));
    }
}

fn in_words(retries: &RetriesSubmission) -> String {
    let end = if retries.fail_service {
        "then it has failed"
    } else {
        "then it goes on without"
    };
    match retries.count {
        ..0 => "always".to_owned(),
        count => format!("{count} within {}, {end}", duration(retries.window_ms)),
    }
}

pub fn table(deployment: &Deployment, renderer: &Renderer) -> String {
    let heads = ["processor", "role", "state", "node", "failures", "next"];
    let mut table = Table::new(heads).numbers(&[4]);
    for it in &deployment.processors {
        let role = match &it.role {
            Role::Active => "active",
            Role::Standby { .. } => "standby",
        };
        table.row([
            (&it.processor).into(),
            role.into(),
            word(&it.state).into(),
            it.host
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
                .into(),
            it.failures
                .map_or(0, |failures| u64::from(failures.count))
                .into(),
            next(it).into(),
        ]);
    }
    format!("\n{}", table.text(renderer))
}

fn next(it: &ProcessorView) -> String {
    if let Some(standby) = it.failover.as_ref().and_then(|it| it.waits_for.as_ref()) {
        return format!("fails over when {standby} has ended");
    }
    match &it.wanted_host {
        Some(host) if it.failover.is_some() => format!("fails over to {host}"),
        Some(host) => format!("wants {host}"),
        None => String::new(),
    }
}
