//! Watch that asks the ledger to check its invariants.

use hayward_publication::Handle;
use hayward_publication::invariants::Look;
use hayward_service::invariants::Watch;

use crate::command::Command;

pub fn watch(handle: &Handle<Command>) -> Watch {
    let look = Look {
        handle: handle.clone(),
        command: Command::CheckInvariants,
    };
    Watch::new(crate::NAME, look)
}
