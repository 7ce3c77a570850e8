//! Applies changes of `allocations`: new containers, orders to leave, and removals.
//!
//! A full answer and an equivalent delta give the same containers. The followed map is not stored,
//! because the containers hold all that matters.

use hayward_container_manager_domain::{AllocationStatus, Fact, Life};
use hayward_publication::{Batch, Cursor, Moment, Update};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, AllocationState};
use hayward_vocabulary::AllocationId;

use crate::ledger::Ledger;
use crate::model::{Container, Rows};

impl Ledger {
    pub(crate) fn absorb_allocations(
        &mut self,
        update: Update<AllocationEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        batch.followed(ALLOCATIONS, Cursor::parse(&update.cursor));
        self.placements.allocations_synced();
        self.update_unreachable(&update);
        // Removals first: they do not depend on the changes.
        let gone: Vec<String> = if update.full {
            let known = self.containers.keys().map(AllocationId::as_str);
            let gone = known.filter(|id| !update.changed.contains_key(*id));
            gone.map(str::to_owned).collect()
        } else {
            update.removed
        };
        for id in gone {
            self.apply_fact(&id, Fact::Allocation(AllocationStatus::Gone), moment, batch);
            if self.is_on_lost_node(&id) {
                self.apply_fact(&id, Fact::NodeLost, moment, batch);
            }
        }
        for entry in update.changed.into_values() {
            if entry.state == AllocationState::Unknown {
                tracing::warn!(allocation = %entry.id, "an unknown state is ignored");
                continue;
            }
            let status = status(&entry);
            if self.containers.contains_key(&entry.id) {
                self.apply_fact(entry.id.as_str(), Fact::Allocation(status), moment, batch);
            } else {
                let held = self.must_be_held(&entry);
                if let Some(container) = new_container(entry, status, held, moment) {
                    self.add(container, batch);
                }
            }
        }
    }
}

impl Ledger {
    fn update_unreachable(&mut self, update: &Update<AllocationEntry>) {
        if update.full {
            self.unreachable.clear();
        }
        self.unreachable
            .retain(|id| !update.removed.iter().any(|gone| gone == id.as_str()));
        for entry in update.changed.values() {
            if entry.state == AllocationState::Unreachable {
                self.unreachable.insert(entry.id.clone());
            } else {
                self.unreachable.remove(&entry.id);
            }
        }
    }
}

fn status(entry: &AllocationEntry) -> AllocationStatus {
    match &entry.vacate {
        Some(vacate) if vacate.purge => AllocationStatus::Purged,
        Some(_) => AllocationStatus::Leaving,
        // It ended in rm-scheduler without an order to leave, so it must end here too.
        None if entry.state == AllocationState::Ended => AllocationStatus::Leaving,
        None => AllocationStatus::Wanted,
    }
}

/// The container of an allocation. Reservations and ended allocations have none.
fn new_container(
    entry: AllocationEntry,
    status: AllocationStatus,
    held: bool,
    moment: &Moment,
) -> Option<Container> {
    if entry.state == AllocationState::Ended {
        return None;
    }
    let launch = entry.launch?;
    let life = match status {
        AllocationStatus::Wanted if held => Life::held(entry.incarnation),
        AllocationStatus::Wanted => Life::ordered(entry.incarnation),
        other => Life::never_started(entry.incarnation, other),
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
        launch: (!life.has_ended()).then(|| launch.into()),
        epoch: moment.epoch,
        ordered_at: moment.now,
        life,
        buried_at: None,
    })
}
