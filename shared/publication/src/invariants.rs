//! Evaluates the invariants of a publishing service with a command to its ledger. The findings
//! belong to one revision. A replica that does not lead has no findings.

use std::pin::Pin;
use std::time::Instant;

use hayward_service::http::limits::open_descriptors;
use hayward_service::http::problem::Problem;
use hayward_service::invariants::{Evaluation, InvariantSource, TimedFinding, timed_finding};
use hayward_vocabulary::invariant_finding::{Bound, check_bounds};

use crate::{Handle, Reply};

/// Findings of a ledger.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub findings: Vec<TimedFinding>,
    /// Bounded structures, in addition to the queue of commands (I25).
    pub bounds: Vec<Bound>,
}

/// Evaluates the ledger behind `handle`.
pub struct LedgerSource<C> {
    pub handle: Handle<C>,
    pub command: fn(Reply<Findings>) -> C,
}

impl<C: Send + 'static> InvariantSource for LedgerSource<C> {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        Box::pin(async {
            let (waiting, limit) = self.handle.backlog();
            let queue = queue_bound(waiting, limit);
            let response = self.handle.execute(self.command).await?;
            let mut report = response.value;
            report.bounds.push(queue);
            report.bounds.extend(descriptor_bound(open_descriptors()));
            report
                .findings
                .push(timed_finding(|| check_bounds(&report.bounds)));
            let started = Instant::now();
            let audit_finding = self.handle.auditor().check().await;
            report.findings.push(TimedFinding {
                finding: audit_finding,
                took_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            });
            Ok(Evaluation {
                findings: report.findings,
                revision: response.revision,
            })
        })
    }
}

/// Returns the bound of the queue. It is 90 % of the limit at which commands are refused, so that a
/// violation is reported before that.
fn queue_bound(waiting: usize, limit: usize) -> Bound {
    let to_u64 = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Bound {
        name: "commands that wait to be committed",
        current: to_u64(waiting),
        limit: to_u64(limit - limit / 10),
    }
}

/// Returns the bound of open file descriptors, 90 % of the limit of the process. The kernel counts
/// them, so that leaks are included.
fn descriptor_bound(open: Option<(u64, u64)>) -> Option<Bound> {
    let (current, limit) = open?;
    Some(Bound {
        name: "connections and files that are open",
        current,
        limit: limit - limit / 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_descriptors_are_counted_by_the_kernel() {
        let (before, limit) = open_descriptors().unwrap();
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null")).collect();
        let (now, _) = open_descriptors().unwrap();
        assert!(files.iter().all(Result::is_ok));
        // Other threads of this process may close some descriptors meanwhile.
        assert!(
            now >= before.saturating_add(10) && now < limit,
            "{before} {now}"
        );
        let holds =
            |current| check_bounds(&[descriptor_bound(Some((current, 1_000))).unwrap()]).holds();
        assert!(holds(900) && !holds(901));
        assert_eq!(descriptor_bound(None), None);
    }

    #[test]
    fn a_nearly_full_queue_is_reported() {
        let holds = |waiting| check_bounds(&[queue_bound(waiting, 100)]).holds();
        assert!(holds(0) && holds(90));
        assert!(!holds(91) && !holds(100));
    }
}
