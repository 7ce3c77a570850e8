//! One health, three spellings: as judged, as published, as stored.

use hayward_node_status_api as api;
use hayward_node_status_domain::Health;

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
