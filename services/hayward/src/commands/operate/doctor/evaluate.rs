//! Derives findings from facts, without I/O. Equal facts give equal findings.
//!
//! A state that ends by itself and harms no work is no finding. Examples are a drain in progress, a
//! node that an operator varied off, and work that waits with a reason.

use std::collections::BTreeMap;

use hayward_publication::WENT_BACK;
use hayward_service::health::Status;
use hayward_service::invariants::{RuleResult, RuleStatus};
use serde::Serialize;

use super::facts::{Fact, Facts, NodeProblem, ServiceFacts, UnhealthyNode};
use super::{advice, identity};
use crate::output::format::{format_bytes, format_count, format_duration};

/// Maximum clock difference in milliseconds. A larger difference is a finding, because it confuses
/// people who compare times.
pub const MAX_CLOCK_DIFFERENCE_MS: i64 = 5_000;
/// Maximum silence of a publisher in milliseconds. A longer silence is a finding. The value exceeds
/// the duration of two long polls.
const MAX_SILENCE_MS: u64 = 25_000;
/// A disk is low if less than one twentieth of it is free, and less than [`LOW_DISK_BYTES`].
const LOW_DISK_DIVISOR: u64 = 20;
const LOW_DISK_BYTES: u64 = 10 << 30;
/// Maximum number of nodes with the same problem that get separate findings. More nodes share one
/// finding.
const MAX_SEPARATE_FINDINGS: usize = 5;
/// Milliseconds after which a wait is a finding, whatever its reason.
const LONG_WAIT_MS: u64 = 24 * 3_600_000;

/// Milliseconds after its start until a service has read all neighbours and checked its rules.
const STARTUP_MS: u64 = 120_000;
/// Explanation that a service gives when an operator has switched off the blocklist deliberately.
const BLOCKLIST_OFF: &str = "the blocklist is switched off";

/// A problem that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind of the problem, as one word for programs.
    pub kind: Kind,
    /// Subject of the problem, for example a service, a node or a rule.
    pub subject: String,
    #[serde(rename = "what")]
    pub description: String,
    /// Remedy for the problem.
    pub action: String,
}

/// Kind of a problem. The order of the variants is that of the findings, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The database was rolled back to an older state. (R9)
    #[serde(rename = "went_back")]
    DatabaseRolledBack,
    #[serde(rename = "away")]
    Unreachable,
    NotReady,
    /// A rule is broken.
    Invariant,
    /// A rule could not be checked.
    #[serde(rename = "unseen")]
    Unchecked,
    /// A service has heard nothing of a publication for too long.
    #[serde(rename = "follower")]
    StalePublication,
    Versions,
    Clock,
    Node,
    Disk,
    Waiting,
    /// Users share an account on a node.
    Identity,
    Insecure,
}

fn new_finding(
    kind: Kind,
    subject: &str,
    description: impl Into<String>,
    action: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        subject: subject.to_owned(),
        description: description.into(),
        action: action.into(),
    }
}

/// Returns all findings, the most severe first.
pub fn evaluate_facts(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.services.iter().flat_map(service_findings).collect();
    findings.extend(rollback_finding(&facts.services));
    findings.extend(version_finding(&facts.services));
    findings.extend(insecure_mode_finding(&facts.services));
    findings.extend(node_findings(facts));
    findings.extend(identity_findings(facts));
    findings.extend(unread_list_findings(facts));
    findings.extend(waiting_finding(facts));
    findings.extend(disk_finding(facts));
    findings.sort_by_key(|finding| finding.kind);
    findings
}

fn service_findings(service: &ServiceFacts) -> Vec<Finding> {
    let name = service.name;
    let status = match &service.status {
        Ok(status) => status,
        Err(error) => {
            let description = format!("{name} does not answer at {}: {error}", service.url);
            return vec![new_finding(
                Kind::Unreachable,
                name,
                description,
                advice::for_unreachable(name),
            )];
        }
    };
    let mut findings = silent_replica_findings(service);
    let waits_for_operator = rollback_reason(status).is_some();
    if !status.ready && !waits_for_operator {
        let description = format!("{name} is not ready: {}", status.not_ready.join("; "));
        let action = "if a replica that is not in the list of addresses leads, add it; else look \
                      at its log and at Postgres";
        findings.push(new_finding(Kind::NotReady, name, description, action));
    }
    findings.extend(invariant_findings(service, status.ready));
    // A service that writes nothing follows no neighbour until the operator has decided.
    if !waits_for_operator {
        findings.extend(stale_publication_findings(service));
    }
    let ahead = service.clock_ahead_ms.unwrap_or(0);
    if ahead.abs() > MAX_CLOCK_DIFFERENCE_MS {
        let difference = format_duration(ahead.unsigned_abs());
        let direction = if ahead > 0 { "ahead of" } else { "behind" };
        let description =
            format!("the clock of {name} is {difference} {direction} that of this machine");
        let action = "let both machines keep time (chrony, systemd-timesyncd); until then times \
                      that people set and see are off, and nothing else";
        findings.push(new_finding(Kind::Clock, name, description, action));
    }
    findings
}

