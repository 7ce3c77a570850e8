//! Faults of submissions are found and reported with the JSON pointers of their fields.

use super::*;

fn pointers(faults: Result<(), Vec<FieldFault>>) -> Vec<String> {
    faults
        .err()
        .unwrap_or_default()
        .into_iter()
        .map(|fault| fault.pointer)
        .collect()
}

fn parse_job(json: &str) -> JobSubmission {
    serde_json::from_str(json).unwrap()
}

#[test]
fn all_faults_are_reported_at_once() {
    let bad = parse_job(
        r#"{"command": [], "tasks": {"count": 0}, "working_directory": "here", "threads": 0,
            "max_attempts": 101, "environment": {"A=B": "x", "C": "nul\u0000"}, "name": " ",
            "size": {"memory_bytes": 18446744073709551615}, "max_processes": 0}"#,
    );
    let found = pointers(check_job(&bad));
    for pointer in [
        "/command",
        "/tasks/count",
        "/working_directory",
        "/threads",
        "/max_attempts",
        "/environment",
        "/environment/C",
        "/name",
        "/size/memory_bytes",
        "/max_processes",
    ] {
        assert!(
            found.iter().any(|it| it == pointer),
            "{pointer} is not in {found:?}"
        );
    }
}

#[test]
fn limits_are_inclusive() {
    let job_of = |tasks: &str| {
        check_job(&parse_job(&format!(
            r#"{{"command":["x"],"tasks":{tasks}}}"#
        )))
    };
    assert!(job_of(r#"{"count":10000000}"#).is_ok());
    assert_eq!(pointers(job_of(r#"{"count":10000001}"#)), ["/tasks/count"]);
    assert_eq!(
        pointers(job_of(r#"{"arguments":[]}"#)),
        ["/tasks/arguments"]
    );
    assert_eq!(
        pointers(job_of(r#"{"arguments":[["a"],["\u0000"]]}"#)),
        ["/tasks/arguments/1/0"]
    );
    let labels: BTreeMap<String, String> = (0..65)
        .map(|index| (format!("l{index}"), String::new()))
        .collect();
    let plain = parse_job(r#"{"command":["x"]}"#);
    assert_eq!(
        pointers(check_job(&JobSubmission {
            labels,
            ..plain.clone()
        })),
        ["/labels"]
    );
    let command = vec!["x".repeat(MAX_TEXT_LENGTH), "y".repeat(MAX_TEXT_LENGTH + 1)];
    assert_eq!(
        pointers(check_job(&JobSubmission { command, ..plain })),
        ["/command/1"]
    );
}

/// Returns the choice and the faults of a job with these fields (W7).
fn unreachable_choice(
    fields: &str,
) -> Result<(Option<WhenUnreachable>, Vec<String>), serde_json::Error> {
    let text = format!(r#"{{"command":["x"],{fields}}}"#);
    let submission: JobSubmission = serde_json::from_str(&text)?;
    let choice = submission.when_unreachable.map(UnreachableChoice::meaning);
    Ok((choice, pointers(check_job(&submission))))
}

#[test]
fn when_unreachable_is_parsed_in_every_form() {
    let after = |ms| Some(WhenUnreachable::ReplaceAfter { ms });
    for (text, expected) in [
        (r#""labels":{}"#, None),
        (
            r#""when_unreachable":"replace""#,
            Some(WhenUnreachable::Replace),
        ),
        (r#""when_unreachable":"wait""#, Some(WhenUnreachable::Wait)),
        (
            r#""when_unreachable":"exclusive""#,
            Some(WhenUnreachable::Exclusive),
        ),
        (r#""when_unreachable":{"replace_after_ms":7}"#, after(7)),
        (
            r#""when_unreachable":{"kind":"replace_after","ms":7}"#,
            after(7),
        ),
        (
            r#""when_unreachable":{"kind":"wait"}"#,
            Some(WhenUnreachable::Wait),
        ),
        (r#""disruption_limit":1"#, None),
    ] {
        let parsed = unreachable_choice(text).unwrap();
        assert_eq!(parsed, (expected, vec![]), "{text}");
    }
    // Fields that are not set are not serialized, so rows from before these fields stay the same.
    let plain = serde_json::to_string(&parse_job(r#"{"command":["x"]}"#)).unwrap();
    assert!(!plain.contains("unreachable") && !plain.contains("disruption"));
}

#[test]
fn an_invalid_when_unreachable_is_refused_with_its_pointer() {
    for (text, pointer) in [
        (
            r#""when_unreachable":{"replace_after_ms":0}"#,
            "/when_unreachable/replace_after_ms",
        ),
        (
            r#""when_unreachable":{"replace_after_ms":2592000001}"#,
            "/when_unreachable/replace_after_ms",
        ),
        (
            r#""when_unreachable":{"kind":"replace_after","ms":0}"#,
            "/when_unreachable/ms",
        ),
        (r#""disruption_limit":0"#, "/disruption_limit"),
    ] {
        assert_eq!(unreachable_choice(text).unwrap().1, [pointer], "{text}");
    }
    for text in [
        r#""when_unreachable":"wiat""#,
        r#""when_unreachable":{"replace_after_ms":"10m"}"#,
        r#""when_unreachable":{"replace_after_ms":1,"else":2}"#,
        r#""when_unreachable":3"#,
    ] {
        let fault = unreachable_choice(text).unwrap_err().to_string();
        assert!(
            fault.contains("\"wait\""),
            "the message lists the valid values: {fault}"
        );
    }
}

#[test]
fn services_and_reservations_are_checked_too() {
    let bad: ServiceSubmission = serde_json::from_str(r#"{"command":[""],"instances":0}"#).unwrap();
    assert_eq!(pointers(check_service(&bad)), ["/command", "/instances"]);
    let bad: ReservationSubmission = serde_json::from_str(r#"{"class":""}"#).unwrap();
    assert_eq!(pointers(check_reservation(&bad)), ["/class"]);
}

/// Work never runs as a system account (S16).
#[test]
fn a_container_needs_a_valid_image_and_no_system_id() {
    let with = |container: &str| -> ServiceSubmission {
        serde_json::from_str(&format!(r#"{{"command":["x"],"container":{container}}}"#)).unwrap()
    };
    for good in ["debian:12", "r.example:5000/a/b@sha256:00", "a_b/c-d:1.2"] {
        assert!(
            check_service(&with(&format!(r#"{{"image":"{good}"}}"#))).is_ok(),
            "{good}"
        );
    }
    for bad in [
        "",
        "-v",
        "a b",
        "../x",
        "a\\n",
        "a;b",
        "http://r.example/a",
        "r.example/",
        "a:",
    ] {
        let found = pointers(check_service(&with(&format!(r#"{{"image":"{bad}"}}"#))));
        assert_eq!(found, ["/container/image"], "{bad}");
    }
    let found = pointers(check_service(&with(r#"{"image":"a","uid":0,"gid":999}"#)));
    assert_eq!(found, ["/container/uid", "/container/gid"]);
    let unknown = r#"{"command":["x"],"container":{"image":"a","privileged":true}}"#;
    assert!(serde_json::from_str::<ServiceSubmission>(unknown).is_err());
}

#[test]
fn a_job_cannot_have_an_image() {
    let bad = parse_job(r#"{"command":["x"],"container":{"image":"a"}}"#);
    assert_eq!(pointers(check_job(&bad)), ["/container"]);
}

#[test]
fn the_number_of_reported_faults_is_limited() {
    let vectors = vec![vec!["\0".to_owned()]; 1_000];
    let bad = JobSubmission {
        tasks: Tasks::Arguments(vectors),
        ..parse_job(r#"{"command":["x"]}"#)
    };
    assert_eq!(pointers(check_job(&bad)).len(), MAX_FAULTS);
}

/// Work can mount only directories that a pool offers, and only through `mounts` (S21).
#[test]
fn mounts_are_plain_directories() {
    let with = |mounts: &str| {
        let text =
            format!(r#"{{"command": ["x"], "container": {{"image": "i", "mounts": [{mounts}]}}}}"#);
        pointers(check_service(&serde_json::from_str(&text).unwrap()))
    };
    assert!(with(r#"{"source": "/srv/a", "target": "/a", "read_only": true}"#).is_empty());
    for (bad, field) in [
        (r#"{"source": "/", "target": "/a"}"#, "source"),
        (r#"{"source": "/srv/../etc", "target": "/a"}"#, "source"),
        (r#"{"source": "/a:/b", "target": "/a"}"#, "source"),
        (r#"{"source": "/srv", "target": "a"}"#, "target"),
    ] {
        assert_eq!(with(bad), [format!("/container/mounts/0/{field}")], "{bad}");
    }
    let twice = r#"{"source": "/a", "target": "/x"}, {"source": "/b", "target": "/x"}"#;
    assert_eq!(with(twice), ["/container/mounts/1/target"]);
    // A submission must not request a mount as an ordinary resource.
    let size = r#"{"command": ["x"], "size": {"memory_bytes": 1, "extras": {"mount:/a:rw": 1}}}"#;
    assert_eq!(pointers(check_job(&parse_job(size))), ["/size/extras"]);
}

#[test]
fn a_queue_replaces_a_class() {
    let job_of = |fields: &str| check_job(&parse_job(&format!(r#"{{"command":["x"],{fields}}}"#)));
    assert!(job_of(r#""queue":"root.a","priority":-3"#).is_ok());
    assert!(job_of(r#""pool":"batch""#).is_ok());
    assert_eq!(
        pointers(job_of(r#""queue":"root.a","class":"high""#)),
        ["/class"]
    );
    assert_eq!(pointers(job_of(r#""priority":1"#)), ["/priority"]);
    assert_eq!(
        pointers(job_of(r#""queue":"","pool":" ""#)),
        ["/queue", "/pool"]
    );
}
