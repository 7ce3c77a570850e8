//! Reads a policy from a file of YAML or JSON. The file may also have the generation, which is the
//! number of the version of the policy. All faults are reported together.

use std::path::Path;

use anyhow::Context as _;
use hayward_rm_scheduler_policy::{Document, Fault, Policy, read};
use hayward_service::http::problem::{FieldFault, Problem};
use hayward_service::{ClientError, Code};
use serde::Serialize;

use crate::commands::work::submit::{display_name, parse_yaml, read_text};

/// Reads a policy, and its generation if the text has one.
pub fn read_policy(file: &Path) -> anyhow::Result<(Policy, Option<u64>)> {
    let text = read_text(file)?;
    parse_policy(&text).with_context(|| display_name(file))
}

/// Parses a policy. JSON is also YAML, but is parsed as JSON where possible, because the errors of
/// that parser name better lines.
pub fn parse_policy(text: &str) -> anyhow::Result<(Policy, Option<u64>)> {
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)
            .or_else(|error| yaml_serde::from_str(text).map_err(|_| error))
            .context("this is neither JSON nor YAML")?
    } else {
        parse_yaml(text)?
    };
    let (document, generation) = document.without_envelope();
    let policy = read(document).map_err(|faults| validation_error(&faults))?;
    Ok((policy, generation))
}

/// Makes the error that a service would return for these faults.
fn validation_error(faults: &[Fault]) -> ClientError {
    let detail = format!("the policy has {} fault(s)", faults.len());
    error_with_faults(
        detail,
        faults
            .iter()
            .map(|fault| (fault.pointer.clone(), fault.detail.clone())),
    )
}

/// Makes an error with one line for each fault.
pub fn error_with_faults(
    detail: String,
    faults: impl Iterator<Item = (String, String)>,
) -> ClientError {
    let empty = Problem::new(Code::Invalid, detail);
    ClientError::Problem(faults.fold(empty, |problem, (pointer, detail)| {
        problem.at(pointer, detail)
    }))
}

/// Returns the faults in an error.
pub fn faults_in(error: &anyhow::Error) -> Vec<FieldFault> {
    let problem = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>()?.problem());
    problem.map_or_else(
        || {
            vec![FieldFault {
                pointer: String::new(),
                detail: format!("{error:#}"),
            }]
        },
        |problem| problem.errors.clone(),
    )
}

/// Returns the value as YAML, with fields in their documented order.
pub fn to_yaml<T: Serialize>(value: &T) -> anyhow::Result<String> {
    yaml_serde::to_string(value).context("cannot write this as YAML")
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::policy::PolicyView;

    use super::*;

    #[test]
    fn the_shown_document_can_be_applied() {
        let view = PolicyView {
            generation: 3,
            policy: Policy::default(),
        };
        let shown = to_yaml(&view).unwrap();
        assert_eq!(
            parse_policy(&shown).unwrap(),
            (view.policy.clone(), Some(3))
        );
        let alone = serde_json::to_string(&view.policy).unwrap();
        assert_eq!(parse_policy(&alone).unwrap(), (view.policy, None));
    }

    #[test]
    fn all_wrong_fields_are_named_with_their_paths() {
        let text = "pools: {default: {}}\nclasses:\n  high:\n    policy: FAIR_SHARE\n    \
                    priorty: 1\n    pool: default\n    default: true\n  low: {wieght: 3}\n";
        let error = parse_policy(text).unwrap_err();
        let faults = faults_in(&error);
        let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            [
                "/classes/high/priorty",
                "/classes/low/policy",
                "/classes/low/pool",
                "/classes/low/wieght"
            ]
        );
        let lines = crate::output::error_text::describe(&error);
        assert!(
            lines.contains("\n  /classes/high/priorty: unknown field"),
            "{lines}"
        );
    }

    #[test]
    fn a_syntax_error_is_reported_with_its_line() {
        for text in ["pools: [", "{\"pools\": {},\n \"classes\": {\"a\": ]}}"] {
            let error = parse_policy(text).unwrap_err();
            let faults = faults_in(&error);
            assert!(faults[0].detail.contains("line"), "{faults:?}");
        }
    }
}
