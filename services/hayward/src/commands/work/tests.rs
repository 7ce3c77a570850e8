//! Tests the tables and details that the commands for work print.

use hayward_job_converter_api::{ProcessView, TaskCounts};
use hayward_vocabulary::{
    AllocationId, Exit, ExitCause, NodeName, Size, Timestamp, UserName, WhenUnreachable,
};

use super::*;

const SUBMITTED_AT: Timestamp = Timestamp::from_unix_ms(1_795_257_720_000);

fn renderer() -> Renderer {
    Renderer {
        colour: false,
        now: SUBMITTED_AT.plus_ms(192_000),
    }
}

/// Returns a running job with one live and one ended process.
fn job() -> WorkView {
    WorkView {
        id: WorkId::new("job_0192").unwrap(),
        kind: WorkKind::Job,
        name: "hash everything\u{7} there is in this place".into(),
        submitted_by: None,
        user: UserName::new("ada").unwrap(),
        class: Some("high".into()),
        queue: None,
        state: WorkState::Running,
        reason: None,
        refusal: None,
        submitted_at: SUBMITTED_AT,
        ended_at: None,
        size: Size {
            memory_bytes: 2 << 30,
            cpu_milli: 500,
            ..Size::default()
        },
        tasks: Some(TaskCounts {
            total: 100,
            waiting: 80,
            leased: 1,
            running: 3,
            succeeded: 15,
            failed: 1,
            cancelled: 0,
            delayed: 0,
        }),
        usage: None,
        processes: vec![
            process("alc_1", "running", None),
            process(
                "alc_2",
                "ended",
                Some(Exit::of(ExitCause::Intended, "preempted")),
            ),
        ],
        deployment: None,
        when_unreachable: WhenUnreachable::ReplaceAfter { ms: 600_000 },
        disruption_limit: Some(2),
        labels: [("project".to_owned(), "x".to_owned())].into(),
    }
}

fn process(id: &str, state: &str, exit: Option<Exit>) -> ProcessView {
    ProcessView {
        allocation: AllocationId::new(id).unwrap(),
        node: NodeName::new("node-1").unwrap(),
        incarnation: 2,
        state: state.into(),
        exit,
    }
}

fn waiting_service() -> WorkView {
    WorkView {
        id: WorkId::new("svc_0193").unwrap(),
        kind: WorkKind::Service,
        name: "clock".into(),
        class: None,
        queue: None,
        state: WorkState::Waiting,
        reason: Some("no node is large enough".into()),
        tasks: None,
        processes: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        ..job()
    }
}

#[test]
fn work_is_listed_in_a_table() {
    insta::assert_snapshot!(render_table(
        &[job(), waiting_service()],
        "jobs",
        &renderer()
    ));
    assert_eq!(render_table(&[], "services", &renderer()), "no services\n");
}

#[test]
fn the_detail_of_a_job_has_all_its_facts() {
    let ended = WorkView {
        state: WorkState::Failed,
        ended_at: Some(SUBMITTED_AT.plus_ms(61_000)),
        reason: Some("1 task failed".into()),
        ..job()
    };
    insta::assert_snapshot!(render_details(&ended, &renderer()));
}

#[test]
fn colours_do_not_change_column_widths() {
    let plain = render_table(&[job(), waiting_service()], "jobs", &renderer());
    let coloured = render_table(
        &[job(), waiting_service()],
        "jobs",
        &Renderer {
            colour: true,
            ..renderer()
        },
    );
    assert!(
        coloured.contains("\u{1b}[32m"),
        "running is green: {coloured:?}"
    );
    // A colour code begins with an escape character and ends with `m`.
    let mut without_colours = String::new();
    let mut remaining = coloured.as_str();
    while let Some(start) = remaining.find('\u{1b}') {
        without_colours.push_str(&remaining[..start]);
        remaining = remaining[start..]
            .split_once('m')
            .map_or("", |(_, tail)| tail);
    }
    without_colours.push_str(remaining);
    let trimmed_lines = |text: &str| {
        text.lines()
            .map(str::trim_end)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(trimmed_lines(&without_colours), trimmed_lines(&plain));
}

#[test]
fn a_state_is_parsed_in_any_case() {
    assert_eq!(parse_state("Running"), Ok(WorkState::Running));
    assert!(parse_state("done").is_err() && parse_state("unknown").is_err());
}
