//! Derives findings from facts, without I/O. Equal facts give equal findings.
//!
//! A state that ends by itself and harms no work is no finding. Examples are a drain in progress, a
//! node that an operator varied off, and work that waits with a reason.

use std::collections::BTreeMap;

use hayward_publication::WENT_BACK;
use hayward_service::health::Status;
use hayward_service::invariants::{RuleResult, RuleStatus};
use serde::Serialize;

use super::advice;
use super::facts::{Ailment, Answer, Facts, ServiceFacts, Unwell};
use crate::output::format::{bytes, count, duration};

/// Milliseconds of clock difference that become a finding, because larger differences confuse
/// readers of times.
pub const CLOCK_MS: i64 = 5_000;
/// Milliseconds of silence of a publisher that become a finding. They exceed two long polls.
const SILENT_MS: u64 = 25_000;
/// Part of a disk, as a divisor. A disk is low if less than this part of it and less than
/// `DISK_BYTES` are free.
const DISK_PART: u64 = 20;
const DISK_BYTES: u64 = 10 << 30;
/// Number of nodes with the same ailment that have one finding each. A larger number becomes one
/// finding.
const APART: usize = 5;
/// Milliseconds of waiting that become a finding, whatever the reason.
const LONG_MS: u64 = 24 * 3_600_000;

/// Milliseconds after its start until a service has read all neighbours and checked its rules.
const BEGINS_MS: u64 = 120_000;
/// Explanation that a service gives when an operator has switched off the blocklist deliberately.
const BLOCKLIST_OFF: &str = "the blocklist is switched off";

/// A problem that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Kind of the problem, as one word for programs.
    pub kind: Kind,
    /// Subject of the problem, for example a service, a node or a rule.
    pub subject: String,
    pub what: String,
    /// Remedy for the problem.
    pub action: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The database went back in time. (R9)
    WentBack,
    Away,
    NotReady,
    Invariant,
    /// A rule could not be checked.
    Unseen,
    Follower,
    Versions,
    Clock,
    Node,
    Disk,
    Waiting,
    Insecure,
}

fn need(kind: Kind, subject: &str, what: impl Into<String>, action: impl Into<String>) -> Need {
    Need {
        kind,
        subject: subject.to_owned(),
        what: what.into(),
        action: action.into(),
    }
}

/// Returns all findings, the most severe first.
pub fn needs(facts: &Facts) -> Vec<Need> {
    let mut needs: Vec<Need> = facts.services.iter().flat_map(service_needs).collect();
    needs.extend(history_need(&facts.services));
    needs.extend(version_need(&facts.services));
    needs.extend(insecure_mode_need(&facts.services));
    needs.extend(node_needs(facts));
    needs.extend(unread_lists(facts));
    needs.extend(waiting_need(facts));
    needs.extend(disk_need(facts));
    needs.sort_by_key(|need| need.kind);
    needs
}

fn service_needs(service: &ServiceFacts) -> Vec<Need> {
    let name = service.name;
    let status = match &service.status {
        Ok(status) => status,
        Err(error) => {
            let what = format!("{name} does not answer at {}: {error}", service.url);
            return vec![need(Kind::Away, name, what, advice::for_away(name))];
        }
    };
    let mut needs = silent_replicas(service);
    let held = went_back(status).is_some();
    if !status.ready && !held {
        let what = format!("{name} is not ready: {}", status.not_ready.join("; "));
        let action = "if a replica that is not in the list of addresses leads, add it; else look \
                      at its log and at Postgres";
        needs.push(need(Kind::NotReady, name, what, action));
    }
    needs.extend(invariant_needs(service, status.ready));
    // A service that writes nothing follows no neighbour until the operator has decided.
    if !held {
        needs.extend(follower_needs(service));
    }
    let ahead = service.clock_ahead_ms.unwrap_or(0);
    if ahead.abs() > CLOCK_MS {
        let by = duration(ahead.unsigned_abs());
        let how = if ahead > 0 { "ahead of" } else { "behind" };
        let what = format!("the clock of {name} is {by} {how} that of this machine");
        let action = "let both machines keep time (chrony, systemd-timesyncd); until then times \
                      that people set and see are off, and nothing else";
        needs.push(need(Kind::Clock, name, what, action));
    }
    needs
}

