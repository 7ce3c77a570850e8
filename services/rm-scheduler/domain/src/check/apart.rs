//! Container placement, 11.1, looked at apart from the planner: who is where, by group of work that
//! is kept apart.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, WorkId};

use crate::{plan::Grant, snapshot::Snapshot};

#[derive(Default)]
pub struct Groups<'a>(BTreeMap<&'a WorkId, Vec<(&'a WorkId, &'a NodeName)>>);

impl<'a> Groups<'a> {
    pub fn join(&mut self, snapshot: &'a Snapshot, who: (&'a WorkId, &'a NodeName)) {
        let demand = snapshot.demand.get(who.0);
        if let Some(apart) = demand.and_then(|demand| demand.apart.as_ref()) {
            self.0.entry(&apart.group).or_default().push(who);
        }
    }

    /// By node, or by the value of a label, which has to be there.
    pub fn are_apart(&self, snapshot: &Snapshot, grant: &Grant) -> bool {
        let demand = snapshot.demand.get(&grant.work);
        let Some(apart) = demand.and_then(|demand| demand.apart.as_ref()) else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |node: &NodeName| snapshot.nodes.get(node)?.labels.get(label?);
        let here = value(&grant.node);
        let others = self.0.get(&apart.group).into_iter().flatten();
        let mut others = others.filter(|(work, _)| **work != grant.work);
        (label.is_none() || here.is_some())
            && others
                .all(|(_, node)| **node != grant.node && (label.is_none() || value(node) != here))
    }
}
