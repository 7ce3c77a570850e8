//! Flags of `hayward up` for the telemetry collector, and for connections to other machines without
//! TLS. (S3)

use std::ffi::OsString;
use std::path::PathBuf;

use hayward_service::ServerSettings;

/// The telemetry collector, and whether connections to other machines may lack TLS.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RemoteEndpoints {
    /// Collector for traces, metrics and logs (OTLP over HTTP). Default:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[arg(long, env = "HAYWARD_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// File with the certificate authorities that are trusted for the collector. Default: the trust
    /// store of this machine.
    #[arg(long, env = "HAYWARD_OTLP_AUTHORITY", value_name = "FILE")]
    pub otlp_authority: Option<PathBuf>,
    /// Allow a database and a collector on other machines without TLS.
    #[arg(
        long,
        env = "HAYWARD_ALLOW_INSECURE",
        value_name = "BOOL",
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub allow_insecure: bool,
}

impl RemoteEndpoints {
    /// Returns the address of the collector, from the flag or the standard variable.
    fn endpoint(&self) -> Option<String> {
        let standard = || {
            let value = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
            value.filter(|it| !it.is_empty())
        };
        self.otlp_endpoint.clone().or_else(standard)
    }

    /// Returns the endpoints as settings of a service.
    pub fn server_settings(&self) -> ServerSettings {
        ServerSettings {
            otlp_endpoint: self.endpoint(),
            otlp_authority: self.otlp_authority.clone(),
            allow_insecure: self.allow_insecure,
            ..ServerSettings::default()
        }
    }

    /// Checks before the first connection that this database may be used.
    ///
    /// # Errors
    /// When it is on another machine without TLS, and insecure connections are not allowed.
    pub fn check_database(&self, database_url: &str) -> anyhow::Result<()> {
        let settings = ServerSettings {
            database_url: Some(database_url.to_owned()),
            ..self.server_settings()
        };
        settings.database_url().map(drop)
    }

    /// Returns the endpoints as environment variables of an agent.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let endpoint = self.endpoint().map(OsString::from);
        let authority = self.otlp_authority.as_ref().map(OsString::from);
        let insecure = self.allow_insecure.then(|| OsString::from("true"));
        let variables = [
            ("HAYWARD_OTLP_ENDPOINT", endpoint),
            ("HAYWARD_OTLP_AUTHORITY", authority),
            ("HAYWARD_ALLOW_INSECURE", insecure),
        ];
        let values = variables.into_iter();
        values
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}
