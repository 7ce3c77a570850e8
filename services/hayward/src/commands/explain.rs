//! `hayward explain ID`: why work is as it is, with the numbers behind it.

use std::fmt::Write as _;

use hayward_job_converter_api::Explanation;

use crate::commands::work::{Which, state_cell};
use crate::connection::pages::route_of;
use crate::connection::{Role, Service, Session};
use crate::output::words::clean;
use crate::output::{Facts, Look};

pub async fn run(session: Session, which: Which) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let answer = client
        .get(&format!("{}/explain", route_of(&which.id)?))
        .await?;
    session
        .out
        .answer(answer, |explanation: &Explanation, look| {
            text(explanation, look)
        })
}

pub fn text(explanation: &Explanation, look: &Look) -> String {
    let mut facts = Facts::default();
    facts.say("state", state_cell(explanation.state));
    facts.say("reason", explanation.reason.replace('_', " "));
    if let Some(since) = explanation.since {
        facts.say("since", format!("{since}, {}", look.ago(since)));
    }
    let mut text = facts.text(look);
    let _ = writeln!(text, "\n{}", clean(&explanation.detail));
    if !explanation.numbers.is_empty() {
        text.push('\n');
        let width = explanation
            .numbers
            .keys()
            .map(String::len)
            .max()
            .unwrap_or(0);
        for (name, number) in &explanation.numbers {
            let _ = writeln!(
                text,
                "  {:<width$}  {number}",
                clean(name).replace('_', " ")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_job_converter_api::WorkState;
    use hayward_vocabulary::{Timestamp, WorkId};

    use super::*;

    #[test]
    fn an_explanation_has_its_numbers_below_its_sentence() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let explanation = Explanation {
            id: WorkId::new("job_1").unwrap(),
            state: WorkState::Waiting,
            reason: "insufficient_resources".into(),
            detail: "needs 4 quanta on one node, the largest free room is 2".into(),
            numbers: [("largest_free".to_owned(), 2), ("order".to_owned(), 4)].into(),
            since: Some(at),
        };
        let look = Look {
            colour: false,
            now: at.plus_ms(65_000),
        };
        insta::assert_snapshot!(text(&explanation, &look));
    }
}
