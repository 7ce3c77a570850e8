//! Quotas of applications and their tasks, in total and per user (I25).
//!
//! A request is counted when it is accepted. The next request of the same batch thus sees the
//! higher count.

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
    /// Number of live tasks and gang members of all users.
    tasks: usize,
    /// Users with at least one application.
    users: BTreeMap<UserName, UserUsage>,
    max_tasks: usize,
    max_user_tasks: usize,
    max_user_applications: usize,
}

impl Quota {
    pub fn new(settings: &Settings) -> Self {
        Self {
            tasks: 0,
            users: BTreeMap::new(),
            max_tasks: settings.max_open_work,
            max_user_tasks: settings.max_user_application_tasks,
            max_user_applications: settings.max_user_applications,
        }
    }

    /// Returns the number of live tasks and members of all users.
    pub fn task_count(&self) -> usize {
        self.tasks
    }

    /// Checks the quota for one more application with this many members.
    pub fn check_application(&self, user: &UserName, members: usize) -> Result<(), Refusal> {
        let (count, limit) = (self.usage(user).applications, self.max_user_applications);
        if count >= limit {
            let user = user.clone();
            return Err(Refusal::UserApplicationLimit { user, count, limit });
        }
        self.check_tasks(user, members)
    }

    /// Checks the quota for this many more tasks.
    pub fn check_tasks(&self, user: &UserName, additional: usize) -> Result<(), Refusal> {
        let (count, limit) = (self.usage(user).tasks, self.max_user_tasks);
        if count.saturating_add(additional) > limit {
            let user = user.clone();
            return Err(Refusal::UserTaskLimit { user, count, limit });
        }
        let limit = self.max_tasks;
        let fits = self.tasks.saturating_add(additional) <= limit;
        fits.then_some(()).ok_or(Refusal::TotalTaskLimit(limit))
    }

    /// Counts a new application with its tasks.
    pub fn add_application(&mut self, user: &UserName, tasks: usize) {
        self.update_usage(user, |usage| usage.applications += 1);
        self.update_tasks(user, 0, tasks);
    }

    /// Removes an application with its tasks.
    pub fn remove_application(&mut self, user: &UserName, tasks: usize) {
        self.update_tasks(user, tasks, 0);
        self.update_usage(user, |usage| {
            usage.applications = usage.applications.saturating_sub(1);
        });
    }

    /// Changes the number of tasks of one application from `before` to `after`.
    pub fn update_tasks(&mut self, user: &UserName, before: usize, after: usize) {
        self.tasks = (self.tasks + after).saturating_sub(before);
        self.update_usage(user, |usage| {
            usage.tasks = (usage.tasks + after).saturating_sub(before);
        });
    }

    fn usage(&self, user: &UserName) -> UserUsage {
        self.users.get(user).copied().unwrap_or_default()
    }

    fn update_usage(&mut self, user: &UserName, update: impl FnOnce(&mut UserUsage)) {
        let mut usage = self.usage(user);
        update(&mut usage);
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
        let mut quota = Quota::new(&settings);
        let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        quota.add_application(&ann, 2);
        let refusal = quota.check_application(&ann, 0).unwrap_err();
        assert!(
            refusal.to_string().contains("max_user_applications"),
            "{refusal}"
        );
        assert!(quota.check_application(&bob, 3).is_ok());
        assert!(quota.check_tasks(&ann, 1).is_ok());
        assert!(quota.check_tasks(&ann, 2).is_err());
        quota.update_tasks(&ann, 2, 1);
        assert!(quota.check_tasks(&ann, 2).is_ok());
        quota.remove_application(&ann, 1);
        assert!(quota.check_application(&ann, 3).is_ok());
        assert!(quota.users.is_empty() && quota.tasks == 0);
    }
}
