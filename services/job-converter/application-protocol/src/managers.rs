//! Application managers: plug-ins that accept work from one kind of source.

use std::error::Error;

/// A manager. `stop` ends all that `start` began.
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
    /// Ends all that `start` began.
    fn stop(&mut self);
}

pub type Cause = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Failed {
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
pub enum BadList {
    #[error("two managers have the name {0:?}")]
    Twice(String),
    #[error("unknown manager {0:?}; the managers are {1}")]
    Unknown(String, String),
}

/// Enabled managers, in order of registration.
pub struct Managers {
    all: Vec<Box<dyn Manager>>,
    running: bool,
}

impl Managers {
    /// Selects the enabled managers of `all`. `None` enables all.
    ///
    /// # Errors
    /// Fails if two managers have the same name, or an enabled one does not exist.
    pub fn new(all: Vec<Box<dyn Manager>>, enabled: Option<&[String]>) -> Result<Self, BadList> {
        let names: Vec<String> = all.iter().map(|it| it.name().to_owned()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(BadList::Twice(name.clone()));
            }
        }
        let wanted = enabled.unwrap_or(&names);
        if let Some(stranger) = wanted.iter().find(|it| !names.contains(it)) {
            return Err(BadList::Unknown(stranger.clone(), names.join(", ")));
        }
        let all = all.into_iter();
        let all = all.filter(|it| wanted.iter().any(|name| name == it.name()));
        Ok(Self {
            all: all.collect(),
            running: false,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|it| it.name())
    }

    /// Initializes and starts all managers in order. A second start has no effect.
    ///
    /// # Errors
    /// Returns the first error, after stopping the managers that were already started.
    pub fn start(&mut self) -> Result<(), Failed> {
        if self.running {
            return Ok(());
        }
        for index in 0..self.all.len() {
            if let Err(failed) = begin(self.all[index].as_mut()) {
                self.all[..index].iter_mut().for_each(|it| it.stop());
                return Err(failed);
            }
        }
        self.running = true;
        Ok(())
    }

    /// Stops all managers in the same order. A second stop has no effect.
    pub fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            self.all.iter_mut().for_each(|it| it.stop());
        }
    }
}

fn begin(manager: &mut dyn Manager) -> Result<(), Failed> {
    let name = manager.name().to_owned();
    if let Err(cause) = manager.init() {
        return Err(Failed::Init { name, cause });
    }
    let started = manager.start();
    started.map_err(|cause| Failed::Start { name, cause })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Diary = Arc<Mutex<Vec<String>>>;

    struct Noted {
        name: &'static str,
        breaks_at: &'static str,
        diary: Diary,
    }

    impl Noted {
        fn note(&self, what: &str) -> Result<(), Cause> {
            self.diary
                .lock()
                .unwrap()
                .push(format!("{what} {}", self.name));
            if self.breaks_at == what {
                return Err("it broke".into());
            }
            Ok(())
        }
    }

    impl Manager for Noted {
        fn name(&self) -> &str {
            self.name
        }
        fn init(&mut self) -> Result<(), Cause> {
            self.note("init")
        }
        fn start(&mut self) -> Result<(), Cause> {
            self.note("start")
        }
        fn stop(&mut self) {
            self.note("stop").unwrap();
        }
    }

    fn three(second_breaks_at: &'static str) -> (Vec<Box<dyn Manager>>, Diary) {
        let diary = Diary::default();
        let one = |name, breaks_at| {
            let diary = diary.clone();
            Box::new(Noted {
                name,
                breaks_at,
                diary,
            }) as Box<dyn Manager>
        };
        let all = vec![
            one("jobs", ""),
            one("orchestrator", second_breaks_at),
            one("applications", ""),
        ];
        (all, diary)
    }

    #[test]
    fn managers_are_initialized_and_started_once_in_order() {
        let (all, diary) = three("");
        let enabled = ["jobs".to_owned(), "applications".to_owned()];
        let mut managers = Managers::new(all, Some(&enabled)).unwrap();
        managers.stop();
        managers.start().unwrap();
        managers.start().unwrap();
        managers.stop();
        managers.stop();
        let order = [
            "init jobs",
            "start jobs",
            "init applications",
            "start applications",
            "stop jobs",
            "stop applications",
        ];
        assert_eq!(*diary.lock().unwrap(), order);
    }

    #[test]
    fn the_first_error_stops_the_started_managers() {
        for (breaks_at, tried) in [("init", vec!["init"]), ("start", vec!["init", "start"])] {
            let (all, diary) = three(breaks_at);
            let mut managers = Managers::new(all, None).unwrap();
            assert!(
                managers
                    .start()
                    .unwrap_err()
                    .to_string()
                    .contains("orchestrator")
            );
            let tried = tried.into_iter().map(|it| format!("{it} orchestrator"));
            let mut order = vec!["init jobs".to_owned(), "start jobs".to_owned()];
            order.extend(tried);
            order.push("stop jobs".to_owned());
            assert_eq!(*diary.lock().unwrap(), order);
        }
    }

    #[test]
    fn duplicate_and_unknown_managers_are_refused() {
        let (mut all, _) = three("");
        all.extend(three("").0);
        let twice = Managers::new(all, None).err();
        assert_eq!(twice, Some(BadList::Twice("jobs".to_owned())));
        let enabled = ["spark".to_owned()];
        let unknown = Managers::new(three("").0, Some(&enabled)).err().unwrap();
        assert!(
            unknown
                .to_string()
                .contains("jobs, orchestrator, applications")
        );
    }
}
