//! Quotas: how many applications and open tasks one user may have.

use std::collections::BTreeMap;

use hayward_job_converter_application_protocol::ids::GroupName;
use hayward_job_converter_application_protocol::metadata::Metadata;
use hayward_job_converter_application_protocol::task::TaskSpec;
use hayward_job_converter_application_protocol::task_groups::TaskGroup;
use hayward_vocabulary::{Size, Timestamp};

use super::super::application_record::Program;
use super::*;
use crate::accounts::Accounts;
use crate::config::Settings;
use crate::store::applications::{ApplicationRow, ApplicationTaskRow};

/// One user may have 3 applications and 2 open tasks.
fn settings() -> Settings {
    Settings {
        max_user_applications: 3,
        max_user_application_tasks: 2,
        ..Settings::default()
    }
}

fn moment() -> Moment {
    Moment {
        now: Timestamp::from_unix_ms(1),
        monotonic_ms: 1,
        revision: 1,
        epoch: 1,
    }
}

fn app_id(name: &str) -> AppId {
    AppId::new(name).unwrap()
}

/// Adds an application within the open batch.
fn add_application(
    applications: &mut Applications,
    user: &str,
    name: &str,
    members: u32,
) -> Result<(), Refusal> {
    let mut metadata = Metadata::new(user.parse().unwrap());
    if members > 0 {
        metadata.task_groups.push(TaskGroup {
            name: GroupName::new("g").unwrap(),
            min_member: members,
            min_resource: Size::memory(1),
            node_selector: BTreeMap::new(),
            copied: BTreeMap::new(),
        });
    }
    let uuid = Uuid::new_v4();
    let submission = Parsed {
        metadata,
        warnings: Vec::new(),
    };
    applications
        .add(&app_id(name), submission, uuid, &moment())
        .map(drop)
}

fn add_task(applications: &mut Applications, name: &str, task: &str) -> Result<(), Refusal> {
    let program = Program {
        command: vec!["/bin/true".to_owned()],
        environment: BTreeMap::new(),
        working_directory: None,
        traceparent: None,
    };
    let task = NewTask {
        id: TaskId::new(task).unwrap(),
        content: TaskContent {
            spec: TaskSpec::default(),
            program,
        },
    };
    applications
        .add_task(&app_id(name), &None, task, &moment())
        .map(drop)
}

/// No user can fill the service with applications that have no tasks (I25).
#[test]
fn empty_applications_count_against_the_quota_of_their_user() {
    let mut applications = Applications::new(&settings());
    for name in ["a-1", "a-2", "a-3"] {
        add_application(&mut applications, "ann", name, 0).unwrap();
    }
    let refusal = add_application(&mut applications, "ann", "a-4", 0).unwrap_err();
    assert!(
        matches!(
            &refusal,
            Refusal::UserApplicationLimit {
                count: 3,
                limit: 3,
                ..
            }
        ),
        "{refusal}"
    );
    assert_eq!(Problem::from(refusal).code, Code::TooManyRequests);
    add_application(&mut applications, "ann", "a-3", 0)
        .expect("an application that exists is not counted again");
    add_application(&mut applications, "bob", "b-1", 0).unwrap();
    applications.forget(&app_id("a-1"));
    add_application(&mut applications, "ann", "a-4", 0)
        .expect("a removed application is not counted");
}

/// Members of a gang count from the start, before their tasks are added (I25).
#[test]
fn requests_of_one_batch_count_against_the_same_quota() {
    let is_over_limit = |result: Result<(), Refusal>| {
        matches!(result, Err(Refusal::UserTaskLimit { count: 2, .. }))
    };
    let mut applications = Applications::new(&settings());
    add_application(&mut applications, "ann", "gang", 2).unwrap();
    assert!(is_over_limit(add_application(
        &mut applications,
        "ann",
        "other",
        1
    )));
    add_application(&mut applications, "bob", "bobs", 0).unwrap();
    add_task(&mut applications, "bobs", "t-1").unwrap();
    add_task(&mut applications, "bobs", "t-2").unwrap();
    assert!(is_over_limit(add_task(&mut applications, "bobs", "t-3")));
    add_task(&mut applications, "bobs", "t-2").expect("a task that exists is not counted again");
}

/// Quotas also count applications restored from rows.
#[test]
fn restored_applications_count_against_the_quota() {
    let mut before = Applications::new(&settings());
    add_application(&mut before, "ann", "gang", 2).unwrap();
    let mut batch = Batch::default();
    before.run(
        &BTreeMap::new(),
        &Accounts::default(),
        &moment(),
        &mut batch,
    );
    let heads: Vec<ApplicationRow> = batch.rows.applications;
    assert_eq!(heads.len(), 1);
    let tasks: Vec<ApplicationTaskRow> = batch.rows.application_tasks;
    let mut applications = Applications::from_rows(&settings(), heads, tasks).unwrap();
    assert!(matches!(
        add_application(&mut applications, "ann", "other", 1),
        Err(Refusal::UserTaskLimit { count: 2, .. })
    ));
}
