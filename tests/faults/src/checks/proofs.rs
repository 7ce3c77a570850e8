//! Checks of what processes have written. They need no waiting.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::{Outcome, Scene};
use crate::plan::Work;
use crate::work::proof;

/// Checks that each process of exclusive work found its lock free (I4).
pub fn exclusive_work_never_ran_twice(scene: &Scene<'_>) -> Outcome {
    let mut twice = BTreeMap::new();
    for item in scene.items(|it| it.work == Work::ExclusiveService) {
        let proof = proof(&item);
        if !proof.twice.is_empty() {
            twice.insert(item.key, proof.twice);
        }
    }
    if !twice.is_empty() {
        bail!("two at once: {twice:?}");
    }
    Ok(())
}

pub fn nothing_panicked(scene: &Scene<'_>) -> Outcome {
    let panics = scene.fleet.panics()?;
    if !panics.is_empty() {
        bail!("{}", panics.join("\n"));
    }
    Ok(())
}

/// Checks that no process ended with status 0 by itself. A process without database or disk space
/// may give up, but a supervisor would not restart it after status 0.
pub fn only_requested_ends_are_successful(scene: &Scene<'_>) -> Outcome {
    let ends = scene.fleet.own_ends.iter();
    let wrong: Vec<String> = ends
        .filter(|end| end.status.code().is_none_or(|code| code == 0))
        .map(ToString::to_string)
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}
