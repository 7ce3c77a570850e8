//! Applies changes of `allocations`, a publication of rm-scheduler: new containers, orders to
//! leave, and removals.
//!
//! A full update and an equivalent delta give the same containers. The allocations are not stored,
//! because the containers hold all that is needed of them.

use hayward_container_manager_domain::{AllocationStatus, Fact, Lifecycle};
use hayward_publication::{Batch, Cursor, Moment, Update};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, AllocationState};
use hayward_vocabulary::AllocationId;

use crate::ledger::Ledger;
use crate::model::{Container, Rows};

impl Ledger {
    /// Applies an update of the publication. New allocations create containers.
    pub(crate) fn apply_allocation_update(
        &mut self,
        update: Update<AllocationEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        batch.record_position(ALLOCATIONS, Cursor::parse(&update.cursor));
        self.placements.set_allocations_synced();
        self.update_unreachable(&update);
        // Removals are applied first, because they do not depend on the changes.
        let removed: Vec<String> = if update.full {
            let ids = self.containers.keys().map(AllocationId::as_str);
            let removed = ids.filter(|id| !update.changed.contains_key(*id));
            removed.map(str::to_owned).collect()
        } else {
            update.removed
        };
        for id in removed {
            self.apply_fact(
                &id,
                Fact::Allocation(AllocationStatus::Removed),
                moment,
                batch,
            );
            if self.is_on_lost_node(&id) {
                self.apply_fact(&id, Fact::NodeLost, moment, batch);
            }
        }
        for entry in update.changed.into_values() {
            if entry.state == AllocationState::Unknown {
                tracing::warn!(
                    allocation = %entry.id,
                    "the allocation has an unknown state and is ignored"
                );
                continue;
            }
            let status = allocation_status(&entry);
            if self.containers.contains_key(&entry.id) {
                self.apply_fact(entry.id.as_str(), Fact::Allocation(status), moment, batch);
            } else {
                let is_held = self.must_be_held(&entry);
                if let Some(container) = new_container(entry, status, is_held, moment) {
                    self.add_container(container, batch);
                }
            }
        }
    }

    /// Records which containers are on unreachable nodes.
    fn update_unreachable(&mut self, update: &Update<AllocationEntry>) {
        if update.full {
            self.unreachable.clear();
        }
        self.unreachable
            .retain(|id| !update.removed.iter().any(|removed| removed == id.as_str()));
        for entry in update.changed.values() {
            if entry.state == AllocationState::Unreachable {
                self.unreachable.insert(entry.id.clone());
            } else {
                self.unreachable.remove(&entry.id);
            }
        }
    }
}

fn allocation_status(entry: &AllocationEntry) -> AllocationStatus {
    match &entry.vacate {
        Some(vacate) if vacate.purge => AllocationStatus::Purged,
        Some(_) => AllocationStatus::Vacated,
        // The allocation has ended without an order to leave, so its container must end too.
        None if entry.state == AllocationState::Ended => AllocationStatus::Vacated,
        None => AllocationStatus::Granted,
    }
}

/// Creates the container of an allocation. Reservations and ended allocations have none.
fn new_container(
    entry: AllocationEntry,
    status: AllocationStatus,
    is_held: bool,
    moment: &Moment,
) -> Option<Container> {
    if entry.state == AllocationState::Ended {
        return None;
    }
    let launch = entry.launch?;
    let lifecycle = match status {
        AllocationStatus::Granted if is_held => Lifecycle::new_held(entry.incarnation),
        AllocationStatus::Granted => Lifecycle::new(entry.incarnation),
        status => Lifecycle::new_withdrawn(entry.incarnation, status),
    };
    Some(Container {
        id: entry.id,
        work: entry.work,
        kind: entry.kind,
        user: entry.user,
        node: entry.node,
        size: entry.size,
        exclusive: entry.exclusive,
        predecessor: entry.predecessor,
        request: entry.request,
        launch: (!lifecycle.has_ended()).then(|| launch.into()),
        epoch: moment.epoch,
        ordered_at: moment.now,
        lifecycle,
        archived_at: None,
    })
}
