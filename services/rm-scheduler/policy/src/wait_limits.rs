//! How long work of a class may wait for its first process before somebody is told (T8).

use hayward_rm_scheduler_api::policy::Policy;

use crate::inheritance::Lineage;

/// Of a class that says nothing of it, and of a queue: an hour.
const PATIENCE_S: u64 = 3_600;

/// Seconds: what the class says, or the nearest of those above it.
#[must_use]
pub fn wait_target(policy: &Policy, class: &str) -> u64 {
    let line = Lineage::of(policy, class).ok();
    let said = line.and_then(|line| line.find(|class| class.wait_target_s));
    said.unwrap_or(PATIENCE_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t8_a_class_has_its_own_target_else_that_of_its_parent_else_an_hour() {
        let mut policy = Policy::default();
        let class = policy.classes.get_mut("high").unwrap();
        (class.wait_target_s, class.parent) = (Some(60), Some("low".to_owned()));
        policy.classes.get_mut("normal").unwrap().parent = Some("high".to_owned());
        assert_eq!(wait_target(&policy, "high"), 60);
        assert_eq!(wait_target(&policy, "normal"), 60);
        assert_eq!(wait_target(&policy, "low"), PATIENCE_S);
        assert_eq!(wait_target(&policy, "root.of-a-queue"), PATIENCE_S);
    }
}
