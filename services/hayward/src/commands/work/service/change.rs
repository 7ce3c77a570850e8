//! `hayward service scale` and `hayward service update`: change the number of instances or the
//! version of a service.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_job_converter_api::submission::{
    ContainerSubmission, ServiceChanged, ServiceSubmission,
};
use hayward_service::client::Client;
use hayward_vocabulary::{Size, WorkId};
use http::Method;
use http::header::{ETAG, IF_MATCH};

use super::ImageFlags;
use crate::commands::work;
use crate::commands::work::submit::common_flags::CommonFlags;
use crate::commands::work::submit::deployment_flags::DeploymentFlags;
use crate::commands::work::submit::disruption_flags::DisruptionFlags;
use crate::commands::work::submit::{DocumentKind, display_name, document, read_document};
use crate::connection::{Role, Service, Session};
use crate::output::note;

/// Poll interval during a replacement.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, clap::Args)]
pub struct ScaleArguments {
    /// Id of the service.
    #[arg(value_name = "ID")]
    pub id: WorkId,
    /// Number of instances that always run. Instances that run now stay as they are.
    #[arg(value_name = "N")]
    pub instances: u32,
    #[command(flatten)]
    pub after: AfterChange,
}

/// Fields that are not given stay as they are. Another program, image, size or environment replaces
/// the processes, as many at one time as the disruption limit allows, by default one.
#[derive(Debug, Clone, clap::Args)]
pub struct UpdateArguments {
    /// Id of the service.
    #[arg(value_name = "ID")]
    pub id: WorkId,
    #[command(flatten)]
    pub common: CommonFlags,
    /// Number of instances that always run.
    #[arg(long, value_name = "N")]
    pub instances: Option<u32>,
    #[command(flatten)]
    pub deployment: DeploymentFlags,
    #[command(flatten)]
    pub image: ImageFlags,
    #[command(flatten)]
    pub disruption: DisruptionFlags,
    #[command(flatten)]
    pub after: AfterChange,
    /// The whole submission as YAML or JSON. Fields that it does not name get their defaults.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "class", "memory", "cpu", "machines", "labels", "environment", "cwd", "instances",
        "when_unreachable", "disruption_limit", "command", "image", "run_as", "read_only",
        "mounts",
        "standbys", "host_affinity", "fault_domain", "retries",
    ])]
    pub file: Option<PathBuf>,
    /// New program and arguments.
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Default, clap::Args)]
pub struct AfterChange {
    /// Wait until every process runs the new version and is healthy.
    #[arg(long)]
    pub wait: bool,
}

pub async fn scale(session: &Session, scale: ScaleArguments) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let (mut service, etag) = current_submission(&client, &scale.id).await?;
    service.instances = Some(scale.instances);
    put_submission(session, &scale.id, &service, &etag, &scale.after).await
}

pub async fn update(session: &Session, update: UpdateArguments) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let (service, etag) = current_submission(&client, &update.id).await?;
    let (id, after) = (update.id.clone(), update.after.clone());
    let service = match &update.file {
        Some(file) => read_service_file(file)?,
        None => apply_flags(service, update)?,
    };
    put_submission(session, &id, &service, &etag, &after).await
}

/// Reads the current submission, and the entity tag for its change.
async fn current_submission(
    client: &Client,
    id: &WorkId,
) -> anyhow::Result<(ServiceSubmission, String)> {
    let path = format!("/v1/services/{id}/submission");
    let response = client.call(Method::GET, path).send_for_response().await?;
    let etag = response
        .headers
        .get(ETAG)
        .and_then(|etag| etag.to_str().ok());
    let etag = etag.context("the response has no entity tag")?;
    Ok((response.body, etag.to_owned()))
}

fn read_service_file(file: &Path) -> anyhow::Result<ServiceSubmission> {
    match read_document(file, DocumentKind::Service)? {
        document::Document::Service(service) => Ok(*service),
        _ => bail!("{} is not about a service", display_name(file)),
    }
}

/// Changes the fields for which a flag is given.
fn apply_flags(
    mut service: ServiceSubmission,
    update: UpdateArguments,
) -> anyhow::Result<ServiceSubmission> {
    let UpdateArguments {
        common,
        instances,
        deployment,
        image,
        disruption,
        command,
        ..
    } = update;
    service.working_directory = common
        .program
        .working_directory()?
        .or(service.working_directory);
    service.environment.extend(common.program.variables()?);
    service.labels.extend(common.labels);
    if common.memory.is_some() || common.cpu.is_some() {
        let before = service
            .size
            .unwrap_or_else(|| Size::memory(hayward_vocabulary::resources::GIB));
        service.size = Some(Size {
            memory_bytes: common.memory.unwrap_or(before.memory_bytes),
            cpu_milli: common.cpu.unwrap_or(before.cpu_milli),
            ..before
        });
    }
    if !common.machines.is_empty() {
        service.machines = common.machines;
    }
    if !command.is_empty() {
        service.command = command;
    }
    service.container = merge_containers(image.container(), service.container);
    service.retries = deployment.retries().or(service.retries);
    service.name = common.name.or(service.name);
    service.class = common.class.or(service.class);
    service.instances = instances.or(service.instances);
    service.standbys = deployment.standbys.or(service.standbys);
    service.host_affinity = deployment.host_affinity.or(service.host_affinity);
    service.fault_domain_label = deployment.fault_domain.or(service.fault_domain_label);
    service.when_unreachable = disruption.when_unreachable.or(service.when_unreachable);
    service.disruption_limit = disruption.disruption_limit.or(service.disruption_limit);
    Ok(service)
}

