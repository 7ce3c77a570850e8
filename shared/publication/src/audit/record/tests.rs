//! Tests of the chain of audit records.

use proptest::prelude::*;

use super::*;

fn record(revision: u64, actor: &str) -> AuditRecord {
    AuditRecord {
        number: 0,
        revision,
        at: Timestamp::from_unix_ms(1_000),
        outcome: AuditOutcome::Committed,
        status: None,
        actor: actor.to_owned(),
        subject: actor.to_owned(),
        kind: "operator".to_owned(),
        address: Some("127.0.0.1".to_owned()),
        method: "PUT".to_owned(),
        route: "/v1/nodes/{node}/drain".to_owned(),
        object: "/v1/nodes/n1/drain".to_owned(),
        entry: None,
        requests: 1,
        changed: 1,
        digest_before: None,
        digest_after: Some(Digest([7; 32])),
        request_id: None,
        trace_id: None,
        hash: Digest::default(),
    }
}

fn chain(revisions: &[u64]) -> Vec<AuditRecord> {
    let mut position = Link::default();
    let records = revisions.iter();
    records
        .map(|it| position.append(record(*it, "ann")))
        .collect()
}

fn verify(records: &[AuditRecord]) -> Result<Link, Break> {
    let mut position = Link::default();
    records.iter().try_for_each(|it| position.advance(it))?;
    Ok(position)
}

/// The end must match the revision of the state (I19).
#[test]
fn an_unchanged_chain_verifies_to_its_end() {
    let records = chain(&[5, 5, 6, 7]);
    let end = verify(&records).unwrap();
    assert_eq!((end.number, end.revision), (4, 7));
    assert_eq!(end.check_end(7), Ok(()));
    let cut_off = end.check_end(8).unwrap_err();
    assert_eq!(cut_off.record(), 5);
}

/// Gaps and swapped records break the chain (I19).
#[test]
fn the_first_invalid_record_is_named() {
    let full = chain(&[1, 2, 3, 4]);
    let gap = [&full[..1], &full[2..]].concat();
    assert_eq!(verify(&gap).unwrap_err().record(), 2);
    let swapped = [full[1].clone(), full[0].clone()];
    assert_eq!(verify(&swapped).unwrap_err().record(), 1);
    // A change that was committed without a record leaves a gap in the revisions.
    let unrecorded = chain(&[1, 2, 4]);
    assert!(matches!(
        verify(&unrecorded),
        Err(Break::Unrecorded { number: 3, .. })
    ));
}

type Change = fn(&mut AuditRecord);

/// The digest covers all fields (S24).
#[test]
fn every_altered_field_is_detected() {
    let changes: [Change; 18] = [
        |it| it.number += 1,
        |it| it.revision += 1,
        |it| it.at = it.at.plus_ms(1),
        |it| it.outcome = AuditOutcome::Refused,
        |it| it.status = Some(403),
        |it| it.actor.push('x'),
        |it| it.subject.push('x'),
        |it| it.kind.push('x'),
        |it| it.address = None,
        |it| it.method.push('x'),
        |it| it.route.push('x'),
        |it| it.object.push('x'),
        |it| it.entry = Some(String::new()),
        |it| it.requests += 1,
        |it| it.changed += 1,
        |it| it.digest_before = Some(Digest::default()),
        |it| it.request_id = Some("r".to_owned()),
        |it| it.trace_id = Some("t".to_owned()),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut records = chain(&[1, 2, 3]);
        change(&mut records[1]);
        assert_eq!(verify(&records).unwrap_err().record(), 2, "change {index}");
    }
}

/// Each record contains the digest of the previous one (S24).
#[test]
fn an_altered_record_with_a_new_hash_breaks_the_next() {
    let mut records = chain(&[1, 2, 3]);
    records[1].actor = "eve".to_owned();
    records[1].hash = Link::from_record(&records[0]).expected_hash(&records[1]);
    assert_eq!(verify(&records), Err(Break::Altered(3)));
}

#[test]
fn a_pruned_chain_continues_from_its_anchor() {
    let records = chain(&[1, 2, 3]);
    let mut anchor = Link::from_record(&records[0]);
    assert!(records[1..].iter().all(|it| anchor.advance(it).is_ok()));
}

proptest! {
    #[test]
    fn an_exported_record_equals_the_original(
        number: u64, actor in ".{0,20}", digest: [u8; 32],
        status in proptest::option::of(400..500_u16),
    ) {
        let exported = AuditRecord {
            number, status, hash: Digest(digest), digest_before: Some(Digest(digest)),
            ..record(number, &actor)
        };
        let text = serde_json::to_string(&exported).unwrap();
        prop_assert_eq!(serde_json::from_str::<AuditRecord>(&text).unwrap(), exported);
    }
}

#[test]
fn an_invalid_digest_is_refused() {
    let signs = "+".repeat(64);
    for bad in ["", "00", &"g".repeat(64), &signs, &"é".repeat(32)] {
        assert!(bad.parse::<Digest>().is_err(), "{bad}");
    }
}
