//! Checks of what processes have left behind: the proofs of exclusive work, the logs of services,
//! and exit statuses. These checks need not wait.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::{CheckContext, CheckResult};
use crate::plan::Work;
use crate::work::read_proof;

/// Checks that no process of exclusive work ran at the same time as another (I4). Each process
/// takes a lock at its start, and writes an overlap if the lock is taken.
pub fn exclusive_work_never_ran_twice(context: &CheckContext<'_>) -> CheckResult {
    let mut overlaps = BTreeMap::new();
    for item in context.acknowledged_items(|item| item.work == Work::ExclusiveService) {
        let proof = read_proof(&item);
        if !proof.overlaps.is_empty() {
            overlaps.insert(item.key, proof.overlaps);
        }
    }
    if !overlaps.is_empty() {
        bail!("two processes ran at once: {overlaps:?}");
    }
    Ok(())
}

pub fn nothing_panicked(context: &CheckContext<'_>) -> CheckResult {
    let panics = context.fleet.panic_lines()?;
    if !panics.is_empty() {
        bail!("{}", panics.join("\n"));
    }
    Ok(())
}

/// Checks that no service or agent ended with status 0 by itself. Without database or disk space a
/// process may give up, but with an error. A supervisor does not restart a process after status 0.
pub fn only_requested_ends_are_successful(context: &CheckContext<'_>) -> CheckResult {
    let exits = context.fleet.unexpected_exits.iter();
    let wrong_exits: Vec<String> = exits
        .filter(|exit| exit.status.code().is_none_or(|code| code == 0))
        .map(ToString::to_string)
        .collect();
    ensure!(wrong_exits.is_empty(), "{}", wrong_exits.join("; "));
    Ok(())
}
