//! `hayward timeline ID`: lists the events of a piece of work.

use hayward_job_converter_api::Timeline;

use crate::commands::work::IdArg;
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::format_duration;
use crate::output::{Renderer, Table};

pub async fn run(session: Session, arg: IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let response = client
        .get(&format!("{}/timeline", route_of_work(&arg.id)?))
        .await?;
    session
        .out
        .print_response(response, |timeline: &Timeline, renderer| {
            render(timeline, renderer)
        })
}

/// Lists the events with their times since the first event.
pub fn render(timeline: &Timeline, renderer: &Renderer) -> String {
    let mut table = Table::new(["at", "after", "what happened"]).align_right(&[1]);
    let first = timeline.events.first().map(|event| event.at);
    for event in &timeline.events {
        let after = first.map_or(0, |first| event.at.ms_since(first));
        table.push_row([
            event.at.into(),
            format_duration(after).into(),
            (&event.event).into(),
        ]);
    }
    table.render(renderer)
}