/// Returns the reason why the service writes nothing after its database was rolled back. Returns
/// `None` if it may write.
fn rollback_reason(status: &Status) -> Option<&str> {
    let mut reasons = status.not_ready.iter().map(String::as_str);
    reasons.find(|reason| reason.starts_with(WENT_BACK))
}

/// Returns one finding for the whole fleet, regardless of how many services wait for the decision
/// of the operator. (R9)
fn rollback_finding(services: &[ServiceFacts]) -> Option<Finding> {
    let statuses = services.iter();
    let statuses =
        statuses.filter_map(|it| Some((it.name, rollback_reason(it.status.as_ref().ok()?)?)));
    let waiting: Vec<(&str, &str)> = statuses.collect();
    let (_, first) = waiting.first()?;
    let names: Vec<&str> = waiting.iter().map(|(name, _)| *name).collect();
    let description = format!("{} write nothing: {first}", names.join(", "));
    let action = "find out what became of the newer rows; if there is a newer backup or another \
                  replica of the database, stop the fleet and use that (`hayward restore BACKUP`); \
                  else go on with what is left: `hayward restore --accept-loss`";
    Some(new_finding(
        Kind::DatabaseRolledBack,
        "database",
        description,
        action,
    ))
}

/// Reports each replica that is down. The service continues, but with less redundancy.
fn silent_replica_findings(service: &ServiceFacts) -> Vec<Finding> {
    let name = service.name;
    let replicas = service.replicas.iter();
    let replicas = replicas.filter_map(|it| Some((&it.url, it.status.as_ref().err()?)));
    replicas
        .map(|(url, error)| {
            let description = format!("a replica of {name} does not answer at {url}: {error}");
            let action = "start it again, or take its address off the list; until then nobody \
                          may take over when another dies";
            new_finding(Kind::Unreachable, name, description, action)
        })
        .collect()
}

/// Returns true if a rule is unchecked for longer than the start of a service takes.
fn is_unchecked(rule: &RuleStatus, uptime_ms: u64) -> bool {
    let is_switched_off = rule.why.as_deref() == Some(BLOCKLIST_OFF);
    let is_recent = |last_good_at| rule.checked_at.ms_since(last_good_at) <= STARTUP_MS;
    let is_recent_start = uptime_ms <= STARTUP_MS || rule.last_good_at.is_some_and(is_recent);
    match rule.result {
        RuleResult::NotChecked => !is_switched_off && !is_recent_start,
        RuleResult::Unknown => true,
        RuleResult::Holds | RuleResult::Violated => false,
    }
}

fn unchecked_rule_finding(service: &str, rule: &RuleStatus) -> Finding {
    let reason = rule.why.as_deref().unwrap_or("this version does not know");
    let description = format!("{} is not looked at in {service}: {reason}", rule.id);
    let action = "see to what it says is missing; where another replica took over just now, ask \
                  again in two minutes; a newer service needs a newer `hayward`";
    new_finding(Kind::Unchecked, &rule.id, description, action)
}

fn invariant_findings(service: &ServiceFacts, ready: bool) -> Vec<Finding> {
    let name = service.name;
    let all = match &service.invariants {
        Ok(all) => all,
        // A replica that does not lead checks no rules, and another finding covers it.
        Err(_) if !ready => return Vec::new(),
        Err(error) => {
            let description = format!("the invariants of {name} cannot be looked at: {error}");
            let action = "ask with the token of an operator or a viewer: --operator, --token-file";
            return vec![new_finding(Kind::Unchecked, name, description, action)];
        }
    };
    let uptime_ms = service.status.as_ref().map_or(0, |status| status.uptime_ms);
    let findings = all.rules.iter().filter_map(|rule| match rule.result {
        RuleResult::Violated => Some(violated_rule_finding(name, rule)),
        _ => is_unchecked(rule, uptime_ms).then(|| unchecked_rule_finding(name, rule)),
    });
    findings.collect()
}

fn violated_rule_finding(service: &str, rule: &RuleStatus) -> Finding {
    let first = rule.evidence.first();
    let first = first.map(|it| format!("; first {}: {}", it.subject, it.detail));
    let description = format!(
        "{} does not hold in {service}: {} ({}{})",
        rule.id,
        rule.title,
        format_count(rule.violations, "violation"),
        first.unwrap_or_default()
    );
    new_finding(
        Kind::Invariant,
        &rule.id,
        description,
        advice::for_rule(&rule.id),
    )
}

