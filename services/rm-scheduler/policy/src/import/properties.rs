//! Imports the properties file of DUCC. Its properties become tunables of the policy.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::attributes::{Flag, quantum_from_gb};
use super::{ImportState, Source};

/// Properties without effect in Hayward, each with the reason or its replacement.
const WITHOUT_EFFECT: [(&str, &str); 15] = [
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

pub(super) fn import_properties(import: &mut ImportState<'_>, source: Source<'_>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (line, key, value) in parse_pairs(source.text) {
        let is_relevant =
            key.starts_with("ducc.rm.") || WITHOUT_EFFECT.iter().any(|(known, _)| *known == key);
        if !is_relevant {
            continue;
        }
        if let Some(first) = seen.insert(key.clone(), line) {
            let detail = format!("{key} appears twice, first in line {first}");
            import.add_fault(source.name, line, detail);
            continue;
        }
        let source_line = PropertyLine {
            file: source.name,
            line,
        };
        import_property(import, &source_line, &key, &value);
    }
}

/// Parses lines of the form `key = value`, `key: value` or `key value`. A line that ends in `\`
/// continues on the next.
fn parse_pairs(text: &str) -> Vec<(usize, String, String)> {
    let mut pairs = Vec::new();
    let mut unfinished: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let (number, mut pair_text) = unfinished.take().unwrap_or((index + 1, String::new()));
        let line = line.trim();
        if pair_text.is_empty() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        if let Some(beginning) = line.strip_suffix('\\') {
            pair_text.push_str(beginning);
            unfinished = Some((number, pair_text));
            continue;
        }
        pair_text.push_str(line);
        let (key, rest) = pair_text
            .split_once(|c: char| c == '=' || c == ':' || c.is_whitespace())
            .unwrap_or((&pair_text, ""));
        let value = rest.trim_start_matches(|c: char| c == '=' || c == ':' || c.is_whitespace());
        pairs.push((number, key.to_owned(), value.trim().to_owned()));
    }
    pairs
}

struct PropertyLine<'a> {
    file: &'a str,
    line: usize,
}

fn import_property(
    import: &mut ImportState<'_>,
    source_line: &PropertyLine<'_>,
    key: &str,
    value: &str,
) {
    let tunables = &mut import.policy.tunables;
    let result = match key {
        "ducc.rm.share.quantum" => {
            let result = value.parse().map(quantum_from_gb);
            result
                .map(|quantum| import.policy.quantum = quantum)
                .map_err(|_| "a number of GB")
        }
        "ducc.rm.global_allotment" => set_amount(&mut tunables.global_allotment_gb, value),
        "ducc.rm.use_global_allotment" => set_flag(&mut tunables.use_global_allotment, value),
        "ducc.rm.initialization.cap" => set_number(&mut tunables.initialization_cap, value),
        "ducc.rm.expand.by.doubling" => set_flag(&mut tunables.expand_by_doubling, value),
        "ducc.rm.prediction" => set_flag(&mut tunables.use_prediction, value),
        "ducc.rm.prediction.fudge" => set_number(&mut tunables.prediction_fudge_ms, value),
        "ducc.rm.defragmentation" => set_flag(&mut tunables.defragmentation, value),
        "ducc.rm.fragmentation.threshold" => {
            set_number(&mut tunables.fragmentation_threshold, value)
        }
        "ducc.rm.reserve_overage" => set_amount(&mut tunables.reserve_overage_gb, value),
        "ducc.rm.reserved.dram" => set_number(&mut tunables.node_reserved_gb, value),
        "ducc.rm.override.dram" => set_number(&mut tunables.node_memory_override_gb, value),
        _ => {
            let known = WITHOUT_EFFECT.iter().find(|(known, _)| *known == key);
            let reason = known.map_or("is not known", |(_, reason)| *reason);
            let note = format!(
                "{}:{}: {key}: has no effect: {reason}",
                source_line.file, source_line.line
            );
            import.notes.push(note);
            return;
        }
    };
    let field = document_pointer(key);
    import.record_line(field.to_owned(), source_line.file, source_line.line);
    if let Err(expected) = result {
        let detail = format!("{key} is {value:?}, which is not {expected}");
        import.add_fault(source_line.file, source_line.line, detail);
    }
}

/// Returns the JSON pointer of the document field that a property sets.
fn document_pointer(key: &str) -> &'static str {
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

fn set_number(target: &mut u64, value: &str) -> Result<(), &'static str> {
    *target = value.parse().map_err(|_| "a number")?;
    Ok(())
}

fn set_amount(target: &mut Option<u64>, value: &str) -> Result<(), &'static str> {
    *target = Some(value.parse().map_err(|_| "a number of GB")?);
    Ok(())
}

fn set_flag(target: &mut bool, value: &str) -> Result<(), &'static str> {
    let Flag(flag) = Flag::from_str(value).map_err(|_| "true or false")?;
    *target = flag;
    Ok(())
}
