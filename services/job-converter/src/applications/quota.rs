//! Quotas of applications and their tasks, in total and per user (I25).
//!
//! Requests are counted when they are accepted, so requests of one batch count each other.

use std::collections::BTreeMap;

use hayward_vocabulary::UserName;

use super::commands::Refusal;
use crate::config::Settings;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct UserUsage {
    /// Number of applications, including ended ones until they are removed or expire.
    applications: usize,
    /// Number of live tasks, and of gang members that are not created yet.
    tasks: usize,
}

#[derive(Debug, Clone)]
pub struct Quota {
    tasks: usize,
    /// Users with at least one application.
    users: BTreeMap<UserName, UserUsage>,
    most_tasks: usize,
    most_tasks_of_user: usize,
    most_applications_of_user: usize,
}

impl Quota {
    pub fn new(settings: &Settings) -> Self {
        Self {
            tasks: 0,
            users: BTreeMap::new(),
            most_tasks: settings.max_open_work,
            most_tasks_of_user: settings.max_user_application_tasks,
            most_applications_of_user: settings.max_user_applications,
        }
    }

    /// Returns the number of live tasks and members of all users.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Checks the quota for one more application with this many members.
    pub fn check_application(&self, user: &UserName, members: usize) -> Result<(), Refusal> {
        let (has, limit) = (
            self.usage(user).applications,
            self.most_applications_of_user,
        );
        if has >= limit {
            let user = user.clone();
            return Err(Refusal::UserHasMost { user, has, limit });
        }
        self.check_tasks(user, members)
    }

    /// Checks the quota for this many more tasks.
    pub fn check_tasks(&self, user: &UserName, more: usize) -> Result<(), Refusal> {
        let (has, limit) = (self.usage(user).tasks, self.most_tasks_of_user);
        if has.saturating_add(more) > limit {
            let user = user.clone();
            return Err(Refusal::UserFull { user, has, limit });
        }
        let most = self.most_tasks;
        let fits = self.tasks.saturating_add(more) <= most;
        fits.then_some(()).ok_or(Refusal::AllFull(most))
    }

    /// Counts a new application with its tasks.
    pub fn enter(&mut self, user: &UserName, tasks: usize) {
        self.change(user, |usage| usage.applications += 1);
        self.recount(user, 0, tasks);
    }

    pub fn leave(&mut self, user: &UserName, tasks: usize) {
        self.recount(user, tasks, 0);
        self.change(user, |usage| {
            usage.applications = usage.applications.saturating_sub(1);
        });
    }

    /// Replaces the number of tasks of one application.
    pub fn recount(&mut self, user: &UserName, before: usize, now: usize) {
        self.tasks = (self.tasks + now).saturating_sub(before);
        self.change(user, |usage| {
            usage.tasks = (usage.tasks + now).saturating_sub(before);
        });
    }

    fn usage(&self, user: &UserName) -> UserUsage {
        self.users.get(user).copied().unwrap_or_default()
    }

    fn change(&mut self, user: &UserName, how: impl FnOnce(&mut UserUsage)) {
        let mut usage = self.usage(user);
        how(&mut usage);
        if usage == UserUsage::default() {
            self.users.remove(user);
        } else {
            self.users.insert(user.clone(), usage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_applications_are_not_counted() {
        let settings = Settings {
            max_user_applications: 1,
            max_user_application_tasks: 3,
            ..Settings::default()
        };
        let mut counted = Quota::new(&settings);
        let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        counted.enter(&ann, 2);
        let reported = counted.check_application(&ann, 0).unwrap_err();
        assert!(
            reported.to_string().contains("max_user_applications"),
            "{reported}"
        );
        assert!(counted.check_application(&bob, 3).is_ok());
        assert!(counted.check_tasks(&ann, 1).is_ok());
        assert!(counted.check_tasks(&ann, 2).is_err());
        counted.recount(&ann, 2, 1);
        assert!(counted.check_tasks(&ann, 2).is_ok());
        counted.leave(&ann, 1);
        assert!(counted.check_application(&ann, 3).is_ok());
        assert!(counted.users.is_empty() && counted.tasks == 0);
    }
}
