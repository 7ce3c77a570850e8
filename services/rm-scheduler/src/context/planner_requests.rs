//! The channel from rounds to the client that sends requests to external planners.

use std::sync::Arc;

use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_external_planner::PlannerRequest;
use tokio::sync::mpsc;

/// Capacity of the channel. Each pool has at most one request in the channel, and a policy has far
/// fewer pools.
const CHANNEL_CAPACITY: usize = 1_000;

/// A request with the planner that it is sent to.
pub struct OutgoingRequest {
    pub planner: PoolPlanner,
    pub request: Arc<PlannerRequest>,
}

/// The sending end of the channel, for rounds.
pub struct PlannerRequestSender(mpsc::Sender<OutgoingRequest>);

impl PlannerRequestSender {
    pub fn new() -> (Self, mpsc::Receiver<OutgoingRequest>) {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        (Self(sender), receiver)
    }

    /// Sends a request. If the channel is full, the request is dropped, and sent again after its
    /// timeout.
    pub fn send(&self, request: OutgoingRequest) {
        if self.0.try_send(request).is_err() {
            tracing::warn!("a request to an external planner could not be sent");
        }
    }
}
