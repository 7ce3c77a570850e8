//! Handlers of the commands for the agent of a node: selecting one of several agents, and creating
//! and redeeming enrolments.

use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::{NodeName, Size, Timestamp};

use super::Cause;
use crate::command::IdentifyNode;
use crate::error::Refusal;
use crate::ledger::Ledger;
use crate::model::{ClaimLimits, NewEnrolment};
use crate::state_conversions;
use crate::store::Rows;

/// Maximum number of refused agent instances per node.
const MAX_REFUSED: usize = 16;

impl Ledger {
    /// Selects the agent that represents a node. The other agents are refused until they restart
    /// (F28).
    pub(crate) fn identify(
        &mut self,
        request: IdentifyNode,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<NodeEntry, Refusal> {
        let IdentifyNode {
            node: name,
            instance,
            by,
        } = request;
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let node = self
            .nodes
            .get_mut(&name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        let mut instances = node.instances(quiet_ms, now_ms);
        if !instances.contains(&instance) {
            return Err(Refusal::NoInstance {
                node: name,
                instances,
            });
        }
        instances.retain(|other| *other != instance);
        let others = instances.len();
        node.refused.extend(instances);
        let excess = node.refused.len().saturating_sub(MAX_REFUSED);
        node.refused.drain(..excess);
        node.agents.resolve(&instance);
        // The last accepted heartbeat may come from another agent.
        node.heartbeat.set_digest(0);
        let cause = Cause {
            publish: true,
            event: (others > 0).then(|| format!("agent {instance} stays, {others} refused")),
            by: Some(by),
            judgement_changed: false,
        };
        self.judge_node(&name, cause, moment, batch);
        self.entry_of(&name)
    }

    /// Stores an enrolment. Returns the time at which its secret expires.
    pub(crate) fn enrol(
        &mut self,
        enrolment: NewEnrolment,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Timestamp, Refusal> {
        self.enrolments
            .enrol(enrolment, moment.now, &mut batch.rows)
    }

    /// Redeems an enrolment. Its limits apply at once (S15).
    pub(crate) fn redeem(
        &mut self,
        name: &NodeName,
        secret_digest: &[u8; 32],
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let claim_limits =
            self.enrolments
                .redeem(name, secret_digest, moment.now, &mut batch.rows)?;
        if self.claim_limits.get(name) == claim_limits.as_ref() {
            return Ok(());
        }
        match &claim_limits {
            Some(claim_limits) => self.claim_limits.insert(name.clone(), claim_limits.clone()),
            None => self.claim_limits.remove(name),
        };
        let event = limits_text(claim_limits.as_ref());
        batch.rows.limits.insert(name.clone(), claim_limits.clone());
        let limits = self.limits_of(name);
        if let Some(node) = self.nodes.get_mut(name) {
            node.claim_limits = Some(limits);
            // The next heartbeat is evaluated even if it is unchanged.
            node.heartbeat.set_digest(0);
            let cause = Cause {
                publish: true,
                event: Some(event),
                ..Cause::default()
            };
            self.judge_node(name, cause, moment, batch);
        }
        Ok(())
    }
}

fn limits_text(claim_limits: Option<&ClaimLimits>) -> String {
    let Some(ClaimLimits { max_size, pool }) = claim_limits else {
        return "enrolled without a limit".to_owned();
    };
    let limit = (*max_size != Size::default())
        .then(|| format!("for at most {}", state_conversions::size_text(max_size)));
    let pool = pool.as_ref().map(|pool| format!("in pool {pool}"));
    let parts: Vec<String> = limit.into_iter().chain(pool).collect();
    format!("enrolled {}", parts.join(", "))
}
