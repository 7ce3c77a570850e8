//! Managers of this service. A manager accepts work from one kind of source: users' own work,
//! applications, or work maps. All have the same life cycle: init, start, stop. Requests to a
//! manager pass its [`ManagerGate`].
//!
//! A disabled manager accepts no work, and its routes answer with an error. Work it accepted before
//! continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use hayward_job_converter_application_protocol::application_managers::{
    Cause, InvalidManagerList, Manager, Managers,
};
use hayward_service::http::problem::{Code, Problem};
use utoipa_axum::router::OpenApiRouter;

use crate::config::{APPLICATIONS, JOBS, ORCHESTRATOR};

/// Gate in front of the routes of one manager: open between start and stop.
#[derive(Clone)]
pub struct ManagerGate {
    name: &'static str,
    state: Arc<AtomicU8>,
}

const NOT_ENABLED: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

impl ManagerGate {
    fn new(name: &'static str) -> Self {
        let state = Arc::new(AtomicU8::new(NOT_ENABLED));
        Self { name, state }
    }

    /// Puts routes behind this gate.
    pub fn guard<S>(&self, routes: OpenApiRouter<S>) -> OpenApiRouter<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        routes.route_layer(from_fn_with_state(self.clone(), check_gate))
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

async fn check_gate(State(gate): State<ManagerGate>, request: Request, next: Next) -> Response {
    match gate.refusal() {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}

/// The gates of all managers.
pub struct ManagerGates {
    pub jobs: ManagerGate,
    pub orchestrator: ManagerGate,
    pub applications: ManagerGate,
}

impl ManagerGates {
    pub fn new() -> Self {
        Self {
            jobs: ManagerGate::new(JOBS),
            orchestrator: ManagerGate::new(ORCHESTRATOR),
            applications: ManagerGate::new(APPLICATIONS),
        }
    }

    /// Returns the enabled managers.
    ///
    /// # Errors
    /// Fails if an unknown manager is enabled.
    pub fn managers(&self, enabled: &[String]) -> Result<Managers, InvalidManagerList> {
        let gates = [&self.jobs, &self.applications, &self.orchestrator];
        let to_manager =
            |gate: &ManagerGate| Box::new(GatedManager(gate.clone())) as Box<dyn Manager>;
        Managers::new(gates.map(to_manager).into(), Some(enabled))
    }
}

/// A manager that only opens and closes its gate.
struct GatedManager(ManagerGate);

impl Manager for GatedManager {
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
    fn a_gate_is_open_between_start_and_stop() {
        let gates = ManagerGates::new();
        let mut managers = gates.managers(&MANAGERS.map(str::to_owned)).unwrap();
        let code = |gate: &ManagerGate| gate.refusal().map(|problem| problem.code);
        assert_eq!(code(&gates.jobs), Some(Code::Conflict));
        managers.start().unwrap();
        assert_eq!(code(&gates.jobs), None);
        managers.stop();
        assert_eq!(code(&gates.jobs), Some(Code::Unavailable));
    }

    #[test]
    fn a_disabled_manager_stays_closed_and_an_unknown_one_is_refused() {
        let gates = ManagerGates::new();
        let mut managers = gates.managers(&[]).unwrap();
        managers.start().unwrap();
        assert!(gates.jobs.refusal().is_some());
        let unknown_manager = gates.managers(&["spark".to_owned()]).err().unwrap();
        assert!(
            unknown_manager.to_string().contains("managers are jobs"),
            "{unknown_manager}"
        );
    }
}
