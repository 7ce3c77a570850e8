//! The state of a container according to the engine.

use std::collections::HashMap;

use bollard::models::{ContainerInspectResponse, ContainerState, ContainerStateStatusEnum};
use hayward_vocabulary::Timestamp;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

#[derive(Debug)]
pub struct Inspection {
    pub id: String,
    pub labels: HashMap<String, String>,
    pub stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The container exists, but its program was never started.
    Created,
    /// The program runs. `pid` is 0 if the engine does not report it.
    Running {
        pid: u32,
        at: Option<Timestamp>,
    },
    Ended(ContainerEnd),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEnd {
    pub code: i32,
    pub out_of_memory: bool,
    /// Error message of the engine, if any.
    pub error: Option<String>,
    pub at: Option<Timestamp>,
}

impl Inspection {
    pub fn from_response(response: ContainerInspectResponse) -> Option<Self> {
        Some(Self {
            id: response.id?,
            labels: response
                .config
                .and_then(|config| config.labels)
                .unwrap_or_default(),
            stage: stage_from_state(response.state?),
        })
    }
}

fn stage_from_state(state: ContainerState) -> Stage {
    let started_at = state.started_at.as_deref().and_then(parse_timestamp);
    match state.status {
        Some(ContainerStateStatusEnum::CREATED) => Stage::Created,
        Some(
            ContainerStateStatusEnum::RUNNING
            | ContainerStateStatusEnum::PAUSED
            | ContainerStateStatusEnum::RESTARTING,
        ) => Stage::Running {
            pid: state.pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0),
            at: started_at,
        },
        // The container is being removed or dead, and has never run.
        _ if started_at.is_none() => Stage::Created,
        _ => Stage::Ended(ContainerEnd {
            code: state
                .exit_code
                .and_then(|code| code.try_into().ok())
                .unwrap_or(-1),
            out_of_memory: state.oom_killed.unwrap_or(false),
            error: state.error.filter(|error| !error.is_empty()),
            at: state.finished_at.as_deref().and_then(parse_timestamp),
        }),
    }
}

/// Parses a timestamp. Returns `None` for the year 1, which means never.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    let timestamp = Timestamp::deserialize(text).ok()?;
    (timestamp.unix_ms() > 0).then_some(timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_stage(state: serde_json::Value) -> Stage {
        stage_from_state(serde_json::from_value(state).unwrap())
    }

    #[test]
    fn a_container_that_never_started_has_not_ended() {
        let never = "0001-01-01T00:00:00Z";
        let created = serde_json::json!({"Status": "created", "StartedAt": never, "ExitCode": 127});
        assert_eq!(read_stage(created), Stage::Created);
        let dead = serde_json::json!({"Status": "dead", "StartedAt": never});
        assert_eq!(read_stage(dead), Stage::Created);
    }

    #[test]
    fn timestamps_are_parsed_with_all_digits() {
        let timestamp = parse_timestamp("2026-11-21T21:00:00.123456789Z").unwrap();
        assert_eq!(timestamp.unix_ms() % 1000, 123);
        assert!(parse_timestamp("soon").is_none());
    }

    #[test]
    fn an_end_has_its_exit_code_and_the_oom_flag() {
        let exited = serde_json::json!({
            "Status": "exited", "StartedAt": "2026-11-21T21:00:00Z", "ExitCode": 137,
            "OOMKilled": true, "Error": "", "FinishedAt": "2026-11-21T21:00:01Z",
        });
        let Stage::Ended(end) = read_stage(exited) else {
            panic!("the container has not ended");
        };
        assert!(end.out_of_memory && end.code == 137 && end.error.is_none());
    }
}
