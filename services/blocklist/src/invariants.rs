//! Watch that asks the ledger to check its invariants.

use hayward_publication::Handle;
use hayward_publication::invariants::LedgerSource;
use hayward_service::invariants::InvariantMonitor;

use crate::command::Command;

pub fn watch(handle: &Handle<Command>) -> InvariantMonitor {
    let look = LedgerSource {
        handle: handle.clone(),
        command: Command::CheckInvariants,
    };
    InvariantMonitor::new(crate::NAME, look)
}
