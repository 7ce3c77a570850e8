//! Fuzz target of the policy document. Reading arbitrary text never panics. The classes and pools
//! of an accepted policy resolve, and the policy is the same after it was written and read again.
#![no_main]

use hayward_rm_scheduler_policy::{Document, Identity, Rules, differences, notes, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(document) = serde_json::from_str::<Document>(text) else {
        return;
    };
    let (document, _generation) = document.without_envelope();
    let Ok(policy) = read(document) else {
        return;
    };
    let rules = Rules::new(&policy);
    for class in rules.classes.values() {
        assert!(class.weight > 0 && rules.pools.contains_key(&class.pool));
    }
    let node = Identity {
        name: "n1.example.org",
        address: Some("10.0.0.1"),
        declared: Some("gpu"),
    };
    let pool = rules.pool_of(node).expect("there is a first pool");
    assert!(rules.pools.contains_key(pool));
    notes(&policy);
    let serialized = serde_json::to_string(&policy).expect("a policy can be written");
    let document: Document = serde_json::from_str(&serialized).expect("what was written is JSON");
    let reparsed = read(document).expect("what was accepted is accepted again");
    assert!(policy == reparsed && differences(&policy, &reparsed).is_empty());
});
