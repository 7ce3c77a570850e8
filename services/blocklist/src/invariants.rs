//! Who asks the ledger how the invariants stand.

use hayward_publication::Handle;
use hayward_publication::invariants::Look;
use hayward_service::invariants::Watch;

use crate::command::Command;

pub fn watch(handle: &Handle<Command>) -> Watch {
    let look = Look {
        handle: handle.clone(),
        command: Command::Invariants,
    };
    Watch::new(crate::NAME, look)
}
