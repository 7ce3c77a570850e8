//! What processes have written, which needs no waiting for.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::{Outcome, Scene};
use crate::plan::Work;
use crate::work::proof;

/// I4: each process of exclusive work found its lock free, whatever was done to the fleet.
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

/// A process may give up where it has no database or no room, and then says so by its status: who
/// supervises it would leave alone what ended well.
pub fn nothing_ended_well_that_was_not_asked_to(scene: &Scene<'_>) -> Outcome {
    let ends = scene.fleet.own_ends.iter();
    let wrong: Vec<String> = ends
        .filter(|end| end.status.code().is_none_or(|code| code == 0))
        .map(ToString::to_string)
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}
