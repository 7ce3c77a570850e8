//! Imports properties, which are the tunables of DUCC under their DUCC names.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::attributes::{Flag, quantum_of};
use super::{Import, Source};

/// Properties without effect in Hayward, and what replaces them.
const ELSEWHERE: [(&str, &str); 15] = [
    (
        "ducc.rm.state.publish.ratio",
        "rounds follow changes: see the setting round_min_ms",
    ),
    (
        "ducc.orchestrator.state.publish.rate",
        "rounds follow changes: see the setting round_min_ms",
    ),
    (
        "ducc.rm.scheduler",
        "there is one planner: see `profile` and `settings`",
    ),
    (
        "ducc.rm.class.definitions",
        "name the file on the command line",
    ),
    (
        "ducc.rm.user.registry",
        "name the file on the command line, with --users",
    ),
    (
        "ducc.rm.default.memory",
        "job-converter sets the defaults of a submission",
    ),
    (
        "ducc.rm.default.tasks",
        "job-converter sets the defaults of a submission",
    ),
    (
        "ducc.rm.default.threads",
        "job-converter sets the defaults of a submission",
    ),
    (
        "ducc.rm.init.stability",
        "a round waits until every neighbour has answered",
    ),
    (
        "ducc.rm.node.stability",
        "node-status declares nodes lost: see its setting lost_ms",
    ),
    (
        "ducc.rm.fast.recovery",
        "a round starts as soon as the running allocations are known",
    ),
    (
        "ducc.rm.eviction.policy",
        "the cheapest allocations are always preempted first",
    ),
    (
        "ducc.rm.state.update.endpoint",
        "services follow publications",
    ),
    (
        "ducc.rm.state.update.endpoint.type",
        "services follow publications",
    ),
    (
        "ducc.agent.node.metrics.publish.rate",
        "see the setting heartbeat_ms of node-status",
    ),
];

pub(super) fn take(import: &mut Import<'_>, source: Source<'_>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (line, key, value) in pairs(source.text) {
        let ours = key.starts_with("ducc.rm.") || ELSEWHERE.iter().any(|(known, _)| *known == key);
        if !ours {
            continue;
        }
        if let Some(first) = seen.insert(key.clone(), line) {
            let detail = format!("{key} appears twice, first in line {first}");
            import.fault(source.name, line, detail);
            continue;
        }
        let spot = Spot {
            file: source.name,
            line,
        };
        property(import, &spot, &key, &value);
    }
}

/// Parses lines of the form `key = value`, `key: value` or `key value`. A line that ends in `\`
/// continues on the next.
fn pairs(text: &str) -> Vec<(usize, String, String)> {
    let mut pairs = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, mut whole) = open.take().unwrap_or((at + 1, String::new()));
        let line = line.trim();
        if whole.is_empty() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        if let Some(start) = line.strip_suffix('\\') {
            whole.push_str(start);
            open = Some((number, whole));
            continue;
        }
        whole.push_str(line);
        let (key, rest) = whole
            .split_once(|c: char| c == '=' || c == ':' || c.is_whitespace())
            .unwrap_or((&whole, ""));
        let value = rest.trim_start_matches(|c: char| c == '=' || c == ':' || c.is_whitespace());
        pairs.push((number, key.to_owned(), value.trim().to_owned()));
    }
    pairs
}

struct Spot<'a> {
    file: &'a str,
    line: usize,
}

fn property(import: &mut Import<'_>, spot: &Spot<'_>, key: &str, value: &str) {
    let tunables = &mut import.policy.tunables;
    let read = match key {
        "ducc.rm.share.quantum" => {
            let read = value.parse().map(quantum_of);
            read.map(|quantum| import.policy.quantum = quantum)
                .map_err(|_| "a number of GB")
        }
        "ducc.rm.global_allotment" => amount(&mut tunables.global_allotment_gb, value),
        "ducc.rm.use_global_allotment" => flag(&mut tunables.use_global_allotment, value),
        "ducc.rm.initialization.cap" => number(&mut tunables.initialization_cap, value),
        "ducc.rm.expand.by.doubling" => flag(&mut tunables.expand_by_doubling, value),
        "ducc.rm.prediction" => flag(&mut tunables.use_prediction, value),
        "ducc.rm.prediction.fudge" => number(&mut tunables.prediction_fudge_ms, value),
        "ducc.rm.defragmentation" => flag(&mut tunables.defragmentation, value),
        "ducc.rm.fragmentation.threshold" => number(&mut tunables.fragmentation_threshold, value),
        "ducc.rm.reserve_overage" => amount(&mut tunables.reserve_overage_gb, value),
        "ducc.rm.reserved.dram" => number(&mut tunables.node_reserved_gb, value),
        "ducc.rm.override.dram" => number(&mut tunables.node_memory_override_gb, value),
        _ => {
            let known = ELSEWHERE.iter().find(|(known, _)| *known == key);
            let why = known.map_or("is not known", |(_, why)| *why);
            let note = format!("{}:{}: {key}: has no effect: {why}", spot.file, spot.line);
            import.notes.push(note);
            return;
        }
    };
    let field = key_of(key);
    import.spot(field.to_owned(), spot.file, spot.line);
    if let Err(wanted) = read {
        let detail = format!("{key} is {value:?}, which is not {wanted}");
        import.fault(spot.file, spot.line, detail);
    }
}

/// Returns the place of a property in the document.
fn key_of(key: &str) -> &'static str {
    match key {
        "ducc.rm.share.quantum" => "/quantum",
        "ducc.rm.global_allotment" => "/tunables/global_allotment_gb",
        "ducc.rm.initialization.cap" => "/tunables/initialization_cap",
        "ducc.rm.prediction.fudge" => "/tunables/prediction_fudge_ms",
        "ducc.rm.fragmentation.threshold" => "/tunables/fragmentation_threshold",
        "ducc.rm.reserve_overage" => "/tunables/reserve_overage_gb",
        "ducc.rm.reserved.dram" => "/tunables/node_reserved_gb",
        "ducc.rm.override.dram" => "/tunables/node_memory_override_gb",
        _ => "/tunables",
    }
}

fn number(into: &mut u64, value: &str) -> Result<(), &'static str> {
    *into = value.parse().map_err(|_| "a number")?;
    Ok(())
}

fn amount(into: &mut Option<u64>, value: &str) -> Result<(), &'static str> {
    *into = Some(value.parse().map_err(|_| "a number of GB")?);
    Ok(())
}

fn flag(into: &mut bool, value: &str) -> Result<(), &'static str> {
    let Flag(flag) = Flag::from_str(value).map_err(|_| "true or false")?;
    *into = flag;
    Ok(())
}
