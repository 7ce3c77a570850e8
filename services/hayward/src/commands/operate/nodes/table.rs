//! Renders the table of `hayward nodes`. Full resources are highlighted. The reason of a state
//! fills the rest of the line.

use hayward_blocklist_api::BlockEntry;
use hayward_node_status_api::NodeView;

use super::{Fleet, state_cell};
use crate::output::format::{format_bytes, format_count, format_duration};
use crate::output::{Cell, Renderer, Table, Tone, bars, toned};

/// Characters of a bar.
const BAR_WIDTH: u64 = 5;
/// Characters of a line, which fit a terminal of usual width.
const LINE_WIDTH: usize = 100;
/// Minimum width of the last column, which fills the rest of the line.
const MIN_REASON_WIDTH: usize = 20;
/// Number of short silences of a node up to which they are not mentioned.
const MAX_QUIET_FLAPS: u64 = 2;
/// Percentage from which a resource counts as full.
const FULL_PERCENT: u64 = 90;

pub fn render(fleet: &Fleet, renderer: &Renderer) -> String {
    if fleet.nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    // The first rendering measures the other columns, so that the last column gets the rest of the
    // line. It has no colours, because their escape codes take no space on the screen.
    let plain = Renderer {
        colour: false,
        ..*renderer
    };
    let plain_text = render_rows(fleet, &plain, 0);
    let widest = plain_text.lines().map(|line| line.chars().count()).max();
    let width = LINE_WIDTH
        .saturating_sub(widest.unwrap_or(0))
        .max(MIN_REASON_WIDTH);
    let mut text = render_rows(fleet, renderer, width);
    for service in &fleet.unavailable {
        let warning = format!("{service} does not answer: what it would say is left out\n");
        text += &renderer.paint(&warning, Tone::Warning);
    }
    text
}

/// Renders the table. The last column gets `width` characters, or stays empty if `width` is 0.
fn render_rows(fleet: &Fleet, renderer: &Renderer, width: usize) -> String {
    let header = [
        "node", "pool", "state", "held", "memory", "load", "runs", "for", "why",
    ];
    let mut table = Table::new(header).align_right(&[6]);
    for view in &fleet.nodes {
        let block = fleet.block_of(view);
        let reason = if width == 0 {
            "".into()
        } else {
            reason_cell(view, block, renderer, width)
        };
        table.push_row([
            (&view.entry.node).into(),
            pool_cell(fleet, view),
            block.map_or_else(|| state_cell(view), |block| blocked_cell(view, block)),
            held_cell(fleet, view),
            memory_cell(view),
            load_cell(view),
            view.metrics.containers.into(),
            renderer.age(view.entry.since).into(),
            reason,
        ]);
    }
    table.render(renderer)
}

/// Returns the node pool by the policy. If rm-scheduler has none, returns the name from the agent
/// in parentheses.
fn pool_cell(fleet: &Fleet, view: &NodeView) -> Cell {
    match fleet.occupancy_of(view) {
        Some(occupancy) => (&occupancy.pool).into(),
        None => toned(format!("({})", view.entry.pool), Tone::Faint),
    }
}

/// Returns the quanta of allocations as a bar and as a number.
fn held_cell(fleet: &Fleet, view: &NodeView) -> Cell {
    fleet.occupancy_of(view).map_or_else(
        || "-".into(),
        |node| {
            // A node that shrank has more allocations than quanta.
            let all = node.order + node.over;
            let text = format!("{} {}/{}", draw_bar(node.held, all), node.held, node.order);
            toned(
                text,
                if node.over > 0 {
                    Tone::Warning
                } else {
                    Tone::Plain
                },
            )
        },
    )
}

fn memory_cell(view: &NodeView) -> Cell {
    let metrics = &view.metrics;
    let total = metrics.memory_total_bytes;
    usage_cell(total.saturating_sub(metrics.memory_available_bytes), total)
}

/// Returns the load of the last minute in percent of the CPUs. Above 100 %, processes wait for a
/// CPU.
fn load_cell(view: &NodeView) -> Cell {
    // The unit of the load is a hundredth of a CPU.
    let cpus_centi = view.entry.capacity.cpu_milli / 10;
    if view.metrics.memory_total_bytes == 0 {
        return "-".into();
    }
    usage_cell(view.metrics.load_centi, cpus_centi)
}

fn usage_cell(amount: u64, total: u64) -> Cell {
    if total == 0 {
        return "-".into();
    }
    let percent = amount.saturating_mul(100) / total;
    let text = format!("{} {percent}%", draw_bar(amount, total));
    let is_full = percent >= FULL_PERCENT;
    toned(text, if is_full { Tone::Warning } else { Tone::Plain })
}

/// Draws the used part full and the free part dotted.
fn draw_bar(amount: u64, total: u64) -> String {
    bars::draw_share(amount.min(total), total, total, BAR_WIDTH)
}

/// Returns the state of a blocked node.
fn blocked_cell(view: &NodeView, block: &BlockEntry) -> Cell {
    // An unreachable node is a more severe state than a blocked one.
    match state_cell(view) {
        lost if lost.has_text("lost") => lost,
        _ if block.canary => toned("on trial", Tone::Warning),
        _ => toned("blocked", Tone::Bad),
    }
}

