//! Whether one more process of some work could be given room as things stand, by the rules of the
//! check alone: for who asks whether it waits in vain (I21).

use std::collections::BTreeSet;

use hayward_vocabulary::{NodeName, WorkId, WorkKind};

use super::{check_grant, quantum_of, tally::Tally};
use crate::{
    plan::Grant,
    snapshot::{Demand, Node, Policy, Snapshot},
};

/// Nodes looked at closely for one piece of work.
const CLOSELY: usize = 3;

pub struct Openings<'a> {
    snapshot: &'a Snapshot,
    tally: Tally<'a>,
    /// Something leaves there: what it leaves behind is decided on when it is gone.
    stirred: BTreeSet<&'a NodeName>,
}

impl<'a> Openings<'a> {
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let all = snapshot.allocations.values();
        let leaving = all.filter(|it| it.leaving || it.purged);
        Self {
            snapshot,
            tally: Tally::of(snapshot, &BTreeSet::new()),
            stirred: leaving.map(|it| &it.node).collect(),
        }
    }

    /// A node that could take one more process of this work in this class, and is promised to
    /// nobody else.
    pub fn find(&self, work: &WorkId, class: &str) -> Option<NodeName> {
        let demand = self.snapshot.demand.get(work)?;
        let nodes = self.snapshot.nodes.iter();
        let nodes = nodes.filter(|(_, node)| node.is_schedulable());
        let open = nodes.filter(|(name, _)| !self.stirred.contains(name));
        open.filter_map(|(name, node)| self.grant(work, demand, (class, name, node)))
            .filter(|grant| !self.is_promised(&grant.node, work))
            .take(CLOSELY)
            .find(|grant| self.allows(grant))
            .map(|grant| grant.node)
    }

    fn allows(&self, grant: &Grant) -> bool {
        // The sums are changed by what is tried, so a copy is.
        let mut tally: Tally<'_> = self.tally.clone();
        check_grant(self.snapshot, grant)
            .and_then(|()| tally.add(self.snapshot, grant))
            .is_ok()
    }

    /// What would be granted there, where there is room at first sight.
    fn grant(
        &self,
        work: &WorkId,
        demand: &Demand,
        (class, name, node): (&str, &NodeName, &Node),
    ) -> Option<Grant> {
        let policy = match &demand.queued {
            Some(_) => Policy::FairShare,
            None => self.snapshot.classes.get(class)?.policy,
        };
        let quantum = quantum_of(self.snapshot, &node.pool);
        let whole = policy == Policy::Reserve && demand.kind == WorkKind::Reservation;
        let (order, size) = if whole {
            (quantum.node_order(&node.capacity), node.capacity.clone())
        } else {
            (
                quantum.work_order(&demand.size),
                quantum.granted(&demand.size),
            )
        };
        let load = self.tally.on(name).cloned().unwrap_or_default();
        let mut free = node.capacity.clone();
        free.take(&load.size);
        let room = quantum.node_order(&node.capacity).checked_sub(load.order)?;
        let fits = order <= room && size.fits(&free) && demand.size.fits(&node.capacity);
        let gpus = if whole {
            Vec::new()
        } else {
            load.open_gpus(&node.capacity, &size)?
        };
        fits.then(|| Grant {
            work: work.clone(),
            kind: demand.kind,
            user: demand.user.clone(),
            class: class.to_owned(),
            node: name.clone(),
            order,
            size,
            fixed: policy != Policy::FairShare,
            gpus,
        })
    }

    /// Room was made or kept there for somebody else.
    fn is_promised(&self, node: &NodeName, work: &WorkId) -> bool {
        let carried = &self.snapshot.carried;
        let mut claims = carried.claims.iter();
        let claimed = claims.any(|(owner, nodes)| owner != work && nodes.contains(node));
        let mut kept = carried.queues.values();
        let reserved = kept.any(|kept| {
            let held = kept.reservations.get(node);
            held.is_some_and(|held| held.work != *work)
        });
        claimed || reserved
    }
}
