//! Grants of gangs. A gang starts as a whole or not at all: if one of its grants is dropped after
//! planning, all are dropped, and the gang is planned again (I13).

use std::collections::BTreeMap;

use hayward_vocabulary::{UserName, WorkId};

use super::plan::Grant;
use crate::input::snapshot::Snapshot;

/// Maximum number of grants of one round. A commit of more might outlast the lease of the leader.
/// No gang can be larger.
pub const MAX_GRANTS_PER_ROUND: usize = 10_000;

/// User, application and gang.
type GangKey = (UserName, String, String);

/// Number of grants of each gang in a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GangGrants(BTreeMap<GangKey, usize>);

impl GangGrants {
    pub fn new(snapshot: &Snapshot, grants: &[Grant]) -> Self {
        let mut counts: BTreeMap<GangKey, usize> = BTreeMap::new();
        let gangs = grants
            .iter()
            .filter_map(|grant| gang_of(snapshot, &grant.work));
        for gang in gangs {
            *counts.entry(gang).or_default() += 1;
        }
        Self(counts)
    }

    /// Drops the remaining grants of gangs that lost a grant. Returns true if any was dropped.
    pub fn drop_incomplete(&self, snapshot: &Snapshot, grants: &mut Vec<Grant>) -> bool {
        let remaining = Self::new(snapshot, grants);
        let count = grants.len();
        let is_complete = |gang: &GangKey| self.0.get(gang) == remaining.0.get(gang);
        grants.retain(|grant| gang_of(snapshot, &grant.work).is_none_or(|gang| is_complete(&gang)));
        grants.len() < count
    }
}

/// Limits the grants to the first `max`, and drops gangs that are then incomplete. Returns true if
/// any grant was dropped. Grants are in serve order, so the remaining ones do not depend on the
/// dropped ones.
pub fn limit_grants(snapshot: &Snapshot, grants: &mut Vec<Grant>, max: usize) -> bool {
    if grants.len() <= max {
        return false;
    }
    let planned = GangGrants::new(snapshot, grants);
    grants.truncate(max);
    planned.drop_incomplete(snapshot, grants);
    true
}

/// Returns the gang that this work belongs to, or `None` if it is in no gang.
fn gang_of(snapshot: &Snapshot, work: &WorkId) -> Option<GangKey> {
    let demand = snapshot.demand.get(work)?;
    let queued = demand.queued.as_deref()?;
    let gang = queued.gang.as_ref().filter(|gang| gang.min > 0)?;
    let gang = gang.name.clone();
    let application = queued.application.clone();
    let application = application.unwrap_or_else(|| work.to_string());
    Some((demand.user.clone(), application, gang))
}
