//! Renders errors as text: the detail of the service, one line for each wrong field, and a remedy
//! if there is one.

use std::fmt::Write as _;

use hayward_service::{ClientError, Code, Problem};

use super::format::sanitize;

/// Describes an error in lines, without a final line break.
pub fn describe(error: &anyhow::Error) -> String {
    let mut context = Vec::new();
    for cause in error.chain() {
        match cause.downcast_ref::<ClientError>() {
            Some(ClientError::Problem(problem)) => return describe_problem(&context, problem),
            Some(ClientError::Unreachable { url, source }) => {
                context.push(format!("cannot reach {url}"));
                context.push(root_cause(source));
                return join_parts(&context)
                    + "\nIs the fleet running? `hayward status` asks every service.";
            }
            _ => context.push(sanitize(&cause.to_string())),
        }
    }
    join_parts(&context)
}

fn describe_problem(context: &[String], problem: &Problem) -> String {
    let mut parts = context.to_vec();
    parts.push(sanitize(&problem.detail));
    let mut text = join_parts(&parts);
    for fault in &problem.errors {
        // Writing to a string never fails.
        let _ = write!(
            text,
            "\n  {}: {}",
            sanitize(&fault.pointer),
            sanitize(&fault.detail)
        );
    }
    match problem.code {
        Code::Unauthenticated => {
            text.push_str("\nAnother token: --user, --operator, --token-file or HAYWARD_TOKEN.");
        }
        Code::Internal => {
            if let Some(id) = &problem.request_id {
                let _ = write!(text, "\nrequest id: {}", sanitize(id));
            }
        }
        _ => {}
    }
    text
}

/// Returns the last error of the chain. Earlier errors repeat each other, and the last one has the
/// system's message.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn join_parts(parts: &[String]) -> String {
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_problem_shows_its_fields_below_its_detail() {
        let problem = Problem::new(Code::Invalid, "some fields are invalid")
            .at("/command", "names no program")
            .at("/tasks/count", "is 0");
        let error = Err::<(), _>(ClientError::Problem(problem)).context("cannot submit");
        assert_eq!(
            describe(&error.unwrap_err()),
            "cannot submit: some fields are invalid\n  /command: names no program\n  \
             /tasks/count: is 0"
        );
    }

    #[test]
    fn an_ordinary_error_shows_its_chain() {
        let error = anyhow::anyhow!("no such file").context("cannot read job.yaml");
        assert_eq!(describe(&error), "cannot read job.yaml: no such file");
    }
}