/// Reports publications from which a service has received no response for too long.
fn stale_publication_findings(service: &ServiceFacts) -> Vec<Finding> {
    let is_silent = |ms: Option<u64>| ms.is_some_and(|ms| ms > MAX_SILENCE_MS);
    let lags = service.lags.iter();
    let silent_lags = lags.filter(|lag| lag.stale || is_silent(lag.silent_ms));
    silent_lags
        .map(|lag| {
            let name = service.name;
            let publication = &lag.publication;
            let since = match lag.silent_ms {
                Some(ms) => format!("for {}", format_duration(ms)),
                None => "since it started".to_owned(),
            };
            let fault = lag.fault.as_ref().map(|fault| format!(": {fault}"));
            let description = format!(
                "{name} has heard nothing of {publication} {since}{}",
                fault.unwrap_or_default()
            );
            let action = format!(
                "see that {} is up, that {name} can reach it, and that its token has not run out; \
             nothing is taken back on old news",
                publisher_of(publication).unwrap_or("its publisher")
            );
            new_finding(Kind::StalePublication, name, description, action)
        })
        .collect()
}

/// Returns the service that publishes this publication. Returns `None` for an unknown publication.
pub fn publisher_of(publication: &str) -> Option<&'static str> {
    Some(match publication {
        "nodes" => "node-status",
        "demand" | "jobs" => "job-converter",
        "blocks" => "blocklist",
        "containers" | "requests" | "desired" => "container-manager",
        "allocations" | "verdicts" | "processors" | "closed" | "failures" | "machines"
        | "clearings" => "rm-scheduler",
        _ => return None,
    })
}

