//! The channel from rounds to the client that sends questions to external planners.

use std::sync::Arc;

use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_external_planner::PlannerRequest;
use tokio::sync::mpsc;

/// Capacity of the channel. Each pool has at most one question in it, and there are fewer pools.
const MAX_WAITING: usize = 1_000;

pub struct Question {
    pub planner: PoolPlanner,
    pub ask: Arc<PlannerRequest>,
}

/// The sending end of the channel, for rounds.
pub struct Questions(mpsc::Sender<Question>);

impl Questions {
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (Self(sender), receiver)
    }

    /// Sends a question. A question that does not fit is asked again after its timeout.
    pub fn send(&self, question: Question) {
        if self.0.try_send(question).is_err() {
            tracing::warn!("a question to an external planner could not be sent");
        }
    }
}
