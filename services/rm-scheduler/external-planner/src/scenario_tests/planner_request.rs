//! Tests of the request to an external planner.

use hayward_vocabulary::resources::GIB;

use crate::fixture::{Fixture, requested_grant};

#[test]
fn the_request_lists_missing_work_and_free_space() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.planner_request(), None, "nothing is lacking");
    fixture.add_job("job_a", "fair", 4);
    fixture.add_job("job_else", "else", 4);
    fixture.respond(vec![requested_grant("job_a", "n1", 3)], vec![]);
    fixture.node_mut("n2").offline = true;
    let request = fixture.planner_request().unwrap();
    assert_eq!(request.work.len(), 1);
    let job = &request.work[0];
    assert_eq!((job.wanted, job.has, job.missing), (4, 3, 1));
    let names: Vec<&str> = request.nodes.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    assert_eq!(
        (
            request.nodes[0].free_quanta,
            request.nodes[0].free.memory_bytes
        ),
        (1, GIB)
    );
    assert_eq!(request.nodes[1].reason.as_deref(), Some("varied off"));
    assert_eq!(
        (
            request.allocations.len(),
            request.allocations[0].preemptable
        ),
        (3, true)
    );
    assert_eq!(request.pools["below"].as_deref(), Some("out"));
    assert!(request.classes.contains_key("fixed") && !request.classes.contains_key("else"));
    let mut later = request.clone();
    later.revision += 1;
    later.now = later.now.plus_ms(1);
    assert!(later.has_same_content(&request));
    later.work[0].missing = 0;
    assert!(!later.has_same_content(&request));
    fixture.respond(vec![requested_grant("job_a", "n1", 1)], vec![]);
    assert_eq!(fixture.planner_request(), None);
}