/// Reports different versions, which are intended during an upgrade only. (A15)
fn version_finding(services: &[ServiceFacts]) -> Option<Finding> {
    let replicas = services.iter().flat_map(|it| &it.replicas);
    let statuses = services.iter().map(|it| &it.status);
    let statuses = statuses.chain(replicas.map(|it| &it.status));
    let statuses = statuses.filter_map(|it| it.as_ref().ok());
    let mut versions: Vec<&str> = statuses.map(|it| it.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    (versions.len() > 1).then(|| {
        let description = format!(
            "services of different versions run: {}",
            versions.join(", ")
        );
        let action = "finish the upgrade; two versions side by side are meant for its duration";
        new_finding(Kind::Versions, "versions", description, action)
    })
}

/// Returns one finding for all insecure modes. (S3)
fn insecure_mode_finding(services: &[ServiceFacts]) -> Option<Finding> {
    let statuses = services.iter().filter_map(|it| it.status.as_ref().ok());
    let mut modes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in statuses {
        for mode in &status.insecure_modes {
            modes.entry(mode).or_default().push(&status.name);
        }
    }
    let mode_texts: Vec<String> = modes
        .iter()
        .map(|(mode, names)| format!("{mode} ({})", names.join(", ")))
        .collect();
    (!mode_texts.is_empty()).then(|| {
        let description = format!("insecure modes are on: {}", mode_texts.join("; "));
        let action = "take the setting away, and use TLS wherever it is not loopback";
        new_finding(Kind::Insecure, "insecure modes", description, action)
    })
}

fn node_findings(facts: &Facts) -> Vec<Finding> {
    let Ok(nodes) = &facts.nodes else {
        return Vec::new();
    };
    // A service that started on older rows knows no node until the operator has decided.
    let mut services = facts.services.iter();
    let waits_for_operator = |it: &ServiceFacts| {
        it.status
            .as_ref()
            .is_ok_and(|it| rollback_reason(it).is_some())
    };
    if services.any(|it| it.name == "node-status" && waits_for_operator(it)) {
        return Vec::new();
    }
    if nodes.total() == 0 {
        let description = "there are no nodes: nothing can run";
        let action = "let one in: `hayward enrol NODE`";
        return vec![new_finding(Kind::Node, "nodes", description, action)];
    }
    let mut by_problem: BTreeMap<NodeProblem, Vec<&UnhealthyNode>> = BTreeMap::new();
    for node in &nodes.unhealthy {
        by_problem.entry(node.problem).or_default().push(node);
    }
    by_problem
        .into_iter()
        .flat_map(|(problem, nodes)| node_problem_findings(problem, &nodes))
        .collect()
}

/// Reports nodes with the same problem. Many nodes share one finding, and few have one each.
fn node_problem_findings(problem: NodeProblem, nodes: &[&UnhealthyNode]) -> Vec<Finding> {
    let (state, remedy) = state_and_remedy(problem);
    if nodes.len() > MAX_SEPARATE_FINDINGS {
        let names: Vec<&str> = nodes
            .iter()
            .take(MAX_SEPARATE_FINDINGS)
            .map(|it| it.node.as_str())
            .collect();
        let description = format!(
            "{} nodes, of each: {state}; {}, …",
            nodes.len(),
            names.join(", ")
        );
        return vec![new_finding(
            Kind::Node,
            nodes[0].node.as_str(),
            description,
            remedy,
        )];
    }
    let node_finding = |it: &&UnhealthyNode| {
        let description = format!("node {} {state}: {}", it.node, it.detail);
        new_finding(Kind::Node, &it.node, description, remedy)
    };
    nodes.iter().map(node_finding).collect()
}

/// Reports nodes on which users share an account. (TC-26)
fn identity_findings(facts: &Facts) -> Vec<Finding> {
    let nodes = facts.nodes.as_ref().map(|it| it.shared_accounts.as_slice());
    identity::problems(nodes.unwrap_or_default(), MAX_SEPARATE_FINDINGS)
        .into_iter()
        .map(|it| new_finding(Kind::Identity, &it.node, it.description, it.action))
        .collect()
}

/// Returns the description of a node problem, and its remedy.
fn state_and_remedy(problem: NodeProblem) -> (&'static str, &'static str) {
    match problem {
        NodeProblem::Suspect => (
            "is suspect",
            "see whether it and its agent are up; if it stays silent it is given up, unless the \
             brake against mass loss holds: `hayward node NODE` says so",
        ),
        NodeProblem::Lost => (
            "is lost",
            "start its agent again, or forget it: `hayward node forget`; its work is started \
             elsewhere",
        ),
        NodeProblem::DuplicateAgents => (
            "has two agents",
            "stop one of them, or say which is right: `hayward node identify`",
        ),
        NodeProblem::Quiesced => (
            "asks for no work",
            "see why with `hayward node NODE`; it comes back by itself when the cause is gone",
        ),
        NodeProblem::DiskLow => (
            "is low on disk",
            "make room on the disk of its state directory: nothing starts on a full one",
        ),
        NodeProblem::DrainFailed => (
            "was not empty in time",
            "see what blocks it with `hayward node NODE`, and end that or cancel the drain",
        ),
    }
}

/// Reports lists that could not be read although their service answers.
fn unread_list_findings(facts: &Facts) -> Vec<Finding> {
    let is_ready = |name: &str| {
        let mut services = facts.services.iter();
        services.any(|it| it.name == name && it.status.as_ref().is_ok_and(|it| it.ready))
    };
    let unread = |list_name: &str, service: &str, error: Option<&String>| {
        let error = error.filter(|_| is_ready(service))?;
        let text = format!("the {list_name} cannot be read: {error}");
        let action = "ask with another token: --operator, --token-file";
        Some(new_finding(Kind::Unchecked, service, text, action))
    };
    [
        unread("nodes", "node-status", error_of(&facts.nodes)),
        unread("blocks", "blocklist", error_of(&facts.blocked)),
        unread("work that waits", "job-converter", error_of(&facts.waiting)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn error_of<T>(fact: &Fact<T>) -> Option<&String> {
    fact.as_ref().err()
}

/// Reports the work with the longest wait, if the wait is very long.
fn waiting_finding(facts: &Facts) -> Option<Finding> {
    let longest = facts.waiting.as_ref().ok()?.first()?;
    (longest.waits_ms > LONG_WAIT_MS).then(|| {
        let reason = longest.reason.as_deref().unwrap_or("no reason is known");
        let description = format!(
            "{} of {} has waited for {}: {reason}",
            longest.work,
            longest.user,
            format_duration(longest.waits_ms)
        );
        let action = format!("ask what would help: `hayward explain {}`", longest.work);
        new_finding(Kind::Waiting, &longest.work, description, action)
    })
}

/// Returns true if a disk is nearly full. A disk of unknown size is not.
pub fn is_low(free_bytes: u64, total_bytes: u64) -> bool {
    let has_small_part_free = free_bytes < total_bytes / LOW_DISK_DIVISOR;
    total_bytes > 0 && has_small_part_free && free_bytes < LOW_DISK_BYTES
}

fn disk_finding(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk?;
    is_low(disk.free_bytes, disk.total_bytes).then(|| {
        let description = format!(
            "the disk of the state directory has {} of {} left",
            format_bytes(disk.free_bytes),
            format_bytes(disk.total_bytes)
        );
        let action = "make room: a database without any stops the fleet";
        new_finding(Kind::Disk, "state directory", description, action)
    })
}

#[cfg(test)]
mod tests;
