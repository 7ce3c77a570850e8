//! Computes the state of open work that its user sees.

/// State of open work. The last two states end the work, and the caller then makes its state final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenWorkState {
    Waiting,
    Running,
    Stopping,
    /// The user cancelled the work, and no process is alive.
    Cancelled,
    /// No process runs and the scheduler will never serve it.
    Refused,
}

/// WorkFacts about the work, from which its state is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkFacts {
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

impl OpenWorkState {
    pub fn from_facts(facts: &WorkFacts) -> Self {
        match facts {
            WorkFacts {
                cancelled: true,
                alive: 0,
                ..
            } => Self::Cancelled,
            WorkFacts {
                cancelled: true, ..
            } => Self::Stopping,
            WorkFacts {
                running, leased, ..
            } if *running > 0 || *leased > 0 => Self::Running,
            WorkFacts {
                refused: true,
                alive: 0,
                ..
            } => Self::Refused,
            _ => Self::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_refused_only_while_it_has_no_process_and_no_lease() {
        let refused = WorkFacts {
            refused: true,
            ..WorkFacts::default()
        };
        assert_eq!(OpenWorkState::from_facts(&refused), OpenWorkState::Refused);
        assert_eq!(
            OpenWorkState::from_facts(&WorkFacts {
                alive: 1,
                ..refused
            }),
            OpenWorkState::Waiting
        );
        assert_eq!(
            OpenWorkState::from_facts(&WorkFacts {
                leased: 1,
                ..refused
            }),
            OpenWorkState::Running
        );
    }

    #[test]
    fn cancelled_work_ends_with_its_last_process() {
        let cancelled = WorkFacts {
            cancelled: true,
            alive: 1,
            running: 1,
            ..WorkFacts::default()
        };
        assert_eq!(
            OpenWorkState::from_facts(&cancelled),
            OpenWorkState::Stopping
        );
        assert_eq!(
            OpenWorkState::from_facts(&WorkFacts {
                alive: 0,
                running: 0,
                ..cancelled
            }),
            OpenWorkState::Cancelled
        );
    }
}
