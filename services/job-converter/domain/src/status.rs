//! Computes the state of a piece of work that its user sees.

/// States that are not final. Final states are decided where work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Running,
    Stopping,
    /// The work is cancelled and no process is alive.
    Gone,
    /// No process runs and the scheduler will never serve it.
    Refused,
}

/// Facts about the work, from which [`status`] computes its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the user cancelled the work.
    pub cancelled: bool,
    /// Number of processes that have not ended.
    pub alive: usize,
    /// Number of processes that run. For a reservation, the number of held nodes.
    pub running: usize,
    /// Number of leased tasks. A lease shows that a process runs before the scheduler reports it.
    pub leased: u64,
    /// Whether the scheduler will never serve the work.
    pub refused: bool,
}

pub fn status(facts: &Facts) -> State {
    match facts {
        Facts {
            cancelled: true,
            alive: 0,
            ..
        } => State::Gone,
        Facts {
            cancelled: true, ..
        } => State::Stopping,
        Facts {
            running, leased, ..
        } if *running > 0 || *leased > 0 => State::Running,
        Facts {
            refused: true,
            alive: 0,
            ..
        } => State::Refused,
        _ => State::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_only_while_nothing_is_alive() {
        let refused = Facts {
            refused: true,
            ..Facts::default()
        };
        assert_eq!(status(&refused), State::Refused);
        assert_eq!(
            status(&Facts {
                alive: 1,
                ..refused
            }),
            State::Waiting
        );
        assert_eq!(
            status(&Facts {
                leased: 1,
                ..refused
            }),
            State::Running
        );
    }

    #[test]
    fn cancelled_work_ends_with_its_last_process() {
        let cancelled = Facts {
            cancelled: true,
            alive: 1,
            running: 1,
            ..Facts::default()
        };
        assert_eq!(status(&cancelled), State::Stopping);
        assert_eq!(
            status(&Facts {
                alive: 0,
                running: 0,
                ..cancelled
            }),
            State::Gone
        );
    }
}
