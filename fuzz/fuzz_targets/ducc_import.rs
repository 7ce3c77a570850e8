//! Fuzz target of the import from DUCC, the cluster manager of Apache UIMA: its class, user,
//! property and node files. Reading arbitrary text never panics, and an accepted import is a policy
//! without faults.
#![no_main]

use hayward_rm_scheduler_policy::import::{Input, Source, import};
use hayward_rm_scheduler_policy::{Rules, faults};
use libfuzzer_sys::fuzz_target;

// Lines of three dashes separate the files: classes, users, properties, nodes.
fuzz_target!(|text: &str| {
    let mut files = text.splitn(4, "\n---\n");
    let classes = files.next().unwrap_or("");
    let source = |name, text| Source { name, text };
    let (users, properties) = (files.next(), files.next());
    let nodes = files.next().unwrap_or("n1\n");
    let input = Input {
        classes: source("classes", classes),
        users: users.map(|text| source("users", text)),
        properties: properties.map(|text| source("properties", text)),
        node_file: &|_| Some(nodes.to_owned()),
    };
    match import(input) {
        Ok(imported) => {
            assert!(faults(&imported.policy).is_empty());
            Rules::new(&imported.policy);
        }
        Err(faults) => assert!(!faults.is_empty()),
    }
});
