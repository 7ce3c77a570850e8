//! Managers of this service. A manager accepts work from one kind of source: users' own work,
//! applications, or work maps. All have the same life cycle: init, start, stop. Requests to a
//! manager pass its [`Door`].
//!
//! A disabled manager accepts no work and its routes say so. Work it accepted before continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use hayward_job_converter_application_protocol::managers::{BadList, Cause, Manager, Managers};
use hayward_service::http::problem::{Code, Problem};
use utoipa_axum::router::OpenApiRouter;

use crate::config::{APPLICATIONS, JOBS, ORCHESTRATOR};

/// Gate in front of the routes of one manager: open between start and stop.
#[derive(Clone)]
pub struct Door {
    name: &'static str,
    state: Arc<AtomicU8>,
}

const NOT_ENABLED: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

impl Door {
    fn new(name: &'static str) -> Self {
        let state = Arc::new(AtomicU8::new(NOT_ENABLED));
        Self { name, state }
    }

    /// Puts routes behind this gate.
    pub fn guards<S>(&self, routes: OpenApiRouter<S>) -> OpenApiRouter<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        routes.route_layer(from_fn_with_state(self.clone(), pass))
    }

    fn refusal(&self) -> Option<Problem> {
        let name = self.name;
        match self.state.load(Ordering::Acquire) {
            OPEN => None,
            CLOSED => Some(Problem::new(
                Code::Unavailable,
                format!("the manager `{name}` has stopped; the service is shutting down"),
            )),
            _ => Some(Problem::new(
                Code::Conflict,
                format!("the manager `{name}` is not enabled; add it to the setting `managers`"),
            )),
        }
    }
}

async fn pass(State(door): State<Door>, request: Request, next: Next) -> Response {
    match door.refusal() {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}

/// The gates of all managers.
pub struct Doors {
    pub jobs: Door,
    pub orchestrator: Door,
    pub applications: Door,
}

impl Doors {
    pub fn new() -> Self {
        Self {
            jobs: Door::new(JOBS),
            orchestrator: Door::new(ORCHESTRATOR),
            applications: Door::new(APPLICATIONS),
        }
    }

    /// The enabled managers.
    ///
    /// # Errors
    /// When an unknown manager is enabled.
    pub fn managers(&self, enabled: &[String]) -> Result<Managers, BadList> {
        let doors = [&self.jobs, &self.applications, &self.orchestrator];
        let behind = |door: &Door| Box::new(Behind(door.clone())) as Box<dyn Manager>;
        Managers::new(doors.map(behind).into(), Some(enabled))
    }
}

/// A manager whose only source is its gate.
struct Behind(Door);

impl Manager for Behind {
    fn name(&self) -> &str {
        self.0.name
    }

    fn init(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    fn start(&mut self) -> Result<(), Cause> {
        self.0.state.store(OPEN, Ordering::Release);
        Ok(())
    }

    fn stop(&mut self) {
        self.0.state.store(CLOSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MANAGERS;

    #[test]
    fn a_door_is_open_between_start_and_stop() {
        let doors = Doors::new();
        let mut managers = doors.managers(&MANAGERS.map(str::to_owned)).unwrap();
        let code = |door: &Door| door.refusal().map(|problem| problem.code);
        assert_eq!(code(&doors.jobs), Some(Code::Conflict));
        managers.start().unwrap();
        assert_eq!(code(&doors.jobs), None);
        managers.stop();
        assert_eq!(code(&doors.jobs), Some(Code::Unavailable));
    }

    #[test]
    fn one_that_is_not_named_stays_shut() {
        let doors = Doors::new();
        let mut managers = doors.managers(&[]).unwrap();
        managers.start().unwrap();
        assert!(doors.jobs.refusal().is_some());
        let stranger = doors.managers(&["spark".to_owned()]).err().unwrap();
        assert!(
            stranger.to_string().contains("managers are jobs"),
            "{stranger}"
        );
    }
}
