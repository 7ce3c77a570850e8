//! `hayward queues`: shows the queue tree of each pool, with use and limits.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hayward_rm_scheduler_api::queues::{Counts, PoolQueues, QueueEntry, QueueState, Queues};

use crate::connection::{Role, Service, Session};
use crate::output::format::{format_bytes, format_count, format_thousandths};
use crate::output::{Renderer, Table, Tone, bars, toned};

/// Characters of a full bar. A full bar is the capacity of the pool.
const BAR_WIDTH: u64 = 16;
/// Characters of the name column, including the indentation.
const NAME_WIDTH: usize = 20;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Show only the queues of this pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let query = arguments
        .pool
        .as_deref()
        .map(pool_query)
        .unwrap_or_default();
    let response = client.get(&format!("/v1/queues{query}")).await?;
    session
        .out
        .print_response(response, |queues: &Queues, renderer| {
            render(queues, renderer)
        })
}

/// Returns the query string. Pool names may contain any character except line breaks.
fn pool_query(pool: &str) -> String {
    let mut query = "?pool=".to_owned();
    for byte in pool.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            query.push(char::from(byte));
        } else {
            let _ = write!(query, "%{byte:02X}");
        }
    }
    query
}

pub fn render(queues: &Queues, renderer: &Renderer) -> String {
    if queues.pools.is_empty() {
        return "no pool is divided among queues; see `hayward shares`\n".to_owned();
    }
    let mut text = format!("round {}, {}\n", queues.round, renderer.ago(queues.at));
    for pool in &queues.pools {
        let _ = write!(
            text,
            "\npool {}: {}, {} open, {} kept for work that waits\n{}{}",
            pool.pool,
            format_count(pool.nodes, "node"),
            pool.open,
            pool.kept,
            queue_table(pool, renderer),
            disappearing_queues(pool),
        );
    }
    text.push_str(
        "\n█ used  ▒ used beyond the guarantee  ░ guaranteed and not used  · up to the maximum\n",
    );
    text
}

fn queue_table(pool: &PoolQueues, renderer: &Renderer) -> String {
    let header = [
        "queue",
        "of",
        "",
        "used",
        "guarantee",
        "max",
        "pending",
        "runs",
        "waits",
    ];
    let mut table = Table::new(header).align_right(&[3, 4, 5, 6, 7, 8]);
    let root = pool.queues.iter().find(|it| it.queue == "root");
    let capacity = root.map(|root| root.max.clone()).unwrap_or_default();
    let resources = resources_shown(pool);
    for queue in &pool.queues {
        for (index, resource) in resources.iter().enumerate() {
            let amount_in = |counts: &Counts| counts.get(*resource).copied();
            let used = amount_in(&queue.used);
            let pending = amount_in(&queue.pending).unwrap_or(0);
            let pool_capacity = amount_in(&capacity).unwrap_or(0);
            let limit_text = |counts: &Counts| {
                amount_in(counts).map_or(String::new(), |it| amount_text(resource, it))
            };
            let in_first_row = |text: String| if index == 0 { text } else { String::new() };
            let exceeds_max = amount_in(&queue.max).is_some_and(|max| used.unwrap_or(0) > max);
            table.push_row([
                in_first_row(indented_name(&queue.queue)).into(),
                (*resource).into(),
                usage_bar(queue, resource, pool_capacity).into(),
                toned(
                    amount_text(resource, used.unwrap_or(0)),
                    if exceeds_max {
                        Tone::Warning
                    } else {
                        Tone::Plain
                    },
                ),
                limit_text(&queue.guaranteed).into(),
                limit_text(&queue.max).into(),
                toned(
                    amount_text(resource, pending),
                    if pending > 0 {
                        Tone::Warning
                    } else {
                        Tone::Faint
                    },
                ),
                in_first_row(running_text(queue)).into(),
                in_first_row(queue.waiting_applications.to_string()).into(),
            ]);
        }
    }
    table.render(renderer)
}

/// Returns the resource types to show: memory, and every type with a guarantee or a limit.
fn resources_shown(pool: &PoolQueues) -> BTreeSet<&str> {
    let children = pool.queues.iter().filter(|it| it.queue != "root");
    let resources = children.flat_map(|it| it.guaranteed.keys().chain(it.max.keys()));
    let resources = resources.map(String::as_str);
    resources.chain(["memory"]).collect()
}

