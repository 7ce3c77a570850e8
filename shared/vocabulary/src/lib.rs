//! Types that all services share: identities, sizes, instants, and small closed lists on the wire.
//!
//! Nothing here decides, stores or communicates. A type belongs here only if at least two services
//! must agree exactly on its meaning. Amounts are integers (D6). Instants are RFC 3339 on the wire
//! and milliseconds in memory. Enumerations on the wire are open: a reader that meets an unknown
//! value holds and reports, and never ignores it.

pub mod exit;
pub mod ids;
pub mod invariant;
pub mod launch;
pub mod orchestrated;
pub mod plural;
pub mod processor;
pub mod quantity;
pub mod queued;
pub mod receipt;
pub mod resources;
pub mod time;
pub mod unblock;
pub mod unreachable_policy;
pub mod wait_reason;

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
pub use unreachable_policy::WhenUnreachable;
pub use wait_reason::WaitReason;
