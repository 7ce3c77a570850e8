//! The runtime of a real node. Commands and task runners run as processes, and images run in the
//! container engine of the node.

use std::collections::BTreeMap;

use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Program};

use super::docker::{Docker, ImageLaunch};
use super::process::Processes;
use super::{Container, Event, EventSender, FoundContainer, OutputPiece, Runtime, RuntimeEvent};

pub struct RealRuntime {
    processes: Processes,
    /// Runtime for images. `None` if no engine is configured.
    docker: Option<Docker>,
    events: EventSender,
}

impl RealRuntime {
    pub fn new(processes: Processes, docker: Option<Docker>, events: EventSender) -> Self {
        Self {
            processes,
            docker,
            events,
        }
    }

    /// Returns the engine if it has this container.
    fn engine_with(&self, id: &AllocationId) -> Option<&Docker> {
        self.docker.as_ref().filter(|docker| docker.contains(id))
    }

    /// Refuses an image. The scheduler should not have placed the work on this node.
    fn refuse(&self, container: Container) {
        let exit = Exit {
            cause_code: Some(NOT_OFFERED.to_owned()),
            ..Exit::of(
                ExitCause::Node,
                "this node runs no images: its agent's docker_socket is not set",
            )
        };
        let event = RuntimeEvent {
            id: container.id,
            incarnation: container.incarnation,
            event: Event::Ended(exit),
        };
        let events = self.events.clone();
        tokio::spawn(async move { events.send(event).await });
    }
}

impl Runtime for RealRuntime {
    fn available_runtimes(&self) -> Vec<String> {
        let mut available_runtimes = self.processes.available_runtimes();
        if self.docker.as_ref().is_some_and(Docker::is_available) {
            available_runtimes.push("docker".to_owned());
        }
        available_runtimes
    }

    fn labels(&self) -> BTreeMap<String, String> {
        self.processes.labels()
    }

    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, FoundContainer>> {
        let mut found = self.processes.recover()?;
        if let Some(docker) = &self.docker {
            found.extend(docker.recover()?);
        }
        Ok(found)
    }

    fn launch(&self, container: Container) {
        let Program::Container {
            argv,
            container: image,
        } = &container.launch.program
        else {
            return self.processes.launch(container);
        };
        match &self.docker {
            Some(docker) => docker.launch(ImageLaunch {
                argv: argv.clone(),
                image: image.clone(),
                container,
            }),
            None => self.refuse(container),
        }
    }

    fn stop(&self, id: &AllocationId) {
        match self.engine_with(id) {
            Some(docker) => docker.stop(id),
            None => self.processes.stop(id),
        }
    }

    fn forget(&self, id: &AllocationId) {
        match self.engine_with(id) {
            Some(docker) => docker.forget(id),
            None => self.processes.forget(id),
        }
    }

    fn output(
        &self,
        id: &AllocationId,
        offset: u64,
        max_bytes: u64,
        backlog: u64,
    ) -> Option<OutputPiece> {
        match self.engine_with(id) {
            Some(docker) => docker.output(id, offset, max_bytes, backlog),
            None => self.processes.output(id, offset, max_bytes, backlog),
        }
    }
}