/// Draws usage and guarantee of a queue, and dots up to its maximum.
fn usage_bar(queue: &QueueEntry, resource: &str, capacity: u64) -> String {
    let amount_in = |counts: &Counts| counts.get(resource).copied().unwrap_or(0);
    let (used, guaranteed) = (amount_in(&queue.used), amount_in(&queue.guaranteed));
    // The bar of a queue without a guarantee shows no use beyond a guarantee.
    let due = if guaranteed > 0 { guaranteed } else { used };
    let mut bar = bars::draw_share(used, due, capacity, BAR_WIDTH);
    let max = queue.max.get(resource).copied().unwrap_or(capacity);
    let drawn_width = bar.chars().count();
    let max_width = bars::draw_share(max, max, capacity, BAR_WIDTH)
        .chars()
        .count();
    bar.extend(std::iter::repeat_n(
        '·',
        max_width.saturating_sub(drawn_width),
    ));
    bar
}

/// Formats an amount in the unit of its resource type.
fn amount_text(resource: &str, amount: u64) -> String {
    match resource {
        "memory" => format_bytes(amount),
        "vcore" | "gpu" => format_thousandths(amount),
        _ => amount.to_string(),
    }
}

/// Returns the last part of the path, indented by its depth.
fn indented_name(path: &str) -> String {
    let depth = path.matches('.').count();
    let last_part = path.rsplit('.').next().unwrap_or(path);
    let text = format!("{}{last_part}", "  ".repeat(depth));
    match text.char_indices().nth(NAME_WIDTH - 1) {
        Some((end, _)) if text.chars().count() > NAME_WIDTH => format!("{}…", &text[..end]),
        _ => text,
    }
}

fn running_text(queue: &QueueEntry) -> String {
    let running = queue.running_applications;
    let max = queue.max_applications;
    max.map_or(running.to_string(), |max| format!("{running}/{max}"))
}

/// Returns text about queues that will disappear: draining ones, and those made for an application.
fn disappearing_queues(pool: &PoolQueues) -> String {
    let mut text = String::new();
    for queue in &pool.queues {
        let change = match queue.state {
            QueueState::Draining => "drains: what is there goes on, and nothing new comes",
            QueueState::Dynamic => "was made for an application, and goes with the last one",
            _ => continue,
        };
        let _ = writeln!(text, "{} {change}", queue.queue);
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_pool_name_is_escaped_in_the_query() {
        assert_eq!(pool_query("batch-1"), "?pool=batch-1");
        assert_eq!(pool_query("a b&c"), "?pool=a%20b%26c");
    }

    fn memory(gib: u64) -> Counts {
        Counts::from([("memory".to_owned(), gib * GIB)])
    }

    fn queue(path: &str, used: u64, guaranteed: u64, max: u64) -> QueueEntry {
        let limits = |gib: u64| if gib > 0 { memory(gib) } else { Counts::new() };
        QueueEntry {
            queue: path.into(),
            state: QueueState::Active,
            leaf: path != "root",
            guaranteed: limits(guaranteed),
            max: limits(max),
            used: memory(used),
            leaving: Counts::new(),
            pending: memory(2),
            headroom: Counts::new(),
            running_applications: 1,
            waiting_applications: 2,
            max_applications: (path == "root.b").then_some(3),
            limits: Vec::new(),
        }
    }

    #[test]
    fn queues_are_shown_as_a_tree_with_usage_bars() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let mut draining = queue("root.gone-and-with-a-very-long-name", 1, 0, 0);
        draining.state = QueueState::Draining;
        let queues = Queues {
            round: 41,
            at,
            pools: vec![PoolQueues {
                pool: "batch".into(),
                nodes: 2,
                open: 2,
                kept: 0,
                queues: vec![
                    queue("root", 13, 0, 16),
                    queue("root.a", 8, 4, 0),
                    queue("root.b", 4, 8, 12),
                    draining,
                ],
            }],
        };
        let renderer = Renderer {
            colour: false,
            now: at,
        };
        let text = render(&queues, &renderer);
        assert!(text.lines().all(|line| line.chars().count() <= 100));
        insta::assert_snapshot!(text);
        assert_eq!(
            render(
                &Queues {
                    pools: Vec::new(),
                    ..queues
                },
                &renderer
            ),
            "no pool is divided among queues; see `hayward shares`\n"
        );
    }
}