/// Returns the reason why the service writes nothing after its database went back in time. Returns
/// `None` if it may write.
fn went_back(status: &Status) -> Option<&str> {
    let mut why = status.not_ready.iter().map(String::as_str);
    why.find(|why| why.starts_with(WENT_BACK))
}

/// Returns one finding for the whole fleet, regardless of how many services wait for the decision.
/// (R9)
fn history_need(services: &[ServiceFacts]) -> Option<Need> {
    let statuses = services.iter();
    let statuses = statuses.filter_map(|it| Some((it.name, went_back(it.status.as_ref().ok()?)?)));
    let held: Vec<(&str, &str)> = statuses.collect();
    let (_, first) = held.first()?;
    let names: Vec<&str> = held.iter().map(|(name, _)| *name).collect();
    let what = format!("{} write nothing: {first}", names.join(", "));
    let action = "find out what became of the newer rows; if there is a newer backup or another \
                  replica of the database, stop the fleet and use that (`hayward restore BACKUP`); \
                  else go on with what is left: `hayward restore --accept-loss`";
    Some(need(Kind::WentBack, "database", what, action))
}

/// Reports each replica that is down. The service continues, but with less redundancy.
fn silent_replicas(service: &ServiceFacts) -> Vec<Need> {
    let name = service.name;
    let silent = service.replicas.iter();
    let silent = silent.filter_map(|it| Some((&it.url, it.status.as_ref().err()?)));
    silent
        .map(|(url, error)| {
            let what = format!("a replica of {name} does not answer at {url}: {error}");
            let action = "start it again, or take its address off the list; until then nobody \
                          may take over when another dies";
            need(Kind::Away, name, what, action)
        })
        .collect()
}

/// Returns true if a rule is unchecked for longer than the start of a service takes.
fn is_unseen(rule: &RuleStatus, uptime_ms: u64) -> bool {
    let off = rule.why.as_deref() == Some(BLOCKLIST_OFF);
    let lately = |good| rule.checked_at.ms_since(good) <= BEGINS_MS;
    let just = uptime_ms <= BEGINS_MS || rule.last_good_at.is_some_and(lately);
    match rule.result {
        RuleResult::NotChecked => !off && !just,
        RuleResult::Unknown => true,
        RuleResult::Holds | RuleResult::Violated => false,
    }
}

fn unchecked_rule(service: &str, rule: &RuleStatus) -> Need {
    let why = rule.why.as_deref().unwrap_or("this version does not know");
    let what = format!("{} is not looked at in {service}: {why}", rule.id);
    let action = "see to what it says is missing; where another replica took over just now, ask \
                  again in two minutes; a newer service needs a newer `hayward`";
    need(Kind::Unseen, &rule.id, what, action)
}

fn invariant_needs(service: &ServiceFacts, ready: bool) -> Vec<Need> {
    let name = service.name;
    let all = match &service.invariants {
        Ok(all) => all,
        // A replica that does not lead checks no rules, and another finding covers it.
        Err(_) if !ready => return Vec::new(),
        Err(error) => {
            let what = format!("the invariants of {name} cannot be looked at: {error}");
            let action = "ask with the token of an operator or a viewer: --operator, --token-file";
            return vec![need(Kind::Unseen, name, what, action)];
        }
    };
    let uptime_ms = service.status.as_ref().map_or(0, |status| status.uptime_ms);
    let needs = all.rules.iter().filter_map(|rule| match rule.result {
        RuleResult::Violated => Some(violated_rule(name, rule)),
        _ => is_unseen(rule, uptime_ms).then(|| unchecked_rule(name, rule)),
    });
    needs.collect()
}

