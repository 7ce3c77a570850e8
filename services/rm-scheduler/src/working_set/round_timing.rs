//! Number, time and duration of the last round, and whether another round is needed.

pub(crate) struct RoundTiming {
    /// Number of the last round.
    round: u64,
    /// Monotonic milliseconds of the last round. `None` before the first round of this term.
    last_round_ms: Option<u64>,
    /// Milliseconds that the last round took.
    cost_ms: u64,
    /// True if something changed that a plan could depend on.
    needs_round: bool,
    /// Neighbour that has been silent for too long. `None` if there is none.
    stale_neighbour: Option<&'static str>,
}

impl RoundTiming {
    pub fn new(round: u64) -> Self {
        Self {
            round,
            last_round_ms: None,
            cost_ms: 0,
            needs_round: true,
            stale_neighbour: None,
        }
    }

    pub fn round(&self) -> u64 {
        self.round
    }

    pub fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    pub fn needs_round(&self) -> bool {
        self.needs_round
    }

    pub fn request_round(&mut self) {
        self.needs_round = true;
    }

    pub fn request_round_if(&mut self, changed: bool) {
        self.needs_round |= changed;
    }

    /// Marks that no round is needed. The round that begins now includes all changes so far.
    pub fn clear_request(&mut self) {
        self.needs_round = false;
    }

    pub fn since_last_round_ms(&self, now_ms: u64) -> u64 {
        self.last_round_ms.map_or(u64::MAX, |at| now_ms - at)
    }

    pub fn set_last_round(&mut self, now_ms: u64) {
        self.last_round_ms = Some(now_ms);
    }

    pub fn cost_ms(&self) -> u64 {
        self.cost_ms
    }

    pub fn set_cost_ms(&mut self, cost_ms: u64) {
        self.cost_ms = cost_ms;
    }

    pub fn stale_neighbour(&self) -> Option<&'static str> {
        self.stale_neighbour
    }

    pub fn set_stale_neighbour(&mut self, neighbour: Option<&'static str>) {
        self.stale_neighbour = neighbour;
    }
}
