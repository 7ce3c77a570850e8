//! `hayward nodes --held`: shows the work and the free space of each node.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy};
use hayward_vocabulary::{UserName, WorkId, WorkKind};

use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::{Cell, Renderer, Table, Tone, toned};

/// Field names of a page of `/v1/occupancy`.
pub(super) const NODE_PAGES: PageFields = PageFields {
    list: "nodes",
    next: "next_cursor",
};

pub async fn run(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = pages::read_all(&client, "/v1/occupancy", NODE_PAGES).await?;
    session
        .out
        .print_response(response, |all: &Occupancy, renderer| {
            render_table(&all.nodes, renderer)
        })
}

pub fn render_table(nodes: &[NodeOccupancy], renderer: &Renderer) -> String {
    if nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    let header = [
        "node", "state", "pool", "quanta", "held", "fixed", "leaving", "free", "by",
    ];
    let mut table = Table::new(header).align_right(&[3, 4, 5, 6, 7]);
    for node in nodes {
        table.push_row([
            (&node.node).into(),
            state_cell(node),
            (&node.pool).into(),
            node.order.into(),
            node.held.into(),
            node.fixed.into(),
            node.vacating.into(),
            node.free.into(),
            holders_text(node).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the first reason that keeps the node from taking work, otherwise `up`. A node that
/// offers less than it has granted is `shrank`.
fn state_cell(node: &NodeOccupancy) -> Cell {
    match node {
        _ if !node.responsive => toned("lost", Tone::Bad),
        _ if !node.online => toned("off", Tone::Warning),
        _ if node.blocked.is_some() => toned("blocked", Tone::Warning),
        _ if !node.up => toned("declines", Tone::Warning),
        _ if node.over > 0 => toned("shrank", Tone::Warning),
        _ => toned("up", Tone::Good),
    }
}

/// All processes of one piece of work on one node.
pub(super) struct NodeWork<'a> {
    pub work: &'a WorkId,
    pub kind: WorkKind,
    pub user: &'a UserName,
    pub processes: u64,
    pub quanta: u64,
}

/// Returns the work on a node, the largest first.
pub(super) fn work_on_node(node: &NodeOccupancy) -> Vec<NodeWork<'_>> {
    let mut all: BTreeMap<&WorkId, NodeWork> = BTreeMap::new();
    // The API calls an allocation of the node a share.
    for share in &node.shares {
        let entry = all.entry(&share.work).or_insert(NodeWork {
            work: &share.work,
            kind: share.kind,
            user: &share.user,
            processes: 0,
            quanta: 0,
        });
        entry.processes += 1;
        entry.quanta += share.order;
    }
    let mut all: Vec<NodeWork> = all.into_values().collect();
    all.sort_by_key(|entry| std::cmp::Reverse(entry.quanta));
    all
}

/// Lists the work with its users, number of processes and quanta.
fn holders_text(node: &NodeOccupancy) -> String {
    let describe = |it: &NodeWork| match it.processes {
        1 => format!("{} of {} ({})", it.work, it.user, it.quanta),
        processes => format!("{processes} × {} of {} ({})", it.work, it.user, it.quanta),
    };
    let descriptions: Vec<String> = work_on_node(node).iter().map(describe).collect();
    descriptions.join(", ")
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::AllocationState;
    use hayward_rm_scheduler_api::occupancy::ShareOccupancy;
    use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, Timestamp};

    use super::*;

    fn share(work: &str, user: &str, quanta: u64) -> ShareOccupancy {
        ShareOccupancy {
            allocation: AllocationId::new("alc_1").unwrap(),
            work: WorkId::new(work).unwrap(),
            kind: WorkKind::Job,
            user: UserName::new(user).unwrap(),
            class: "normal".into(),
            order: quanta,
            state: AllocationState::Running,
            granted_at: Timestamp::from_unix_ms(1),
            investment_ms: 0,
            fixed: false,
            leaving: false,
            purged: false,
            squatter: false,
            gpus: Vec::new(),
        }
    }

    fn node(name: &str, up: bool, shares: Vec<ShareOccupancy>) -> NodeOccupancy {
        let held = shares.iter().map(|share| share.order).sum();
        NodeOccupancy {
            node: NodeName::new(name).unwrap(),
            pool: "default".into(),
            up,
            responsive: true,
            online: true,
            quiesced: false,
            blocked: (!up).then(|| "a fan is broken".into()),
            capacity: Size::default(),
            quantum: Quantum::default(),
            order: 8,
            held,
            free: 8 - held,
            over: 0,
            fixed: 0,
            vacating: 0,
            processes: 3,
            reservable: up,
            classes: Vec::new(),
            shares,
        }
    }

    #[test]
    fn a_table_names_the_owners_of_the_held_quanta() {
        let renderer = Renderer {
            colour: false,
            now: Timestamp::from_unix_ms(2),
        };
        let mixed = vec![
            share("job_1", "ada", 1),
            share("job_2", "ben", 4),
            share("job_1", "ada", 1),
        ];
        let nodes = [node("n1", true, mixed), node("n2", false, Vec::new())];
        insta::assert_snapshot!(render_table(&nodes, &renderer));
    }
}
