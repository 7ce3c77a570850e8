//! Decisions of node-status, without clock or I/O.
//!
//! * [`judge`] judges one node by its heartbeats.
//! * [`loss_brake`] prevents losses while many nodes of a pool have lost contact (B1).
//! * [`duplicate_agents`] detects two agents that report as one node.
//! * [`flapping`] counts repeated losses.
//! * [`drain`] judges the progress of a drain.
//! * [`pool_minimum`] checks whether one more node of a pool may be drained.
//! * [`claimed_size`] limits the resources a node may claim.
//! * [`lease_forecast`] forecasts how long exclusive work may still run.
//! * [`heartbeat_period`] adapts the period to the size of the fleet.
//!
//! Times are milliseconds of a monotonic clock of the caller. An outage of this service therefore
//! does not count as silence of a node.

pub mod claimed_size;
pub mod drain;
pub mod duplicate_agents;
pub mod flapping;
pub mod format;
pub mod health;
pub mod heartbeat_period;
pub mod lease_forecast;
pub mod loss_brake;
pub mod overdue_judgement;
pub mod pool_minimum;

pub use duplicate_agents::AgentInstances;
pub use flapping::FlapCounter;
pub use health::{Due, Health, Judgement, Limits, Next, NodeFacts, judge};
pub use loss_brake::{Brake, Pool};