fn violated_rule(service: &str, rule: &RuleStatus) -> Need {
    let first = rule.evidence.first();
    let first = first.map(|it| format!("; first {}: {}", it.subject, it.detail));
    let what = format!(
        "{} does not hold in {service}: {} ({}{})",
        rule.id,
        rule.title,
        count(rule.violations, "violation"),
        first.unwrap_or_default()
    );
    need(Kind::Invariant, &rule.id, what, advice::for_rule(&rule.id))
}

fn follower_needs(service: &ServiceFacts) -> Vec<Need> {
    let silent = |ms: Option<u64>| ms.is_some_and(|ms| ms > SILENT_MS);
    let late = service.lags.iter();
    let late = late.filter(|lag| lag.stale || silent(lag.silent_ms));
    late.map(|lag| {
        let name = service.name;
        let publication = &lag.publication;
        let since = match lag.silent_ms {
            Some(ms) => format!("for {}", duration(ms)),
            None => "since it started".to_owned(),
        };
        let fault = lag.fault.as_ref().map(|fault| format!(": {fault}"));
        let what = format!(
            "{name} has heard nothing of {publication} {since}{}",
            fault.unwrap_or_default()
        );
        let action = format!(
            "see that {} is up, that {name} can reach it, and that its token has not run out; \
             nothing is taken back on old news",
            publisher(publication).unwrap_or("its publisher")
        );
        need(Kind::Follower, name, what, action)
    })
    .collect()
}

