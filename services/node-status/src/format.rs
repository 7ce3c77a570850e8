//! One health, three spellings: as judged, as published, as stored. The same for drains, and
//! amounts as people read them.

use std::fmt::Write as _;

use hayward_node_status_api as api;
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::Health;
use hayward_node_status_domain::drain::Stage;
use hayward_vocabulary::Size;

pub fn published(health: Health) -> api::Health {
    match health {
        Health::Healthy => api::Health::Healthy,
        Health::Quiesced => api::Health::Quiesced,
        Health::Suspect => api::Health::Suspect,
        Health::Lost => api::Health::Lost,
    }
}

pub fn stored(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Quiesced => "quiesced",
        Health::Suspect => "suspect",
        Health::Lost => "lost",
    }
}

/// The column's own check leaves no fifth word; a suspect is the careful reading of one.
pub fn read(text: &str) -> Health {
    match text {
        "healthy" => Health::Healthy,
        "quiesced" => Health::Quiesced,
        "lost" => Health::Lost,
        _ => Health::Suspect,
    }
}

/// A change in the history may be older than the words of today.
pub fn read_published(text: &str) -> api::Health {
    match text {
        "healthy" => api::Health::Healthy,
        "quiesced" => api::Health::Quiesced,
        "lost" => api::Health::Lost,
        "suspect" => api::Health::Suspect,
        _ => api::Health::Unknown,
    }
}

pub fn drain_state(stage: Stage) -> DrainState {
    match stage {
        Stage::Draining => DrainState::Draining,
        Stage::Paused => DrainState::Paused,
        Stage::Drained => DrainState::Drained,
        Stage::Failed => DrainState::Failed,
    }
}

pub fn drain_stage(state: DrainState) -> Stage {
    match state {
        DrainState::Paused => Stage::Paused,
        DrainState::Drained => Stage::Drained,
        DrainState::Failed => Stage::Failed,
        DrainState::Draining | DrainState::Cancelled | DrainState::Unknown => Stage::Draining,
    }
}

pub fn stored_drain(state: DrainState) -> &'static str {
    match state {
        DrainState::Draining | DrainState::Unknown => "draining",
        DrainState::Paused => "paused",
        DrainState::Drained => "drained",
        DrainState::Failed => "failed",
        DrainState::Cancelled => "cancelled",
    }
}

/// The column's own check leaves no sixth word.
pub fn read_drain(text: &str) -> DrainState {
    match text {
        "paused" => DrainState::Paused,
        "drained" => DrainState::Drained,
        "failed" => DrainState::Failed,
        "cancelled" => DrainState::Cancelled,
        _ => DrainState::Draining,
    }
}

/// `4096 MiB, 2500 milli cpu`: whole units, so that no two sizes read the same.
pub fn size(size: &Size) -> String {
    let mib = size.memory_bytes >> 20;
    let mut text = format!("{mib} MiB, {} milli cpu", size.cpu_milli);
    if size.gpu_milli > 0 {
        let _ = write!(text, ", {} milli gpu", size.gpu_milli);
    }
    for (name, amount) in &size.extras {
        let _ = write!(text, ", {amount} {name}");
    }
    text
}
