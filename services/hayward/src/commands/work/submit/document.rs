//! A submission as a file: the document of the API in YAML or JSON, with its kind.
//!
//! An unknown field is an error with its name and place. Otherwise a misspelled limit would
//! silently get its default.

use anyhow::{Context as _, anyhow, bail};
use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    Job,
    Service,
    Reservation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Job(Box<JobSubmission>),
    Service(Box<ServiceSubmission>),
    Reservation(ReservationSubmission),
}

impl Document {
    /// Parses YAML, which includes JSON. The kind is `default_kind` unless the text names one.
    pub fn read(text: &str, default_kind: DocumentKind) -> anyhow::Result<Self> {
        let mut value: Value = parse_yaml(text)?;
        let Some(fields) = value.as_object_mut() else {
            bail!("a submission has fields, as in `command: [\"echo\", \"hello\"]`");
        };
        let kind = match fields.remove("kind") {
            None => default_kind,
            Some(Value::String(word)) if word == "job" => DocumentKind::Job,
            Some(Value::String(word)) if word == "service" => DocumentKind::Service,
            Some(Value::String(word)) if word == "reservation" => DocumentKind::Reservation,
            Some(other) => bail!("kind: {other} is not job, service or reservation"),
        };
        Ok(match kind {
            DocumentKind::Job => Self::Job(parse_value(value)?),
            DocumentKind::Service => Self::Service(parse_value(value)?),
            DocumentKind::Reservation => Self::Reservation(parse_value(value)?),
        })
    }
}

/// Parses YAML and refuses duplicate keys, because one of their values would be lost silently.
pub fn parse_yaml<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    // The generic value refuses duplicate keys. The type itself may accept them.
    let _unique: yaml_serde::Value = yaml_serde::from_str(text).context("invalid YAML")?;
    yaml_serde::from_str(text).context("invalid YAML")
}

/// Converts a document to a type, or reports the place that does not fit.
pub fn parse_value<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if path == "." {
            anyhow!("{inner}")
        } else {
            anyhow!("{path}: {inner}")
        }
    })
}

#[cfg(test)]
mod tests {
    use hayward_job_converter_api::submission::Tasks;

    use super::*;

    #[test]
    fn yaml_and_json_give_the_same_document() {
        let yaml_text = "name: hash\ncommand: [sha256sum, --]\ntasks:\n  arguments: [[a], [b]]\n\
                    size:\n  memory_bytes: 1024\n";
        let json_text = r#"{"name": "hash", "command": ["sha256sum", "--"], "kind": "job",
            "tasks": {"arguments": [["a"], ["b"]]}, "size": {"memory_bytes": 1024}}"#;
        let parsed = Document::read(yaml_text, DocumentKind::Job).unwrap();
        assert_eq!(
            parsed,
            Document::read(json_text, DocumentKind::Service).unwrap()
        );
        let Document::Job(job) = parsed else {
            panic!("a job")
        };
        assert_eq!(
            job.tasks,
            Tasks::Arguments(vec![vec!["a".into()], vec!["b".into()]])
        );
    }

    #[test]
    fn the_kind_decides_the_known_fields() {
        let service = "kind: service\ncommand: [sleep, '9']\ninstances: 3\n";
        assert!(matches!(
            Document::read(service, DocumentKind::Job),
            Ok(Document::Service(_))
        ));
        let reservation = Document::read("kind: reservation\n", DocumentKind::Job);
        assert!(matches!(reservation, Ok(Document::Reservation(_))));
        let fault = Document::read("kind: batch\n", DocumentKind::Job)
            .unwrap_err()
            .to_string();
        assert_eq!(fault, "kind: \"batch\" is not job, service or reservation");
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        let text = "command: [a]\nmax_processes: 3\nmax_processes: 4\n";
        let fault = format!("{:#}", Document::read(text, DocumentKind::Job).unwrap_err());
        assert!(fault.contains("max_processes"), "{fault}");
    }

    #[test]
    fn unknown_and_wrong_fields_are_named_with_their_place() {
        let fault = |text: &str| {
            Document::read(text, DocumentKind::Job)
                .unwrap_err()
                .to_string()
        };
        assert!(fault("command: [a]\nmax_procesess: 3\n").contains("max_procesess"));
        let inside = fault("command: [a]\nsize:\n  memory: 3\n");
        assert!(
            inside.starts_with("size") && inside.contains("`memory`"),
            "{inside}"
        );
        let wrong = fault("command: [a]\ntasks:\n  count: many\n");
        assert!(wrong.starts_with("tasks"), "{wrong}");
        assert!(fault("- a\n").contains("has fields"));
        assert!(
            fault("kind: service\n").contains("command"),
            "a missing field is named too"
        );
    }
}
