//! Wait targets: how long work of a class may wait for its first process before an alert (T8).

use hayward_rm_scheduler_api::policy::Policy;

use crate::inheritance::Ancestry;

/// Default of classes and queues: one hour.
const DEFAULT_TARGET_S: u64 = 3_600;

/// Returns the wait target of a class in seconds, inherited from the nearest ancestor that sets
/// one.
#[must_use]
pub fn wait_target(policy: &Policy, class: &str) -> u64 {
    let ancestry = Ancestry::new(policy, class).ok();
    let target = ancestry.and_then(|ancestry| ancestry.find(|class| class.wait_target_s));
    target.unwrap_or(DEFAULT_TARGET_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_its_own_wait_target_that_of_its_parent_or_one_hour() {
        let mut policy = Policy::default();
        let class = policy.classes.get_mut("high").unwrap();
        (class.wait_target_s, class.parent) = (Some(60), Some("low".to_owned()));
        policy.classes.get_mut("normal").unwrap().parent = Some("high".to_owned());
        assert_eq!(wait_target(&policy, "high"), 60);
        assert_eq!(wait_target(&policy, "normal"), 60);
        assert_eq!(wait_target(&policy, "low"), DEFAULT_TARGET_S);
        assert_eq!(wait_target(&policy, "root.of-a-queue"), DEFAULT_TARGET_S);
    }
}
