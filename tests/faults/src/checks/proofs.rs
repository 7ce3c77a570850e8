//! Checks of what processes have written. They need no waiting.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::{CheckContext, Outcome};
use crate::plan::Work;
use crate::work::read_proof;

/// Checks that each process of exclusive work found its lock free (I4).
pub fn exclusive_work_never_ran_twice(context: &CheckContext<'_>) -> Outcome {
    let mut overlaps = BTreeMap::new();
    for item in context.acknowledged_items(|it| it.work == Work::ExclusiveService) {
        let proof = read_proof(&item);
        if !proof.overlaps.is_empty() {
            overlaps.insert(item.key, proof.overlaps);
        }
    }
    if !overlaps.is_empty() {
        bail!("two at once: {overlaps:?}");
    }
    Ok(())
}

pub fn nothing_panicked(context: &CheckContext<'_>) -> Outcome {
    let panics = context.fleet.panic_lines()?;
    if !panics.is_empty() {
        bail!("{}", panics.join("\n"));
    }
    Ok(())
}

/// Checks that no process ended with status 0 by itself. A process without database or disk space
/// may give up, but a supervisor would not restart it after status 0.
pub fn only_requested_ends_are_successful(context: &CheckContext<'_>) -> Outcome {
    let exits = context.fleet.unexpected_exits.iter();
    let wrong_exits: Vec<String> = exits
        .filter(|exit| exit.status.code().is_none_or(|code| code == 0))
        .map(ToString::to_string)
        .collect();
    ensure!(wrong_exits.is_empty(), "{}", wrong_exits.join("; "));
    Ok(())
}
