//! The token of the agent. It is obtained once with an enrolment secret, and renewed after two
//! thirds of its lifetime.
//!
//! A renewed token that cannot be written to its file is used until the process ends. An expired
//! token cannot be renewed, so the node must be enrolled again.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use hayward_node_status_api::{AgentCredentials, EnrolmentSecret};
use hayward_service::auth::{TokenLifetime, read_secret, write_atomically};
use hayward_service::{Client, Clock as _, Shutdown, SystemClock, TokenSource};
use hayward_vocabulary::NodeName;
use http::Method;

use crate::Settings;

/// Interval of checks and of retries.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Exchanges the enrolment secret for the first token, if there is a secret and no token. Retries
/// until node-status answers.
///
/// # Errors
/// If node-status refuses because the secret was used, has expired, or is for another
/// node.
pub async fn enrol(settings: &Settings, shutdown: &Shutdown) -> anyhow::Result<()> {
    let Some(secret) = &settings.enrolment_secret_file else {
        return Ok(());
    };
    let file = settings.token_path()?;
    if file.exists() {
        return Ok(());
    }
    let secret = read_secret(secret)?.trim().to_owned();
    let no_token = TokenSource::none().with_authority(settings.token()?.authority());
    let client = Client::from_list(&settings.node_status_url, no_token)?;
    let path = format!("/v1/nodes/{}/credentials", settings.node()?);
    loop {
        let call = client.call(Method::POST, path.as_str());
        let secret = secret.clone();
        match call.body(&EnrolmentSecret { secret }).send().await {
            Ok(AgentCredentials { token, .. }) => {
                tracing::info!(file = %file.display(), "enrolled");
                return write_atomically(&file, &token, 0o600);
            }
            Err(error) if !error.retryable() => {
                return Err(error).context("this node was not enrolled");
            }
            Err(error) => tracing::warn!(
                error = format!("{:#}", anyhow::Error::new(error)),
                "cannot enrol yet"
            ),
        }
        tokio::select! {
            () = shutdown.wait() => anyhow::bail!("stopped before the enrolment"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Background loop that renews the token before it expires.
pub struct Renewal {
    client: Client,
    node: NodeName,
    token: TokenSource,
    file: PathBuf,
}

impl Renewal {
    pub fn new(settings: &Settings, client: Client, token: TokenSource) -> anyhow::Result<Self> {
        Ok(Self {
            client,
            node: settings.node()?,
            token,
            file: settings.token_path()?,
        })
    }

    pub async fn run(self, shutdown: Shutdown) {
        loop {
            if let Err(error) = self.renew_if_due().await {
                tracing::warn!(error = format!("{error:#}"), "the token is not renewed yet");
            }
            tokio::select! {
                () = shutdown.wait() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    async fn renew_if_due(&self) -> anyhow::Result<()> {
        let Some(token) = self.token.current()? else {
            return Ok(());
        };
        let now_s = SystemClock.now().unix_ms() / 1000;
        if TokenLifetime::from_token(&token).is_none_or(|lifetime| now_s < lifetime.renew_at_s()) {
            return Ok(());
        }
        let path = format!("/v1/nodes/{}/credentials", self.node);
        let renewed: AgentCredentials = self
            .client
            .call(Method::PUT, path)
            .send()
            .await
            .context("cannot renew the token of this agent")?;
        match write_atomically(&self.file, &renewed.token, 0o600) {
            Ok(()) => tracing::info!("the token is renewed"),
            Err(error) => {
                self.token.replace(&renewed.token);
                tracing::info!(
                    error = format!("{error:#}"),
                    "the token is renewed, for as long as this agent runs"
                );
            }
        }
        Ok(())
    }
}