/// Returns the service that publishes this publication.
pub fn publisher(publication: &str) -> Option<&'static str> {
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
fn version_need(services: &[ServiceFacts]) -> Option<Need> {
    let replicas = services.iter().flat_map(|it| &it.replicas);
    let statuses = services.iter().map(|it| &it.status);
    let statuses = statuses.chain(replicas.map(|it| &it.status));
    let statuses = statuses.filter_map(|it| it.as_ref().ok());
    let mut versions: Vec<&str> = statuses.map(|it| it.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    (versions.len() > 1).then(|| {
        let what = format!(
            "services of different versions run: {}",
            versions.join(", ")
        );
        let action = "finish the upgrade; two versions side by side are meant for its duration";
        need(Kind::Versions, "versions", what, action)
    })
}

/// Returns one finding for all insecure modes. (S3)
fn insecure_mode_need(services: &[ServiceFacts]) -> Option<Need> {
    let statuses = services.iter().filter_map(|it| it.status.as_ref().ok());
    let mut modes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in statuses {
        for mode in &status.insecure_modes {
            modes.entry(mode).or_default().push(&status.name);
        }
    }
    let listed: Vec<String> = modes
        .iter()
        .map(|(mode, names)| format!("{mode} ({})", names.join(", ")))
        .collect();
    (!listed.is_empty()).then(|| {
        let what = format!("insecure modes are on: {}", listed.join("; "));
        let action = "take the setting away, and use TLS wherever it is not loopback";
        need(Kind::Insecure, "insecure modes", what, action)
    })
}

fn node_needs(facts: &Facts) -> Vec<Need> {
    let Ok(nodes) = &facts.nodes else {
        return Vec::new();
    };
    // A service that started on older rows knows no node until the operator has decided.
    let mut services = facts.services.iter();
    let held = |it: &ServiceFacts| it.status.as_ref().is_ok_and(|it| went_back(it).is_some());
    if services.any(|it| it.name == "node-status" && held(it)) {
        return Vec::new();
    }
    if nodes.all() == 0 {
        let what = "there are no nodes: nothing can run";
        let action = "let one in: `hayward enrol NODE`";
        return vec![need(Kind::Node, "nodes", what, action)];
    }
    let mut by_ailment: BTreeMap<Ailment, Vec<&Unwell>> = BTreeMap::new();
    for unwell in &nodes.unwell {
        by_ailment.entry(unwell.what).or_default().push(unwell);
    }
    by_ailment
        .into_iter()
        .flat_map(|(what, unwell)| ailment_needs(what, &unwell))
        .collect()
}

/// Reports nodes with the same ailment. Many nodes share one finding, and few have one each.
fn ailment_needs(what: Ailment, nodes: &[&Unwell]) -> Vec<Need> {
    let (how, action) = advice_for(what);
    if nodes.len() > APART {
        let names: Vec<&str> = nodes
            .iter()
            .take(APART)
            .map(|it| it.node.as_str())
            .collect();
        let what = format!(
            "{} nodes, of each: {how}; {}, …",
            nodes.len(),
            names.join(", ")
        );
        return vec![need(Kind::Node, nodes[0].node.as_str(), what, action)];
    }
    let one = |it: &&Unwell| {
        let what = format!("node {} {how}: {}", it.node, it.detail);
        need(Kind::Node, &it.node, what, action)
    };
    nodes.iter().map(one).collect()
}

/// Returns the description of an ailment, and its remedy.
fn advice_for(what: Ailment) -> (&'static str, &'static str) {
    match what {
        Ailment::Suspect => (
            "is suspect",
            "see whether it and its agent are up; if it stays silent it is given up, unless the \
             brake against mass loss holds: `hayward node NODE` says so",
        ),
        Ailment::Lost => (
            "is lost",
            "start its agent again, or forget it: `hayward node forget`; its work is started \
             elsewhere",
        ),
        Ailment::Twins => (
            "has two agents",
            "stop one of them, or say which is right: `hayward node identify`",
        ),
        Ailment::Quiesced => (
            "asks for no work",
            "see why with `hayward node NODE`; it comes back by itself when the cause is gone",
        ),
        Ailment::DiskLow => (
            "is low on disk",
            "make room on the disk of its state directory: nothing starts on a full one",
        ),
        Ailment::DrainFailed => (
            "was not empty in time",
            "see what blocks it with `hayward node NODE`, and end that or cancel the drain",
        ),
    }
}

/// Reports lists that could not be read although their service answers.
fn unread_lists(facts: &Facts) -> Vec<Need> {
    let there = |name: &str| {
        let mut services = facts.services.iter();
        services.any(|it| it.name == name && it.status.as_ref().is_ok_and(|it| it.ready))
    };
    let unread = |what: &str, service: &str, error: Option<&String>| {
        let error = error.filter(|_| there(service))?;
        let text = format!("the {what} cannot be read: {error}");
        let action = "ask with another token: --operator, --token-file";
        Some(need(Kind::Unseen, service, text, action))
    };
    [
        unread("nodes", "node-status", fault(&facts.nodes)),
        unread("blocks", "blocklist", fault(&facts.blocked)),
        unread("work that waits", "job-converter", fault(&facts.waiting)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn fault<T>(answer: &Answer<T>) -> Option<&String> {
    answer.as_ref().err()
}

fn waiting_need(facts: &Facts) -> Option<Need> {
    let longest = facts.waiting.as_ref().ok()?.first()?;
    (longest.waits_ms > LONG_MS).then(|| {
        let reason = longest.reason.as_deref().unwrap_or("no reason is known");
        let what = format!(
            "{} of {} has waited for {}: {reason}",
            longest.work,
            longest.user,
            duration(longest.waits_ms)
        );
        let action = format!("ask what would help: `hayward explain {}`", longest.work);
        need(Kind::Waiting, &longest.work, what, action)
    })
}

/// Returns true if a disk is nearly full. A disk of unknown size is not.
pub fn is_low(free: u64, total: u64) -> bool {
    total > 0 && free < total / DISK_PART && free < DISK_BYTES
}

fn disk_need(facts: &Facts) -> Option<Need> {
    let disk = facts.disk?;
    is_low(disk.free_bytes, disk.total_bytes).then(|| {
        let what = format!(
            "the disk of the state directory has {} of {} left",
            bytes(disk.free_bytes),
            bytes(disk.total_bytes)
        );
        let action = "make room: a database without any stops the fleet";
        need(Kind::Disk, "state directory", what, action)
    })
}

#[cfg(test)]
mod tests;
