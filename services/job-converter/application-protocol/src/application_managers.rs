//! Managers: plug-ins that accept work from one kind of source. They are enabled by settings, and
//! started and stopped in order.

use std::error::Error;

/// A manager accepts work from one kind of source, for example from users or from orchestrators.
pub trait Manager: Send {
    /// Returns the name used in settings.
    fn name(&self) -> &str;
    /// Prepares the manager without starting it.
    ///
    /// # Errors
    /// Returns any error. No manager starts then.
    fn init(&mut self) -> Result<(), Cause>;
    /// Starts to accept work.
    ///
    /// # Errors
    /// Returns any error. Managers after this one do not start.
    fn start(&mut self) -> Result<(), Cause>;
    /// Stops accepting work, and ends everything that `start` began.
    fn stop(&mut self);
}

pub type Cause = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    #[error("manager {name} could not be initialized")]
    Init {
        name: String,
        #[source]
        cause: Cause,
    },
    #[error("manager {name} could not start")]
    Start {
        name: String,
        #[source]
        cause: Cause,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManagerList {
    #[error("two managers have the name {0:?}")]
    Duplicate(String),
    #[error("unknown manager {0:?}; the managers are {1}")]
    Unknown(String, String),
}

/// Enabled managers, in order of registration.
pub struct Managers {
    managers: Vec<Box<dyn Manager>>,
    running: bool,
}

impl Managers {
    /// Selects the enabled managers. `None` enables all.
    ///
    /// # Errors
    /// Fails if two managers have the same name, or an enabled one does not exist.
    pub fn new(
        managers: Vec<Box<dyn Manager>>,
        enabled: Option<&[String]>,
    ) -> Result<Self, InvalidManagerList> {
        let names: Vec<String> = managers.iter().map(|it| it.name().to_owned()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(InvalidManagerList::Duplicate(name.clone()));
            }
        }
        let enabled = enabled.unwrap_or(&names);
        if let Some(unknown) = enabled.iter().find(|it| !names.contains(it)) {
            return Err(InvalidManagerList::Unknown(
                unknown.clone(),
                names.join(", "),
            ));
        }
        let managers = managers.into_iter();
        let managers = managers.filter(|it| enabled.iter().any(|name| name == it.name()));
        Ok(Self {
            managers: managers.collect(),
            running: false,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.managers.iter().map(|it| it.name())
    }

    /// Initializes and starts all managers in order. A second start has no effect.
    ///
    /// # Errors
    /// Returns the first error, after stopping the managers that were already started.
    pub fn start(&mut self) -> Result<(), ManagerError> {
        if self.running {
            return Ok(());
        }
        for index in 0..self.managers.len() {
            if let Err(error) = start_manager(self.managers[index].as_mut()) {
                self.managers[..index].iter_mut().for_each(|it| it.stop());
                return Err(error);
            }
        }
        self.running = true;
        Ok(())
    }

    /// Stops all managers in the same order. A second stop has no effect.
    pub fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            self.managers.iter_mut().for_each(|it| it.stop());
        }
    }
}

fn start_manager(manager: &mut dyn Manager) -> Result<(), ManagerError> {
    let name = manager.name().to_owned();
    if let Err(cause) = manager.init() {
        return Err(ManagerError::Init { name, cause });
    }
    let result = manager.start();
    result.map_err(|cause| ManagerError::Start { name, cause })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type CallLog = Arc<Mutex<Vec<String>>>;

    struct RecordingManager {
        name: &'static str,
        fails_at: &'static str,
        calls: CallLog,
    }

    impl RecordingManager {
        fn record(&self, call: &str) -> Result<(), Cause> {
            self.calls
                .lock()
                .unwrap()
                .push(format!("{call} {}", self.name));
            if self.fails_at == call {
                return Err("the call fails".into());
            }
            Ok(())
        }
    }

    impl Manager for RecordingManager {
        fn name(&self) -> &str {
            self.name
        }
        fn init(&mut self) -> Result<(), Cause> {
            self.record("init")
        }
        fn start(&mut self) -> Result<(), Cause> {
            self.record("start")
        }
        fn stop(&mut self) {
            self.record("stop").unwrap();
        }
    }

    fn three_managers(second_fails_at: &'static str) -> (Vec<Box<dyn Manager>>, CallLog) {
        let calls = CallLog::default();
        let manager = |name, fails_at| {
            let calls = calls.clone();
            Box::new(RecordingManager {
                name,
                fails_at,
                calls,
            }) as Box<dyn Manager>
        };
        let managers = vec![
            manager("jobs", ""),
            manager("orchestrator", second_fails_at),
            manager("applications", ""),
        ];
        (managers, calls)
    }

    #[test]
    fn managers_are_initialized_and_started_once_in_order() {
        let (managers, calls) = three_managers("");
        let enabled = ["jobs".to_owned(), "applications".to_owned()];
        let mut managers = Managers::new(managers, Some(&enabled)).unwrap();
        managers.stop();
        managers.start().unwrap();
        managers.start().unwrap();
        managers.stop();
        managers.stop();
        let expected = [
            "init jobs",
            "start jobs",
            "init applications",
            "start applications",
            "stop jobs",
            "stop applications",
        ];
        assert_eq!(*calls.lock().unwrap(), expected);
    }

    #[test]
    fn the_first_error_stops_the_started_managers() {
        for (fails_at, last_calls) in [("init", vec!["init"]), ("start", vec!["init", "start"])] {
            let (managers, calls) = three_managers(fails_at);
            let mut managers = Managers::new(managers, None).unwrap();
            assert!(
                managers
                    .start()
                    .unwrap_err()
                    .to_string()
                    .contains("orchestrator")
            );
            let last_calls = last_calls
                .into_iter()
                .map(|it| format!("{it} orchestrator"));
            let mut expected = vec!["init jobs".to_owned(), "start jobs".to_owned()];
            expected.extend(last_calls);
            expected.push("stop jobs".to_owned());
            assert_eq!(*calls.lock().unwrap(), expected);
        }
    }

    #[test]
    fn duplicate_and_unknown_managers_are_refused() {
        let (mut all, _) = three_managers("");
        all.extend(three_managers("").0);
        let duplicate = Managers::new(all, None).err();
        assert_eq!(
            duplicate,
            Some(InvalidManagerList::Duplicate("jobs".to_owned()))
        );
        let enabled = ["spark".to_owned()];
        let unknown = Managers::new(three_managers("").0, Some(&enabled))
            .err()
            .unwrap();
        assert!(
            unknown
                .to_string()
                .contains("jobs, orchestrator, applications")
        );
    }
}
