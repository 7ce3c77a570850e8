//! Looks at the invariants of a publishing service: a question to its working set like any other,
//! so what it sees is of one revision, and a replica that does not lead sees nothing.

use std::pin::Pin;
use std::time::Instant;

use hayward_service::invariants::{Looks, Seen, Timed, timed};
use hayward_service::problem::Problem;
use hayward_vocabulary::invariant::{Bound, bounded};

use crate::{Handle, Reply};

/// What a ledger says of itself.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub findings: Vec<Timed>,
    /// For I25, beside the commands that wait.
    pub bounds: Vec<Bound>,
}

/// Asks the ledger behind `handle`.
pub struct Look<C> {
    pub handle: Handle<C>,
    pub command: fn(Reply<Findings>) -> C,
}

impl<C: Send + 'static> Looks for Look<C> {
    fn look(&self) -> Pin<Box<dyn Future<Output = Result<Seen, Problem>> + Send + '_>> {
        Box::pin(async {
            let waiting = waiting(self.handle.backlog());
            let answer = self.handle.ask(self.command).await?;
            let mut report = answer.value;
            report.bounds.push(waiting);
            report.findings.push(timed(|| bounded(&report.bounds)));
            let started = Instant::now();
            let audited = self.handle.auditor().look().await;
            report.findings.push(Timed {
                finding: audited,
                took_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            });
            Ok(Seen {
                findings: report.findings,
                revision: answer.revision,
            })
        })
    }
}

/// At the limit itself commands are refused; somebody should know a little earlier.
fn waiting((waiting, most): (usize, usize)) -> Bound {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Bound {
        what: "commands that wait to be committed",
        has: number(waiting),
        most: number(most - most / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i25_a_queue_that_is_nearly_full_is_told() {
        let holds = |waits| bounded(&[waiting((waits, 100))]).holds();
        assert!(holds(0) && holds(90));
        assert!(!holds(91) && !holds(100));
    }
}