/// Joins the reasons of the state, and shortens them to the width.
fn reason_cell(
    view: &NodeView,
    block: Option<&BlockEntry>,
    renderer: &Renderer,
    width: usize,
) -> Cell {
    let mut reasons = Vec::new();
    if let Some(block) = block {
        let left = block
            .end
            .map(|end| format_duration(end.ms_since(renderer.now)));
        let left = left.map_or_else(|| "for good".to_owned(), |left| format!("{left} more"));
        reasons.push(format!("{left}: {}", block.cause));
    }
    if !view.entry.takes_work() || view.flaps > MAX_QUIET_FLAPS {
        reasons.push(without_state_prefix(&view.entry.reason));
    }
    if let Some(claimed) = &view.claimed {
        let claimed = format_bytes(claimed.memory_bytes);
        reasons.push(format!("claims {claimed}, held to its limit"));
    }
    if view.missed > 0 && view.entry.takes_work() {
        reasons.push(format!("{} missed", format_count(view.missed, "heartbeat")));
    }
    toned(shorten(&reasons.join("; "), width), Tone::Faint)
}

/// Removes from the reason what the state column already shows.
fn without_state_prefix(reason: &str) -> String {
    const PREFIXES: [&str; 5] = [
        "the node asks for no new work: ",
        "being drained by ",
        "drain by ",
        "drained by ",
        "varied off by ",
    ];
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| reason.strip_prefix(prefix));
    rest.unwrap_or(reason).to_owned()
}

fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(width - 1).collect();
    format!("{}…", beginning.trim_end())
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_api::{BlockAction, BlockKind, EvacuationPolicy};
    use hayward_node_status_api::drain::DrainState;
    use hayward_node_status_api::{Health, Metrics, NodeEntry};
    use hayward_rm_scheduler_api::occupancy::NodeOccupancy;
    use hayward_vocabulary::{NodeName, Quantum, Size, Timestamp};

    use super::*;

    /// Time at which the nodes got their state.
    const SINCE: Timestamp = Timestamp::from_unix_ms(1_795_257_720_000);

    fn node(name: &str, health: Health, schedulable: bool, reason: &str) -> NodeView {
        NodeView {
            lease: None,
            counted_in: None,
            entry: NodeEntry {
                node: NodeName::new(name).unwrap(),
                pool: "default".into(),
                capacity: Size {
                    memory_bytes: 8 << 30,
                    cpu_milli: 4000,
                    ..Size::default()
                },
                labels: std::collections::BTreeMap::new(),
                runtimes: vec!["process".into()],
                health,
                schedulable,
                reason: reason.into(),
                since: SINCE,
                drain: None,
                boot_id: "b".into(),
                agent_instance: "a".into(),
            },
            metrics: Metrics {
                load_centi: 120,
                memory_total_bytes: 16 << 30,
                memory_available_bytes: 5 << 29,
                containers: 3,
                ..Metrics::default()
            },
            heartbeat_age_ms: 420,
            missed: 0,
            version: "0.1.0".into(),
            next: None,
            flaps: 0,
            rivals: Vec::new(),
            claimed: None,
            drain_state: None,
        }
    }

    fn occupancy(name: &str, held: u64) -> NodeOccupancy {
        NodeOccupancy {
            node: NodeName::new(name).unwrap(),
            pool: "batch".into(),
            up: true,
            responsive: true,
            online: true,
            quiesced: false,
            blocked: None,
            capacity: Size::default(),
            quantum: Quantum::default(),
            order: 8,
            held,
            free: 8 - held,
            over: 0,
            fixed: 0,
            vacating: 0,
            processes: 3,
            reservable: true,
            classes: Vec::new(),
            shares: Vec::new(),
        }
    }

    #[test]
    fn nodes_are_listed_in_a_table() {
        let mut draining = node(
            "node-5",
            Health::Healthy,
            true,
            "being drained by ann: disk",
        );
        draining.drain_state = Some(DrainState::Draining);
        let block = |name: &str, canary| BlockEntry {
            kind: BlockKind::Node,
            identifier: name.into(),
            action: BlockAction::Mark,
            cause: "4 launches failed in 2 min".into(),
            start: SINCE,
            end: Some(SINCE.plus_ms(8_100_000)),
            sources: ["auto".to_owned()].into(),
            removal_no: 0,
            job: None,
            automatic: true,
            canary,
            evacuation: EvacuationPolicy::Immediate,
        };
        let fleet = Fleet {
            nodes: vec![
                node("node-1", Health::Healthy, true, "heartbeats arrive"),
                node(
                    "node-2",
                    Health::Healthy,
                    false,
                    "varied off by ann: a fan is broken",
                ),
                node("node-3", Health::Lost, true, "no heartbeat for 60 s"),
                node("node-4", Health::Suspect, true, "no heartbeat for 15 s"),
                draining,
                node("node-6", Health::Healthy, true, "heartbeats arrive"),
                node("node-7", Health::Healthy, true, "heartbeats arrive"),
            ],
            occupancy: vec![
                occupancy("node-1", 8),
                occupancy("node-2", 0),
                occupancy("node-4", 3),
            ],
            blocks: vec![block("node-6", false), block("node-7", true)],
            unavailable: vec!["blocklist"],
        };
        let renderer = Renderer {
            colour: false,
            now: SINCE.plus_ms(7_500_000),
        };
        let table = render(&fleet, &renderer);
        for line in table.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        insta::assert_snapshot!(table);
    }
}
