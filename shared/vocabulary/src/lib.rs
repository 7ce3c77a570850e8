//! Types that all services share: identities, sizes, instants, and small closed lists on the wire.
//!
//! Nothing here decides, stores or communicates. A type belongs here only if at least two services
//! must agree exactly on its meaning. Amounts are integers (D6). Instants are RFC 3339 on the wire
//! and milliseconds in memory. Enumerations on the wire are open: a reader that meets an unknown
//! value holds and reports, and never ignores it.

pub mod exit;
pub mod ids;
pub mod invariant_finding;
pub mod launch;
pub mod orchestrator_data;
pub mod plural;
pub mod preemption_receipt;
pub mod quantity;
pub mod queue_data;
pub mod resources;
pub mod service_processor;
pub mod time;
pub mod unblock;
pub mod unreachable_policy;
pub mod wait_reason;

pub use exit::{Exit, ExitCause};
pub use ids::{AllocationId, BadName, NodeName, UserName, WorkId, WorkKind};
pub use launch::{ContainerForm, Launch, Program};
pub use orchestrator_data::Orchestrated;
pub use preemption_receipt::{Outcome, Receipt};
pub use queue_data::{Gang, Queued};
pub use resources::{Quantum, Size};
pub use service_processor::{Apart, Processor, Role};
pub use time::Timestamp;
pub use unblock::Unblock;
pub use unreachable_policy::WhenUnreachable;
pub use wait_reason::WaitReason;
