//! Conversions of health, drain states and sizes to their published and stored forms.

use std::fmt::Write as _;

use hayward_node_status_api as api;
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::Health;
use hayward_node_status_domain::drain::DrainStage;
use hayward_vocabulary::Size;

pub fn to_api_health(health: Health) -> api::Health {
    match health {
        Health::Healthy => api::Health::Healthy,
        Health::Quiesced => api::Health::Quiesced,
        Health::Suspect => api::Health::Suspect,
        Health::Lost => api::Health::Lost,
    }
}

pub fn health_name(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Quiesced => "quiesced",
        Health::Suspect => "suspect",
        Health::Lost => "lost",
    }
}

/// Parses a stored health. The column allows only the four names; any other text counts as suspect.
pub fn parse_health(text: &str) -> Health {
    match text {
        "healthy" => Health::Healthy,
        "quiesced" => Health::Quiesced,
        "lost" => Health::Lost,
        _ => Health::Suspect,
    }
}

/// Parses the health of a history entry. An old entry may contain an unknown value.
pub fn parse_published_health(text: &str) -> api::Health {
    match text {
        "healthy" => api::Health::Healthy,
        "quiesced" => api::Health::Quiesced,
        "lost" => api::Health::Lost,
        "suspect" => api::Health::Suspect,
        _ => api::Health::Unknown,
    }
}

pub fn to_api_drain_state(stage: DrainStage) -> DrainState {
    match stage {
        DrainStage::Draining => DrainState::Draining,
        DrainStage::Paused => DrainState::Paused,
        DrainStage::Drained => DrainState::Drained,
        DrainStage::Failed => DrainState::Failed,
    }
}

pub fn to_drain_stage(state: DrainState) -> DrainStage {
    match state {
        DrainState::Paused => DrainStage::Paused,
        DrainState::Drained => DrainStage::Drained,
        DrainState::Failed => DrainStage::Failed,
        DrainState::Draining | DrainState::Cancelled | DrainState::Unknown => DrainStage::Draining,
    }
}

pub fn drain_state_name(state: DrainState) -> &'static str {
    match state {
        DrainState::Draining | DrainState::Unknown => "draining",
        DrainState::Paused => "paused",
        DrainState::Drained => "drained",
        DrainState::Failed => "failed",
        DrainState::Cancelled => "cancelled",
    }
}

/// Parses a stored drain state. The column allows only the five names; any other text counts as
/// draining.
pub fn parse_drain_state(text: &str) -> DrainState {
    match text {
        "paused" => DrainState::Paused,
        "drained" => DrainState::Drained,
        "failed" => DrainState::Failed,
        "cancelled" => DrainState::Cancelled,
        _ => DrainState::Draining,
    }
}

/// Formats a size, such as `4096 MiB, 2500 milli cpu`.
pub fn size_text(size: &Size) -> String {
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
