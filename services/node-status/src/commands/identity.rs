//! Who a node is, and what it may claim.

use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::{NodeName, Size};

use super::Cause;
use crate::error::Refusal;
use crate::format;
use crate::ledger::Ledger;
use crate::model::Bounds;
use crate::store::Rows;

/// Agents that are remembered as not being the node.
const REFUSED: usize = 16;

impl Ledger {
    /// F28: an operator says which of several agents is the node. The others are not heard any
    /// more; one that starts anew is a stranger again.
    pub(crate) fn identify(
        &mut self,
        (name, instance, by): (&NodeName, String, String),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<NodeEntry, Refusal> {
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let node = self
            .nodes
            .get_mut(name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        let mut known = node.instances(quiet_ms, now_ms);
        if !known.contains(&instance) {
            return Err(Refusal::NoInstance(name.clone(), known));
        }
        known.retain(|other| *other != instance);
        let others = known.len();
        node.refused.extend(known);
        let over = node.refused.len().saturating_sub(REFUSED);
        node.refused.drain(..over);
        node.twins.settle(&instance);
        // Whatever was decided on was said by nobody in particular.
        node.pulse.decided(0);
        let cause = Cause {
            news: true,
            event: (others > 0).then(|| format!("agent {instance} stays, {others} refused")),
            by: Some(by),
            turned: false,
        };
        self.settle(name, cause, moment, batch);
        self.entry_of(name)
    }

    /// S8, S15: the agent is let in, and from now on held to what it was enrolled for.
    pub(crate) fn redeem(
        &mut self,
        (name, secret_digest): (&NodeName, &[u8; 32]),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let bounds = self
            .enrolments
            .redeem(name, secret_digest, moment.now, &mut batch.rows)?;
        if self.bounds.get(name) == bounds.as_ref() {
            return Ok(());
        }
        match &bounds {
            Some(bounds) => self.bounds.insert(name.clone(), bounds.clone()),
            None => self.bounds.remove(name),
        };
        let event = told(bounds.as_ref());
        batch.rows.limits.insert(name.clone(), bounds.clone());
        let may_claim = self.may_claim(name);
        if let Some(node) = self.nodes.get_mut(name) {
            node.bounds = Some(may_claim);
            // What it says is looked at again, also where it says the same as before.
            node.pulse.decided(0);
            let cause = Cause {
                news: true,
                event: Some(event),
                ..Cause::default()
            };
            self.settle(name, cause, moment, batch);
        }
        Ok(())
    }
}

fn told(bounds: Option<&Bounds>) -> String {
    let Some(Bounds { most, pool }) = bounds else {
        return "enrolled without a limit".to_owned();
    };
    let limit = (*most != Size::default()).then(|| format!("for {} at most", format::size(most)));
    let pool = pool.as_ref().map(|pool| format!("in pool {pool}"));
    let parts: Vec<String> = limit.into_iter().chain(pool).collect();
    format!("enrolled {}", parts.join(", "))
}