/// Merges the given container settings into the previous ones. User, mounts and the read-only mode
/// stay unless a flag sets them.
fn merge_containers(
    new: Option<ContainerSubmission>,
    before: Option<ContainerSubmission>,
) -> Option<ContainerSubmission> {
    let (new, before) = match (new, before) {
        (Some(new), Some(before)) => (new, before),
        (new, before) => return new.or(before),
    };
    Some(ContainerSubmission {
        uid: new.uid.or(before.uid),
        // A group belongs to its user, so a new user does not get the previous group.
        gid: if new.uid.is_some() {
            new.gid
        } else {
            before.gid
        },
        read_only: new.read_only || before.read_only,
        mounts: if new.mounts.is_empty() {
            before.mounts
        } else {
            new.mounts
        },
        image: new.image,
    })
}

/// Replaces the submission if it still has this entity tag, and waits if requested.
async fn put_submission(
    session: &Session,
    id: &WorkId,
    service: &ServiceSubmission,
    etag: &str,
    after: &AfterChange,
) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let call = client
        .call(Method::PUT, format!("/v1/services/{id}"))
        .header(IF_MATCH, etag)
        .body(service);
    let response: serde_json::Value = call.send().await?;
    session
        .out
        .print_response(response, |it: &ServiceChanged, _| result_text(it))?;
    if after.wait {
        wait_for_deployment(&client, id).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn result_text(changed: &ServiceChanged) -> String {
    let id = &changed.id;
    match (changed.changed, changed.redeployed) {
        (false, _) => format!("{id} has these values already\n"),
        (true, false) => format!("{id} was changed; its processes continue unchanged\n"),
        (true, true) => format!(
            "{id} is deployed as {}; its processes are replaced\n",
            changed.deployment
        ),
    }
}

/// Polls until every processor runs the current version.
async fn wait_for_deployment(client: &Client, id: &WorkId) -> anyhow::Result<()> {
    let mut last_step = String::new();
    loop {
        let view = work::fetch_view(client, id).await?;
        let Some(deployment) = &view.deployment else {
            bail!("{id} is no service");
        };
        if view.state.is_final() {
            let reason = view.reason.unwrap_or_default();
            bail!("{id} is over: {reason}");
        }
        if deployment.outdated == 0 && deployment.healthy {
            note(&format!("every process of {id} runs this version"));
            return Ok(());
        }
        let step = view
            .reason
            .unwrap_or_else(|| "its processes are starting".to_owned());
        if step != last_step {
            note(&step);
            last_step = step;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct UpdateCommand {
        #[command(flatten)]
        update: UpdateArguments,
    }

    /// Returns the submission of a service with three instances, changed by these flags.
    fn submission_after(flags: &[&str]) -> ServiceSubmission {
        let before = json!({
            "name": "echo", "command": ["/bin/echo", "a"], "instances": 3,
            "environment": { "A": "1", "B": "2" }, "size": { "memory_bytes": 7, "cpu_milli": 9 },
            "container": { "image": "echo:1", "uid": 2000, "gid": 2001 },
        });
        let arguments = ["update", "svc_1"].into_iter().chain(flags.iter().copied());
        let update = UpdateCommand::try_parse_from(arguments).unwrap().update;
        apply_flags(serde_json::from_value(before).unwrap(), update).unwrap()
    }

    #[test]
    fn unspecified_fields_stay() {
        let same = submission_after(&[]);
        assert_eq!(
            (same.instances, same.name.as_deref()),
            (Some(3), Some("echo"))
        );
        let image = submission_after(&["--image", "echo:2"]).container.unwrap();
        assert_eq!(
            (image.image.as_str(), image.uid, image.gid),
            ("echo:2", Some(2000), Some(2001))
        );
        let other = submission_after(&["--image", "echo:2", "--run-as", "3000"])
            .container
            .unwrap();
        assert_eq!((other.uid, other.gid), (Some(3000), None));
        let size = submission_after(&["--memory", "1K"]).size.unwrap();
        assert_eq!((size.memory_bytes, size.cpu_milli), (1024, 9));
        let more = submission_after(&["--env", "B=3", "--env", "C=4", "--", "/bin/cat", "-n"]);
        assert_eq!(more.command, ["/bin/cat", "-n"]);
        let variables: Vec<_> = more.environment.values().map(String::as_str).collect();
        assert_eq!(variables, ["1", "3", "4"]);
    }
}
