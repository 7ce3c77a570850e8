//! `hayward node NODE`: shows state, reason and next step. Load, history, evidence against the node
//! and its containers follow.

use hayward_blocklist_api::Evidence;
use hayward_container_manager_api::{ContainerList, ContainerState};
use hayward_node_status_api::{LeaseView, Metrics, NodeHistory, NodeView};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::commands::inspect::containers;
use crate::commands::operate::blocks::evidence;
use crate::commands::operate::nodes;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::{
    enum_text, format_bytes, format_count, format_duration, format_size, format_thousandths,
    sanitize,
};
use crate::output::{Facts, Renderer, Table, Tone, parse_response, print, toned};

/// Maximum number of history entries in the output.
const MAX_CHANGES: usize = 10;
/// Maximum number of facts in the output. The newest facts are shown.
const MAX_FACTS: usize = 5;
const CONTAINER_PAGES: PageFields = PageFields {
    list: "containers",
    next: "next_cursor",
};

pub async fn run(session: &Session, node: &NodeName) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Reader)?;
    let response: Value = client.get(&format!("/v1/nodes/{node}")).await?;
    if session.out.json {
        return session.out.json(&response);
    }
    let view: NodeView = parse_response(response)?;
    let history: NodeHistory = client
        .get(&format!("/v1/nodes/{node}/history?limit={MAX_CHANGES}"))
        .await?;
    let renderer = session.out.renderer();
    let mut text = facts_text(&view, &renderer);
    text += &section("history", &history_table(&history, &renderer), &renderer);
    let evidence_text = evidence_text(session, node, &renderer).await;
    text += &section("evidence against it", &evidence_text, &renderer);
    text += &section(
        "containers",
        &containers_text(session, node).await,
        &renderer,
    );
    print(&text)
}

/// Describes the evidence against the node. The text is empty without evidence, or if blocklist
/// does not answer.
async fn evidence_text(session: &Session, node: &NodeName, renderer: &Renderer) -> String {
    let response = evidence::fetch(session, node).await;
    let evidence: Option<Evidence> = response
        .ok()
        .and_then(|response| parse_response(response).ok());
    let relevant = evidence.filter(|it| it.item.is_some() || !it.facts.is_empty());
    relevant.map_or_else(String::new, |it| evidence::render(&it, MAX_FACTS, renderer))
}

/// Returns a titled section. It is empty if its body is.
fn section(title: &str, body: &str, renderer: &Renderer) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("\n{}\n{body}", renderer.title(title))
}

fn facts_text(view: &NodeView, renderer: &Renderer) -> String {
    let (entry, metrics) = (&view.entry, &view.metrics);
    let mut facts = Facts::default();
    facts.add("node", &entry.node);
    facts.add("state", nodes::state_cell(view));
    facts.add("why", &entry.reason);
    facts.add(
        "since",
        format!("{}, {}", entry.since, renderer.ago(entry.since)),
    );
    if let Some(next) = &view.next {
        let after = next
            .after_ms
            .map(|ms| format!("in {}: ", format_duration(ms)));
        facts.add(
            "next",
            format!("{}{}", after.unwrap_or_default(), next.what),
        );
    }
    for instance in &view.rivals {
        facts.add("agent instance", toned(instance, Tone::Warning));
    }
    facts.add("pool", pool_text(view));
    if let Some(lease) = &view.lease {
        facts.add("lease", lease_text(lease));
    }
    facts.add("offers", format_size(&entry.capacity));
    if let Some(claimed) = &view.claimed {
        let claims = format!("{}: more than it was enrolled for", format_size(claimed));
        facts.add("claims", toned(claims, Tone::Warning));
    }
    add_load(&mut facts, metrics);
    facts.add("containers", metrics.containers);
    let missed = format_count(view.missed, "heartbeat");
    facts.add(
        "heard",
        format!(
            "{} ago, {missed} missed",
            format_duration(view.heartbeat_age_ms)
        ),
    );
    if view.flaps > 0 {
        let times = format_count(view.flaps, "time");
        facts.add("flaps", format!("fell silent {times} in 15 min"));
    }
    facts.add("runtimes", entry.runtimes.join(", "));
    facts.add("agent", &view.version);
    for (name, value) in &entry.labels {
        facts.add("label", format!("{name}={value}"));
    }
    facts.render(renderer)
}

