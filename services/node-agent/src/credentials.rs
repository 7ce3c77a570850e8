//! The agent's token: fetched once with the secret of an enrolment, and renewed while the agent
//! runs, at two thirds of its life.
//!
//! A token that cannot be written to its file, as on a read-only volume, is used as long as this
//! process lasts. One that has ended cannot be renewed: the node has to be enrolled again, which
//! is said.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use hayward_node_status_api::{AgentCredentials, EnrolmentSecret};
use hayward_service::auth::{TokenLife, read_secret, write_whole};
use hayward_service::{Client, Clock as _, Shutdown, SystemClock, TokenSource};
use hayward_vocabulary::NodeName;
use http::Method;

use crate::Settings;

/// How often a token is looked at, and a renewal that failed is tried again.
const LOOK: Duration = Duration::from_secs(30);

/// Exchanges the secret of an enrolment for the first token, where there is a secret and no token.
/// Waits for node-status as long as it takes.
///
/// # Errors
/// When node-status says no: the secret is used, too old, or another node's.
pub async fn enrolled(settings: &Settings, shutdown: &Shutdown) -> anyhow::Result<()> {
    let Some(secret) = &settings.enrolment_secret_file else {
        return Ok(());
    };
    let file = settings.token_place()?;
    if file.exists() {
        return Ok(());
    }
    let secret = read_secret(secret)?.trim().to_owned();
    let nobody = TokenSource::none().believing(settings.token()?.authority());
    let client = Client::from_list(&settings.node_status_url, nobody)?;
    let path = format!("/v1/nodes/{}/credentials", settings.node()?);
    loop {
        let call = client.call(Method::POST, path.as_str());
        let secret = secret.clone();
        match call.body(&EnrolmentSecret { secret }).send().await {
            Ok(AgentCredentials { token, .. }) => {
                tracing::info!(file = %file.display(), "enrolled");
                return write_whole(&file, &token, 0o600);
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
            () = shutdown.wait() => anyhow::bail!("ended before it was enrolled"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Renews a token before it ends.
pub struct Renewal {
    client: Client,
    node: NodeName,
    token: TokenSource,
    file: PathBuf,
}

impl Renewal {
    pub fn of(settings: &Settings, client: Client, token: TokenSource) -> anyhow::Result<Self> {
        Ok(Self {
            client,
            node: settings.node()?,
            token,
            file: settings.token_place()?,
        })
    }

    pub async fn keep(self, shutdown: Shutdown) {
        loop {
            if let Err(error) = self.look().await {
                tracing::warn!(error = format!("{error:#}"), "the token is not renewed yet");
            }
            tokio::select! {
                () = shutdown.wait() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn look(&self) -> anyhow::Result<()> {
        let Some(token) = self.token.current()? else {
            return Ok(());
        };
        let now_s = SystemClock.now().unix_ms() / 1000;
        if TokenLife::of(&token).is_none_or(|life| now_s < life.renewed_s()) {
            return Ok(());
        }
        let path = format!("/v1/nodes/{}/credentials", self.node);
        let fresh: AgentCredentials = self
            .client
            .call(Method::PUT, path)
            .send()
            .await
            .context("cannot renew the token of this agent")?;
        match write_whole(&self.file, &fresh.token, 0o600) {
            Ok(()) => tracing::info!("the token is renewed"),
            Err(error) => {
                self.token.replace(&fresh.token);
                tracing::info!(
                    error = format!("{error:#}"),
                    "the token is renewed, for as long as this agent runs"
                );
            }
        }
        Ok(())
    }
}
