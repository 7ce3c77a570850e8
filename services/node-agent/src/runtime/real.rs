//! A real node. Commands and task runners run as processes, images in its container engine.

use std::collections::BTreeMap;

use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Program};

use super::docker::{Docker, ImageLaunch};
use super::process::Processes;
use super::{Container, Event, EventSender, Found, Piece, Runtime, RuntimeEvent};

pub struct RealMachine {
    processes: Processes,
    /// Runtime for images. `None` if no engine is configured.
    docker: Option<Docker>,
    news: EventSender,
}

impl RealMachine {
    pub fn new(processes: Processes, docker: Option<Docker>, news: EventSender) -> Self {
        Self {
            processes,
            docker,
            news,
        }
    }

    fn engine_of(&self, id: &AllocationId) -> Option<&Docker> {
        self.docker.as_ref().filter(|docker| docker.has(id))
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
        let news = RuntimeEvent {
            id: container.id,
            incarnation: container.incarnation,
            event: Event::Ended(exit),
        };
        let event_sender = self.news.clone();
        tokio::spawn(async move { event_sender.send(news).await });
    }
}

impl Runtime for RealMachine {
    fn offers(&self) -> Vec<String> {
        let mut offers = self.processes.offers();
        if self.docker.as_ref().is_some_and(Docker::answers) {
            offers.push("docker".to_owned());
        }
        offers
    }

    fn labels(&self) -> BTreeMap<String, String> {
        self.processes.labels()
    }

    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>> {
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
        match self.engine_of(id) {
            Some(docker) => docker.stop(id),
            None => self.processes.stop(id),
        }
    }

    fn forget(&self, id: &AllocationId) {
        match self.engine_of(id) {
            Some(docker) => docker.forget(id),
            None => self.processes.forget(id),
        }
    }

    fn output(&self, id: &AllocationId, offset: u64, most: u64, backlog: u64) -> Option<Piece> {
        match self.engine_of(id) {
            Some(docker) => docker.output(id, offset, most, backlog),
            None => self.processes.output(id, offset, most, backlog),
        }
    }
}
