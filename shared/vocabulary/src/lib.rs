//! The words all services share, and nothing else: identities, sizes, instants, and the small
//! closed lists that travel down and up the ladder.
//!
//! Nothing here decides, stores or talks. A type belongs here only when at least two services must
//! mean exactly the same by it. Amounts are integers (decision D6), instants are RFC 3339 on the
//! wire and milliseconds in memory (decision D13), enumerations that travel are open: a reader that
//! meets an unknown value holds and reports, it never ignores.

pub mod counted;
pub mod exit;
pub mod ids;
pub mod invariant;
pub mod launch;
pub mod orchestrated;
pub mod processor;
pub mod queued;
pub mod receipt;
pub mod resources;
pub mod time;
pub mod unblock;
pub mod unreachable;

pub use exit::{Exit, ExitCause};
pub use ids::{AllocationId, BadName, NodeName, UserName, WorkId, WorkKind};
pub use launch::{ContainerForm, Launch, Program};
pub use orchestrated::Orchestrated;
pub use processor::{Apart, Processor, Role};
pub use queued::{Gang, Queued};
pub use receipt::{Outcome, Receipt};
pub use resources::{Quantum, Size};
pub use time::Timestamp;
pub use unblock::Unblock;
pub use unreachable::WhenUnreachable;