/// Adds memory, disk, load and pressure.
fn add_load(facts: &mut Facts, metrics: &Metrics) {
    if metrics.memory_total_bytes > 0 {
        let free_text = |free: u64, total: u64| {
            format!("{} free of {}", format_bytes(free), format_bytes(total))
        };
        let available = metrics.memory_available_bytes;
        facts.add("memory", free_text(available, metrics.memory_total_bytes));
        if metrics.swap_total_bytes > 0 {
            facts.add(
                "swap",
                free_text(metrics.swap_free_bytes, metrics.swap_total_bytes),
            );
        }
        facts.add(
            "disk",
            free_text(metrics.disk_free_bytes, metrics.disk_total_bytes),
        );
        facts.add("load", format_thousandths(metrics.load_centi * 10));
    }
    if let Some(pressure) = &metrics.pressure {
        let percent = |centi: u64| format!("{} %", centi / 100);
        let [cpu, memory, io] =
            [pressure.cpu_centi, pressure.memory_centi, pressure.io_centi].map(percent);
        let waits = format!("for cpu {cpu}, memory {memory}, disk {io} of the last 10 s");
        facts.add("waits", waits);
    }
}

/// Returns the pool of the node by the policy, with the pool that the agent names if it differs.
fn pool_text(view: &NodeView) -> String {
    let agent_pool = &view.entry.pool;
    match &view.counted_in {
        Some(pool) => format!("{pool}, where the policy puts it; it names {agent_pool}"),
        None => agent_pool.clone(),
    }
}

/// Describes what happens when the node stays silent. Exclusive work may run on a silent node until
/// its lease ends, and only then may a successor start elsewhere. (W7)
fn lease_text(lease: &LeaseView) -> String {
    let work = match lease.ends_after_ms {
        0 => "no exclusive work runs there".to_owned(),
        ms => format!("exclusive work may run there for {}", format_duration(ms)),
    };
    let successor = match lease.replacement_after_ms {
        None => "no successor starts while so many of its pool are silent".to_owned(),
        Some(0) => "a successor may start".to_owned(),
        Some(ms) => format!("a successor may start in {}", format_duration(ms)),
    };
    format!("if it is heard no more: {work}, {successor}")
}

fn history_table(history: &NodeHistory, renderer: &Renderer) -> String {
    let mut table = Table::new(["when", "health", "takes work", "by", "what and why"]);
    for change in &history.changes {
        table.push_row([
            renderer.ago(change.at).into(),
            enum_text(&change.health).into(),
            if change.schedulable { "on" } else { "off" }.into(),
            change.by.as_deref().unwrap_or("-").into(),
            (&change.reason).into(),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render(renderer)
    }
}

/// Lists the live containers of the node, or the reason why they cannot be listed.
async fn containers_text(session: &Session, node: &NodeName) -> String {
    let request = async {
        let client = session.client(Service::ContainerManager, Role::Reader)?;
        let path = format!("/v1/containers?node={node}");
        let list: ContainerList =
            parse_response(pages::read_all(&client, &path, CONTAINER_PAGES).await?)?;
        anyhow::Ok(list)
    };
    match request.await {
        Ok(list) => {
            let mut alive = list.containers;
            alive.retain(|view| view.entry.state != ContainerState::Ended);
            containers::render_table(&alive, &session.out.renderer())
        }
        Err(error) => format!("{}\n", sanitize(&format!("cannot be listed: {error:#}"))),
    }
}
